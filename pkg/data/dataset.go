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
	"image/draw"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// Dataset is one split of a collection of images, in a fixed order, with what
// an evaluation on it has to know.
type Dataset struct {
	Name    string         // of the collection: "omniglot"
	Split   string         // "train", "test" or "all"; "query", "gallery" or another test set where the collection has them
	Items   []Item         // in the collection's order
	Classes []string       // names of the classes of this split, sorted; Classes[item.Label] == item.Class
	Further []string       // names of the levels in every Item.Further
	Skipped []Broken       // images left out: broken ones under on_error: skip, rows listed twice; in the collection's order
	Others  map[string]int // files of the collection's folders that are no images by their names, by extension in lower case
	Empty   []string       // folders of classes that hold no image

	Protocol    string   // how it is evaluated, as eval's --protocol: "", every query against the gallery; "vehicleid"; "revisited"
	GroundTruth string   // file of judgements, for the protocol revisited
	Official    []Counts // what the dataset is said to hold, any one of them; nil: nothing is said

	closers []io.Closer
}

// Counts are the numbers that a dataset's authors give for a split; 0: none.
type Counts struct {
	Images     int    `json:"images"`
	Classes    int    `json:"classes,omitempty"`
	Categories int    `json:"categories,omitempty"`
	Note       string `json:"note,omitempty"` // where sources disagree: which one this is
}

// Role is what an image of a test set is used for.
type Role uint8

// The roles.
const (
	QueryAndGallery Role = iota // it is searched with, and found by others
	QueryOnly
	GalleryOnly
)

// Item is one image of a dataset.
type Item struct {
	ID       int             // place in the whole collection: the same in every split, so it names the image
	Path     string          // of the file; of an entry in an archive: "images.zip:folder/image.png"
	Class    string          // what must be found again: two images are relevant to each other if it is equal
	Category string          // coarser than the class; "" where the image has none
	Further  []string        // further levels, as Dataset.Further names them
	Label    int64           // index of Class in the dataset's Classes
	Role     Role            // in a test set
	Group    string          // a query never meets images of its own group (a camera's, a film's): they are neither right nor wrong; "": no such images
	Box      image.Rectangle // part of the picture that is the image, in pixels; empty: all of it
	Source   Source          // where the picture comes from
}

// Source is where the pixels of one image come from. It is safe for concurrent
// use, and gives the same image every time.
type Source interface {
	Image() (image.Image, error)
}

