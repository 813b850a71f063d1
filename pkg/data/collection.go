package data

import (
	"fmt"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Collection is a kind of dataset: the struct behind it is its own section of
// a recipe and knows where the images are.
type Collection interface {
	// Open lists the images of a split: one of Splits, or "all". Missing
	// folders, splits without images and unknown splits are errors of the
	// input. The caller closes the dataset.
	Open(split string) (*Dataset, error)
	// Splits names what the collection is divided into: "train", "test", and
	// further test sets or parts of them ("query", "gallery").
	Splits() []string
}

// Registry holds the collections by name.
var Registry = registry.New[Collection]("dataset")

func register(name string, construct func() Collection) { Registry.Register(name, construct) }

// New returns the collection of that name with its defaults. An unknown name
// is an error of the input.
func New(name string) (Collection, error) { return Registry.Make(name) }

// Names lists the collections, sorted.
func Names() []string { return Registry.Names() }

// The splits that collections share.
const (
	Train   = "train"
	Test    = "test"
	All     = "all"     // everything, in the collection's order
	Query   = "query"   // images of the test split that are searched with, where they are not all of it
	Gallery = "gallery" // images of the test split that are searched, likewise
)

// checkSplit refuses anything but all and the splits there are.
func checkSplit(collection, split string, splits []string) error {
	known := append(slices.Clone(splits), All)
	if slices.Contains(known, split) {
		return nil
	}
	hint := ""
	if near, ok := registry.Nearest(split, known); ok {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return fault.Inputf("%s: unknown split %q%s (known: %s)", collection, split, hint, strings.Join(known, ", "))
}

// selects says whether an image of a split, in a role, is in the split asked
// for.
func selects(asked, split string, role Role) bool {
	switch asked {
	case split, All:
		return true
	case Query:
		return split == Test && role != GalleryOnly
	case Gallery:
		return split == Test && role != QueryOnly
	}
	return false
}

// OnError says what becomes of an image that cannot be decoded.
type OnError string

const (
	// Fail stops with an error when the image is used. Opening a dataset
	// decodes nothing and is quick.
	Fail OnError = "fail"
	// Skip leaves broken images out and lists them in Dataset.Skipped. So that
	// batches never depend on it, every image is decoded once when the dataset
	// is opened.
	Skip OnError = "skip"
)

func (e OnError) validate(collection string) error {
	if e != Fail && e != Skip {
		return fault.Inputf("%s: on_error is %q; give fail or skip", collection, e)
	}
	return nil
}
