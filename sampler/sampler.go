// Package sampler decides which images meet in a batch. It is what a
// batch_sampler of a PyTorch DataLoader is, with two differences: a plan of
// batches can be asked for any epoch at once, and nothing in it depends on what
// was asked before.
//
// Samplers work on integers: the label of every image and, where the dataset
// has them, its category, a coarser label. Batches are rows of the dataset.
//
//	s, err := sampler.New("hard")
//	plan, err := s.Plan(labels, categories, seed)
//	for _, batch := range plan.Epoch(0) { … }
//
// The samplers, by name:
//
//	balanced    so many classes, so many images of each ("P × K", MPerClassSampler)
//	classes     whole classes until the batch is full (FastAP's "random")
//	hard        half a batch from each of two categories, all pairs of them in turn (FastAP, RaMBO, ROADMAP)
//	vehicle     half from one labelled category, half from classes without one (FastAP on VehicleID)
//	confusion   hard, with categories of classes that the network itself takes for alike
//	random      a shuffled dataset, cut into batches
//	sequential  the dataset in its order, for evaluation
//
// A plan is a pure function of (labels, categories, seed, epoch). So resuming a
// run is a cursor (epoch, batch), and no state of a sampler is ever saved;
// confusion's categories, which come from the network, are the one exception
// and are saved by whoever computes them (see [Regrouper]).
//
// [Cover] counts what the batches of an epoch hold.
package sampler

import (
	"cmp"
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// NoCategory is the category of an image that has none.
const NoCategory = -1

// Sampler is one way to make batches; the struct behind it is its own section
// of a recipe.
type Sampler interface {
	// Plan lays out the epochs of a dataset whose row i has the class
	// labels[i] and the category categories[i], under a seed. Labels are any
	// numbers, in any order; so are categories, but for NoCategory.
	// Categories are nil for a dataset without any. The slices are neither
	// kept nor changed. Settings and labels that allow no batch are errors of
	// the input.
	Plan(labels, categories []int64, seed uint64) (Plan, error)
}

// Plan is the batches of every epoch. It is safe for concurrent use.
type Plan interface {
	// Epoch returns the batches of one epoch, counted from 0: rows of the
	// dataset, in order. Equal epochs are equal; the caller owns the result.
	Epoch(epoch int) [][]int
	// Batches is the number of batches of every epoch, at least 1.
	Batches() int
	// Why says where that number comes from: "66 pairs of 12 categories ×
	// 5 batches".
	Why() string
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
	streamClasses  = iota + 1 // order of the classes in an epoch
	streamExtras              // which classes an epoch visits once more
	streamImages              // order of the images of one class in an epoch
	streamRows                // order of all rows in an epoch
	streamPairs               // order of the pairs of categories in an epoch
	streamClusters            // division of the classes by confusion
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

// category is the classes of one category.
type category struct {
	id      int64
	classes []class
	images  int
}

// byCategory groups rows by category and label, in ascending order of both.
// Images without a category are one more, NoCategory, which comes first.
func byCategory(labels, categories []int64) []category {
	rows := map[int64][]int{}
	for row, id := range categories {
		rows[id] = append(rows[id], row)
	}
	var found []category
	for id, rows := range rows {
		of := make([]int64, len(rows))
		for i, row := range rows {
			of[i] = labels[row]
		}
		c := category{id: id, classes: byClass(of), images: len(rows)}
		for _, class := range c.classes {
			for i, at := range class.rows {
				class.rows[i] = rows[at]
			}
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b category) int { return cmp.Compare(a.id, b.id) })
	return found
}

// needCategories refuses a dataset without categories, or with a number of
// them that is not the labels'.
func needCategories(name string, labels, categories []int64) error {
	if categories == nil {
		return fault.Inputf("sampler %s: the dataset has no categories, and batches are drawn from those; "+
			"choose a dataset that has (roadmap data stats shows it), or the sampler balanced or confusion", name)
	}
	if len(labels) != len(categories) {
		return fault.Inputf("sampler %s: %d labels and %d categories; give one a row of both", name, len(labels), len(categories))
	}
	return nil
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