// Image decodes the image and cuts out its box. The error names its path and
// says what to do.
func (it *Item) Image() (image.Image, error) {
	img, err := it.Source.Image()
	if err == nil && !it.Box.Empty() {
		img, err = crop(img, it.Box)
	}
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

// use decodes the image for f, which may need more memory besides, and cuts out
// its box; see bounded.
func (it *Item) use(more func(width, height int) int64, f func(image.Image) error) error {
	return use(it.Source, more, func(img image.Image) (err error) {
		if !it.Box.Empty() {
			if img, err = crop(img, it.Box); err != nil {
				return err
			}
		}
		return f(img)
	})
}

// crop is the part of a picture in a box, which is counted from the picture's
// upper left corner; what of the box lies outside is left out.
func crop(img image.Image, box image.Rectangle) (image.Image, error) {
	part := box.Add(img.Bounds().Min).Intersect(img.Bounds())
	if part.Empty() {
		return nil, fmt.Errorf("the box %v lies outside the picture of %d × %d pixels", box, img.Bounds().Dx(), img.Bounds().Dy())
	}
	if sub, ok := img.(interface {
		SubImage(image.Rectangle) image.Image
	}); ok {
		return sub.SubImage(part), nil
	}
	copied := image.NewRGBA(image.Rectangle{Max: part.Size()})
	draw.Draw(copied, copied.Rect, img, part.Min, draw.Src)
	return copied, nil
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
	Name   string   // "class", "category", or one of Dataset.Further
	Labels []int64  // of every image: an index into Names
	Names  []string // sorted
}

// Categories returns the number of the category of every image, in order: 0
// and up in the order of their sorted names, -1 for an image without one. It
// is nil where no image has a category.
func (d *Dataset) Categories() []int64 {
	return groups(d.Items, func(it *Item) string { return it.Category })
}

// Groups returns the number of every image's Group, likewise: a query never
// meets images of the same number, unless it is -1.
func (d *Dataset) Groups() []int64 {
	return groups(d.Items, func(it *Item) string { return it.Group })
}

// groups numbers a grouping that some images may be without.
func groups(items []Item, group func(*Item) string) []int64 {
	names, numbers := index(items, group)
	if len(names) == 0 || names[0] != "" {
		return numbers
	}
	if len(names) == 1 {
		return nil
	}
	for i := range numbers {
		numbers[i]-- // "" is the first of the sorted names
	}
	return numbers
}

// Queries returns the rows that are searched with, and Gallery those that are
// searched, both in order. Where both are all rows, every image is a query
// against all others.
func (d *Dataset) Queries() []int { return d.rows(GalleryOnly) }

// Gallery returns the rows that are searched.
func (d *Dataset) Gallery() []int { return d.rows(QueryOnly) }

// rows lists those of any role but one.
func (d *Dataset) rows(but Role) []int {
	var rows []int
	for i := range d.Items {
		if d.Items[i].Role != but {
			rows = append(rows, i)
		}
	}
	return rows
}

// Levels returns the groupings that every image is in, from fine to coarse:
// the classes, the categories and the further ones.
func (d *Dataset) Levels() []Level {
	levels := []Level{{Name: "class", Labels: d.Labels(), Names: slices.Clone(d.Classes)}}
	add := func(name string, group func(*Item) string) {
		names, labels := index(d.Items, group)
		if len(names) > 0 && names[0] != "" {
			levels = append(levels, Level{Name: name, Labels: labels, Names: names})
		}
	}
	add("category", func(it *Item) string { return it.Category })
	for i, name := range d.Further {
		add(name, func(it *Item) string { return it.Further[i] })
	}
	return levels
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
	Queries    int     `json:"queries,omitempty"` // where queries and gallery differ
	Gallery    int     `json:"gallery,omitempty"` // likewise
	Classes    int     `json:"classes"`
	Categories int     `json:"categories"`        // 0 where images have none
	Without    int     `json:"without,omitempty"` // images without a category, where others have one
	Min        int     `json:"min"`               // images of the smallest class
	Median     float64 `json:"median"`            // images of the class in the middle; the mean of two for an even number
	Max        int     `json:"max"`               // images of the largest class
	Lone       int     `json:"lone"`              // classes of one image: without a positive
	Skipped    int     `json:"skipped"`           // images left out
}

// Bin is the classes of between From and To images.
type Bin struct {
	From    int `json:"from"`
	To      int `json:"to"`
	Classes int `json:"classes"`
}

// Stats counts the dataset. It opens no image.
func (d *Dataset) Stats() Stats {
	s := Stats{Name: d.Name, Split: d.Split, Images: len(d.Items), Classes: len(d.Classes), Skipped: len(d.Skipped)}
	if q, g := len(d.Queries()), len(d.Gallery()); q < len(d.Items) || g < len(d.Items) {
		s.Queries, s.Gallery = q, g
	}
	for _, category := range d.Categories() {
		s.Categories = max(s.Categories, int(category)+1)
		if category < 0 {
			s.Without++
		}
	}
	sizes := d.sizes()
	if len(sizes) == 0 {
		return s
	}
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

// sizes is the number of images of every class, ascending.
func (d *Dataset) sizes() []int {
	sizes := make([]int, len(d.Classes))
	for i := range d.Items {
		sizes[d.Items[i].Label]++
	}
	slices.Sort(sizes)
	return sizes
}

// fineBins is the number of class sizes up to which a histogram has one bin a
// size.
const fineBins = 16

// Histogram counts the classes by their number of images: one bin a number
// where there are few, otherwise bins twice as wide as the one before: 1, 2 to
// 3, 4 to 7. Empty bins are left out.
func (d *Dataset) Histogram() []Bin {
	sizes := d.sizes()
	var bins []Bin
	fine := len(sizes) > 0 && sizes[len(sizes)-1]-sizes[0] < fineBins
	for _, n := range sizes {
		bin := Bin{From: n, To: n}
		if !fine {
			bin.From = 1 << (bits.Len(uint(n)) - 1)
			bin.To = 2*bin.From - 1
		}
		if last := len(bins) - 1; last < 0 || bins[last].From != bin.From {
			bins = append(bins, bin)
		}
		bins[len(bins)-1].Classes++
	}
	return bins
}

// String is the dataset in a line.
func (s Stats) String() string {
	return fmt.Sprintf("%s/%s: %d images, %d classes of %d to %d (median %g), %d categories, classes of one image: %d, images skipped: %d",
		s.Name, s.Split, s.Images, s.Classes, s.Min, s.Max, s.Median, s.Categories, s.Lone, s.Skipped)
}

// Miscounted says what numbers differ from the official ones; nil where they
// agree with one of the counts, or nothing is said. Images that were left out
// count: they are there.
func (d *Dataset) Miscounted() []string {
	s := d.Stats()
	var least []string
	for _, c := range d.Official {
		var wrong []string
		for _, n := range []struct {
			what        string
			found, said int
		}{{"images", s.Images + s.Skipped, c.Images}, {"classes", s.Classes, c.Classes}, {"categories", s.Categories, c.Categories}} {
			if n.said > 0 && n.found != n.said {
				wrong = append(wrong, fmt.Sprintf("%s: %d, expected %d", n.what, n.found, n.said))
			}
		}
		if len(wrong) == 0 {
			return nil
		}
		if c.Note != "" {
			wrong[len(wrong)-1] += " (" + c.Note + ")"
		}
		if least == nil || len(wrong) < len(least) {
			least = wrong
		}
	}
	return least
}
