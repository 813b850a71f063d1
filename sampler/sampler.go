// Package sampler decides which images meet in a batch. It works on integers
// alone: labels in, rows of the dataset out.
//
// A plan is a pure function of (labels, seed, epoch): no epoch depends on an
// earlier one having been asked for. So resuming a run is a cursor (epoch,
// batch), and nothing of a sampler is ever saved.
package sampler

import (
	"cmp"
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Sampler is one way to make batches; the struct behind it is its own section
// of a recipe.
type Sampler interface {
	// Plan lays out the epochs of a dataset whose row i has the class
	// labels[i], under a seed. Labels are any numbers, in any order. It
	// neither keeps nor changes the slice. Settings and labels that allow no
	// batch are errors of the input.
	Plan(labels []int64, seed uint64) (Plan, error)
}

// Plan is the batches of every epoch. It is safe for concurrent use.
type Plan interface {
	// Epoch returns the batches of one epoch, counted from 0: rows of the
	// dataset, in order. Equal epochs are equal; the caller owns the result.
	Epoch(epoch int) [][]int
	// Batches is the number of batches of every epoch, at least 1.
	Batches() int
}

// Registry holds the samplers by name.
var Registry = registry.New[Sampler]("sampler")

func register(name string, construct func() Sampler) { Registry.Register(name, construct) }

// New returns the sampler of that name with its defaults. An unknown name is
// an error of the input.
func New(name string) (Sampler, error) { return Registry.Make(name) }

// Names lists the samplers, sorted.
func Names() []string { return Registry.Names() }

// Streams of random numbers, so that no two uses of one seed draw alike.
const (
	streamClasses = iota + 1 // order of the classes in an epoch
	streamExtras             // which classes an epoch visits once more
	streamImages             // order of the images of one class in an epoch
	streamRows               // order of all rows in an epoch
)

// class is the rows of one label, ascending.
type class struct {
	label int64
	rows  []int
}

// byClass groups rows by label, classes in ascending order of their label.
func byClass(labels []int64) []class {
	at := map[int64]int{}
	var classes []class
	for row, label := range labels {
		i, known := at[label]
		if !known {
			i = len(classes)
			at[label] = i
			classes = append(classes, class{label: label})
		}
		classes[i].rows = append(classes[i].rows, row)
	}
	slices.SortFunc(classes, func(a, b class) int { return cmp.Compare(a.label, b.label) })
	return classes
}

// errEmpty is what every sampler says to a dataset without images.
func errEmpty(name string) error {
	return fault.Inputf("sampler %s: the dataset is empty; check its root and split", name)
}

// errAllLone is what samplers for training say when no batch could ever hold
// a positive pair.
func errAllLone(name string, classes int) error {
	return fault.Inputf("sampler %s: each of the %d classes has a single image, so no image has a positive; "+
		"give at least two images a class (are the labels those of the classes?)", name, classes)
}

// needPair refuses labels of which no two are alike.
func needPair(name string, classes []class) error {
	for _, c := range classes {
		if len(c.rows) > 1 {
			return nil
		}
	}
	return errAllLone(name, len(classes))
}
