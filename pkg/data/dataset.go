// Package data turns folders, archives, lists and fonts into batches of
// pixels: datasets (what images there are, and of which class), transforms
// (what happens to an image before the network sees it) and a loader that
// prepares batches ahead on several goroutines and delivers them in order.
//
// Everything that comes out is a function of the files, the settings and the
// seed: never of the number of workers, the order of access or the clock.
package data

import (
	"cmp"
	"fmt"
	"image"
	"io"
	"maps"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// Dataset is one split of a collection of images, in a fixed order.
type Dataset struct {
	Name    string         // of the collection: "omniglot"
	Split   string         // "train", "test" or "all"
	Items   []Item         // in the collection's order
	Classes []string       // names of the classes of this split, sorted; Classes[item.Label] == item.Class
	Skipped []Broken       // images left out under on_error: skip, in the collection's order
	Others  map[string]int // files of the collection's folders that are no images by their names, by extension in lower case
	Empty   []string       // folders of classes that hold no image

	closers []io.Closer
}

// Item is one image of a dataset.
type Item struct {
	ID       int    // place in the whole collection: the same in every split, so it names the image
	Path     string // of the file; of an entry in an archive: "images.zip:folder/image.png"
	Class    string // what must be found again: two images are relevant to each other if it is equal
	Category string // coarser than the class; "" where the collection has none
	Label    int64  // index of Class in the dataset's Classes
	Source   Source // where the pixels come from
}

// Source is where the pixels of one image come from. It is safe for concurrent
// use, and gives the same image every time.
type Source interface {
	Image() (image.Image, error)
}

// Image decodes the image. The error names its path and says what to do.
func (it *Item) Image() (image.Image, error) {
	img, err := it.Source.Image()
	if err != nil {
		return nil, it.broken(err)
	}
	return img, nil
}

// broken is the error of an image that cannot be decoded.
func (it *Item) broken(err error) error {
	return fault.Inputf("%s: broken image: %w; replace or remove it, or leave broken images out with data.on_error=skip, in a recipe or behind --set", it.Path, err)
}

// PassedOver says in a line what of the collection's folders is not in it: files
// of other types than images, by type and number, and classes without an image;
// "" if there is nothing of the kind.
func (d *Dataset) PassedOver() string {
	var parts []string
	if len(d.Others) > 0 {
		var types []string
		for _, ext := range slices.Sorted(maps.Keys(d.Others)) {
			types = append(types, fmt.Sprintf("%d %s", d.Others[ext], cmp.Or(ext, "without an ending")))
		}
		parts = append(parts, "files that are neither PNG nor JPEG by their names: "+strings.Join(types, ", "))
	}
	if n := len(d.Empty); n > 0 {
		const few = 5
		names := strings.Join(d.Empty[:min(n, few)], ", ")
		if n > few {
			names += ", …"
		}
		parts = append(parts, fmt.Sprintf("classes without an image: %d (%s)", n, names))
	}
	return strings.Join(parts, "; ")
}

// Len is the number of images.
func (d *Dataset) Len() int { return len(d.Items) }

// Labels returns the label of every image, in order.
func (d *Dataset) Labels() []int64 {
	labels := make([]int64, len(d.Items))
	for i := range d.Items {
		labels[i] = d.Items[i].Label
	}
	return labels
}

// Level is one way to group the images of a dataset, fine or coarse.
type Level struct {
	Name   string   // "class", "category"
	Labels []int64  // of every image: an index into Names
	Names  []string // sorted
}

// Levels returns the groupings from fine to coarse: the classes, and the
// categories where every image has one.
func (d *Dataset) Levels() []Level {
	levels := []Level{{Name: "class", Labels: d.Labels(), Names: slices.Clone(d.Classes)}}
	if slices.ContainsFunc(d.Items, func(it Item) bool { return it.Category == "" }) {
		return levels
	}
	names, labels := index(d.Items, func(it *Item) string { return it.Category })
	return append(levels, Level{Name: "category", Labels: labels, Names: names})
}

// Close lets go of the archives that the images are read from. The dataset's
// images cannot be decoded afterwards.
func (d *Dataset) Close() error {
	var first error
	for _, c := range d.closers {
		if err := c.Close(); first == nil {
			first = err
		}
	}
	d.closers = nil
	return first
}

// relabel makes Classes and the labels from the classes of the items.
func (d *Dataset) relabel() {
	names, labels := index(d.Items, func(it *Item) string { return it.Class })
	d.Classes = names
	for i, label := range labels {
		d.Items[i].Label = label
	}
}

// index returns the sorted names of a grouping and every item's index in them.
func index(items []Item, group func(*Item) string) (names []string, labels []int64) {
	at := map[string]int64{}
	for i := range items {
		at[group(&items[i])] = 0
	}
	for name := range at {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		at[name] = int64(i)
	}
	labels = make([]int64, len(items))
	for i := range items {
		labels[i] = at[group(&items[i])]
	}
	return names, labels
}

// number gives the items of a whole collection their ids: their places after
// sorting by class, within a class in the order found.
func number(items []Item) {
	slices.SortStableFunc(items, func(a, b Item) int { return cmp.Compare(a.Class, b.Class) })
	for i := range items {
		items[i].ID = i
	}
}

// Stats are the counts that say whether a dataset is what one thinks it is.
type Stats struct {
	Name       string  `json:"name"`
	Split      string  `json:"split"`
	Images     int     `json:"images"`
	Classes    int     `json:"classes"`
	Categories int     `json:"categories"` // 0 where images have none
	Min        int     `json:"min"`        // images of the smallest class
	Median     float64 `json:"median"`     // images of the class in the middle; the mean of two for an even number
	Max        int     `json:"max"`        // images of the largest class
	Lone       int     `json:"lone"`       // classes of one image: without a positive
	Skipped    int     `json:"skipped"`    // broken images left out
}

// Stats counts the dataset. It opens no image.
func (d *Dataset) Stats() Stats {
	s := Stats{Name: d.Name, Split: d.Split, Images: len(d.Items), Classes: len(d.Classes), Skipped: len(d.Skipped)}
	if levels := d.Levels(); len(levels) > 1 {
		s.Categories = len(levels[1].Names)
	}
	sizes := make([]int, len(d.Classes))
	for i := range d.Items {
		sizes[d.Items[i].Label]++
	}
	if len(sizes) == 0 {
		return s
	}
	slices.Sort(sizes)
	half := len(sizes) / 2
	s.Min, s.Max, s.Median = sizes[0], sizes[len(sizes)-1], float64(sizes[half])
	if len(sizes)%2 == 0 {
		s.Median = float64(sizes[half-1]+sizes[half]) / 2
	}
	for _, n := range sizes {
		if n == 1 {
			s.Lone++
		}
	}
	return s
}

// String is the dataset in a line.
func (s Stats) String() string {
	return fmt.Sprintf("%s/%s: %d images, %d classes of %d to %d (median %g), %d categories, classes of one image: %d, images skipped: %d",
		s.Name, s.Split, s.Images, s.Classes, s.Min, s.Max, s.Median, s.Categories, s.Lone, s.Skipped)
}
