package data

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

// Official is the settings that datasets in their authors' layout share.
type Official struct {
	Root     string       `yaml:"root"`      // folder, or zip archive; archives in the folder are read as if unpacked there
	OnError  OnError      `yaml:"on_error"`  // broken images: fail or skip
	MaxImage config.Bytes `yaml:"max_image"` // memory to decode and resize one image, such as 512MiB; 0: 1GiB
}

// at sets the root that --root gives.
func (o *Official) at(root string) { o.Root = root }

// Validate checks the settings that need no file.
func (o *Official) Validate() error {
	return cmp.Or(checkMaxImage(o.MaxImage), o.OnError.validate("data"))
}

// layout is how one dataset lies on disk, and what is known of it.
type layout struct {
	name    string
	splits  []string
	markers []string // files or folders of which one must be there
	says    string   // the layout in words, for errors
	list    func(p *place) ([]placed, error)
	counts  map[string][]Counts // by split
	further []string            // names of further levels
}

// open lists a split of a dataset in its authors' layout.
func (o *Official) open(split string, l layout) (*Dataset, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit(l.name, split, l.splits); err != nil {
		return nil, err
	}
	p, err := openPlace(l.name, o.Root, l.says, l.markers...)
	if err != nil {
		return nil, err
	}
	for _, t := range p.trees {
		t.most = imageLimit(o.MaxImage)
	}
	all, err := l.list(p)
	if err == nil && len(all) == 0 {
		err = fault.Inputf("%s: no image in %s; expected %s", l.name, o.Root, l.says)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	for i := range all {
		all[i].ID = i
	}
	d, err := finish(l.name, split, all, o.OnError, p.trees...)
	if err != nil {
		return nil, err
	}
	d.Further, d.Official = l.further, l.counts[split]
	return d, nil
}

// divideClasses gives the first n of the classes to training and the rest to
// the test; the order is that of order, for which 0 is the first.
func divideClasses(items []Item, n int, order func(class string) int) []placed {
	classes := map[string]bool{}
	for i := range items {
		classes[items[i].Class] = true
	}
	sorted := make([]string, 0, len(classes))
	for class := range classes {
		sorted = append(sorted, class)
	}
	slices.SortFunc(sorted, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
	train := map[string]bool{}
	for _, class := range sorted[:min(n, len(sorted))] {
		train[class] = true
	}
	all := make([]placed, len(items))
	for i, it := range items {
		all[i] = placed{it, Test}
		if train[it.Class] {
			all[i].split = Train
		}
	}
	return trainFirst(all)
}

// trainFirst moves the training images to the front, in order.
func trainFirst(all []placed) []placed {
	slices.SortStableFunc(all, func(a, b placed) int {
		rank := func(p placed) int {
			if p.split == Train {
				return 0
			}
			return 1
		}
		return rank(a) - rank(b)
	})
	return all
}

// wholeNumber reads a number of a list, such as a class.
func wholeNumber(what, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the %s %q is not a whole number", what, text)
	}
	return n, nil
}

// protocolSplit names how a dataset's classes are divided.
const (
	byClasses  = "classes"  // training and test have different classes
	byOfficial = "official" // as the authors' own lists say
)

func checkProtocol(protocol string) error {
	if protocol != byClasses && protocol != byOfficial {
		return config.Invalid("protocol", "is %q; give %s or %s", protocol, byClasses, byOfficial)
	}
	return nil
}
