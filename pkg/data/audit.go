package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"roadmap/pkg/fault"
)

// Audit is what a look at every image of a collection found.
type Audit struct {
	Splits      []SplitAudit `json:"splits"`
	Checked     int          `json:"checked"`      // images that were read
	Repeated    []Fault      `json:"repeated"`     // rows of lists that say what an earlier one says
	Missing     []Fault      `json:"missing"`      // files that are not there
	Broken      []Fault      `json:"broken"`       // files that cannot be decoded, boxes outside their picture
	Duplicates  []Duplicate  `json:"duplicates"`   // pictures that are there more than once
	LeakedPaths []string     `json:"leaked_paths"` // images that both train and test
	Leaked      int          `json:"leaked"`       // pictures among Duplicates that both train and test
	Conflicts   int          `json:"conflicts"`    // pictures among Duplicates that have several classes
	Shared      int          `json:"shared"`       // classes that both train and test, as a closed set has them
	Alike       [][]string   `json:"alike"`        // classes whose names differ in upper and lower case alone

	all    *Dataset
	split  map[int][]string // splits of an image, by id
	bad    map[int]bool     // images that are missing or broken, by id
	copies map[int]int      // group of Duplicates, by id
}

// SplitAudit is the numbers of a split.
type SplitAudit struct {
	Stats
	Official   []Counts `json:"official,omitempty"`   // what it is said to hold, any of them
	Miscounted []string `json:"miscounted,omitempty"` // what differs from that
	Lone       []string `json:"lone_classes"`         // names of the classes of one image
}

// Fault is an image with what is wrong with it.
type Fault struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

// Duplicate is a picture that several images show, pixel for pixel.
type Duplicate struct {
	Paths   []string `json:"paths"`
	Classes []string `json:"classes"`
	Splits  []string `json:"splits"`
}

// NewAudit reads every image of a collection: all is its split All, parts its
// others, which may be none. The work is divided between workers (0: one a
// processor); progress, which may be nil, is told the number of images done,
// never twice at once. The error is the context's.
func NewAudit(ctx context.Context, all *Dataset, parts []*Dataset, workers int, progress func(done int)) (*Audit, error) {
	a := &Audit{all: all, split: map[int][]string{}, bad: map[int]bool{}, copies: map[int]int{}, Checked: all.Len(),
		Repeated: []Fault{}, Missing: []Fault{}, Broken: []Fault{}, Duplicates: []Duplicate{}, LeakedPaths: []string{}, Alike: [][]string{}}
	for _, d := range append(slices.Clone(parts), all) {
		a.Splits = append(a.Splits, auditSplit(d))
		for i := range d.Items {
			if d != all {
				a.split[d.Items[i].ID] = append(a.split[d.Items[i].ID], d.Split)
			}
		}
	}
	if len(parts) == 0 {
		a.Splits = a.Splits[:1]
	}
	prints, errs, err := hashes(ctx, all, workers, progress)
	if err != nil {
		return nil, err
	}
	a.faults(errs)
	a.duplicates(prints)
	a.leaks()
	a.alike()
	return a, nil
}

func auditSplit(d *Dataset) SplitAudit {
	s := SplitAudit{Stats: d.Stats(), Official: d.Official, Miscounted: d.Miscounted(), Lone: []string{}}
	sizes := make([]int, len(d.Classes))
	for i := range d.Items {
		sizes[d.Items[i].Label]++
	}
	for label, n := range sizes {
		if n == 1 {
			s.Lone = append(s.Lone, d.Classes[label])
		}
	}
	return s
}

// pixelHash tells pictures apart: equal ones have equal pixels and boxes.
type pixelHash [sha256.Size]byte

// hashes reads every picture.
func hashes(ctx context.Context, d *Dataset, workers int, progress func(done int)) ([]pixelHash, []error, error) {
	prints, errs := make([]pixelHash, d.Len()), make([]error, d.Len())
	var mu sync.Mutex
	done := 0
	err := parallel(ctx, workers, d.Len(), func(i int) {
		it := &d.Items[i]
		errs[i] = it.use(nil, func(img image.Image) error {
			prints[i] = hashPixels(img)
			return nil
		})
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(done)
		}
	})
	return prints, errs, err
}

// hashPixels is a hash of an image's size and pixels.
func hashPixels(img image.Image) pixelHash {
	hash := sha256.New()
	b := img.Bounds()
	row := binary.LittleEndian.AppendUint64(nil, uint64(b.Dx()))
	hash.Write(binary.LittleEndian.AppendUint64(row, uint64(b.Dy())))
	for y := b.Min.Y; y < b.Max.Y; y++ {
		row = row[:0]
		for x := b.Min.X; x < b.Max.X; x++ {
			c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
			row = append(row, c.R, c.G, c.B, c.A)
		}
		hash.Write(row)
	}
	return pixelHash(hash.Sum(nil))
}

// faults sorts out what cannot be used.
func (a *Audit) faults(errs []error) {
	for _, b := range a.all.Skipped {
		if b.ID < 0 { // a row of a list, whose image is there
			a.Repeated = append(a.Repeated, Fault{b.Path, b.Err.Error()})
		} else {
			a.fault(b.Path, b.Err)
		}
	}
	for i, err := range errs {
		if err != nil {
			a.bad[a.all.Items[i].ID] = true
			a.fault(a.all.Items[i].Path, err)
		}
	}
}

func (a *Audit) fault(path string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		a.Missing = append(a.Missing, Fault{path, err.Error()})
		return
	}
	a.Broken = append(a.Broken, Fault{path, err.Error()})
}

// duplicates groups the images by their pictures.
func (a *Audit) duplicates(prints []pixelHash) {
	rows := map[pixelHash][]int{}
	for i, p := range prints {
		if !a.bad[a.all.Items[i].ID] {
			rows[p] = append(rows[p], i)
		}
	}
	for i, p := range prints {
		of := rows[p]
		if len(of) < 2 || of[0] != i || a.bad[a.all.Items[i].ID] {
			continue
		}
		var d Duplicate
		for _, row := range of {
			it := &a.all.Items[row]
			a.copies[it.ID] = len(a.Duplicates)
			d.Paths = append(d.Paths, it.Path)
			d.Classes = append(d.Classes, it.Class)
			d.Splits = append(d.Splits, a.split[it.ID]...)
		}
		d.Classes, d.Splits = distinct(d.Classes), distinct(d.Splits)
		if len(d.Classes) > 1 {
			a.Conflicts++
		}
		if leaks(d.Splits) {
			a.Leaked++
		}
		a.Duplicates = append(a.Duplicates, d)
	}
}

func distinct(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// leaks says whether a picture of these splits is both trained on and tested.
func leaks(splits []string) bool {
	return slices.Contains(splits, Train) && slices.ContainsFunc(splits, func(s string) bool { return s != Train })
}

// leaks finds files that are in training and test.
func (a *Audit) leaks() {
	files, classes := map[string][]string{}, map[string][]string{}
	for i := range a.all.Items {
		it := &a.all.Items[i]
		key := fmt.Sprint(it.Path, it.Box)
		before := leaks(files[key])
		files[key] = append(files[key], a.split[it.ID]...)
		if !before && leaks(files[key]) {
			a.LeakedPaths = append(a.LeakedPaths, it.Path)
		}
		if shared := leaks(classes[it.Class]); !shared {
			classes[it.Class] = distinct(append(classes[it.Class], a.split[it.ID]...))
		}
	}
	for _, splits := range classes {
		if leaks(splits) {
			a.Shared++
		}
	}
}

// alike finds classes that a person would take for one.
func (a *Audit) alike() {
	names := map[string][]string{}
	for _, class := range a.all.Classes {
		folded := strings.Map(unicode.ToLower, class)
		names[folded] = append(names[folded], class)
	}
	for _, of := range names {
		if len(of) > 1 {
			a.Alike = append(a.Alike, of)
		}
	}
	slices.SortFunc(a.Alike, func(x, y []string) int { return cmp.Compare(x[0], y[0]) })
}

// Err says, as an error of the input, what no training or evaluation should go
// on with: missing and broken images, leaks and wrong numbers; nil for none.
func (a *Audit) Err() error {
	var found []string
	add := func(n int, what string) {
		if n > 0 {
			found = append(found, fmt.Sprintf("%s: %d", what, n))
		}
	}
	add(len(a.Missing), "missing images")
	add(len(a.Broken), "broken images")
	add(len(a.LeakedPaths), "images that both train and test")
	add(a.Leaked, "pictures that both train and test")
	for _, s := range a.Splits {
		if len(s.Miscounted) > 0 {
			found = append(found, fmt.Sprintf("wrong counts of %s: %s", s.Split, strings.Join(s.Miscounted, ", ")))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fault.Inputf("%s (of %d images)", strings.Join(found, "; "), a.Checked)
}

// clean is the rows of All that a clean list keeps: no missing, broken or
// second image; of a picture that trains and tests the test's; none of a
// picture with several classes; no training class of one image.
func (a *Audit) clean() []int {
	type place struct {
		group int
		split string
		role  Role
	}
	tested := map[int]bool{} // groups of duplicates
	for id, group := range a.copies {
		if slices.ContainsFunc(a.split[id], func(s string) bool { return s != Train }) {
			tested[group] = true
		}
	}
	taken := map[place]bool{}
	var rows []int
	train := map[string]int{} // images of training classes
	for row := range a.all.Items {
		it := &a.all.Items[row]
		group, copied := a.copies[it.ID]
		at := place{group, a.listed(it), it.Role}
		switch {
		case a.bad[it.ID],
			copied && len(a.Duplicates[group].Classes) > 1,
			copied && at.split == Train && tested[group],
			copied && taken[at]:
			continue
		}
		if copied {
			taken[at] = true
		}
		if at.split == Train {
			train[it.Class]++
		}
		rows = append(rows, row)
	}
	return slices.DeleteFunc(rows, func(row int) bool {
		it := &a.all.Items[row]
		return a.listed(it) == Train && train[it.Class] == 1
	})
}

// listed is the split of an image in a list: train or validation.
func (a *Audit) listed(it *Item) string {
	if splits := a.split[it.ID]; slices.Contains(splits, Train) {
		return Train
	}
	return "validation"
}

// WriteList writes the images that are fit for use as a list, see List, and
// returns how many they are. Images that are no files, as glyphs' are not,
// cannot be listed.
func (a *Audit) WriteList(w io.Writer) (int, error) {
	rows := a.clean()
	if len(rows) == 0 {
		return 0, fault.Inputf("%s: no image is fit for use, so there is nothing to list", a.all.Name)
	}
	splits := make([]string, len(rows))
	for i, row := range rows {
		splits[i] = a.listed(&a.all.Items[row])
	}
	return len(rows), a.all.writeList(w, rows, func(i int) string { return splits[i] })
}

// writeList writes rows of the dataset as a list; split says that of the i-th.
// Columns that no image needs are left out.
func (d *Dataset) writeList(w io.Writer, rows []int, split func(i int) string) error {
	any := func(has func(it *Item) bool) bool {
		return slices.ContainsFunc(rows, func(row int) bool { return has(&d.Items[row]) })
	}
	type column struct {
		name string
		cell func(it *Item) string
	}
	roles := any(func(it *Item) bool { return it.Role != QueryAndGallery })
	columns := []column{}
	if roles {
		columns = append(columns,
			column{columnQuery, func(it *Item) string { return strconv.FormatBool(it.Role != GalleryOnly) }},
			column{columnGallery, func(it *Item) string { return strconv.FormatBool(it.Role != QueryOnly) }})
	}
	if any(func(it *Item) bool { return it.Category != "" }) {
		columns = append(columns, column{columnCategory, func(it *Item) string { return it.Category }})
	}
	if any(func(it *Item) bool { return it.Group != "" }) {
		columns = append(columns, column{columnSequence, func(it *Item) string { return it.Group }})
	}
	if any(func(it *Item) bool { return !it.Box.Empty() }) {
		for i, name := range boxColumns {
			columns = append(columns, column{name, func(it *Item) string {
				if it.Box.Empty() {
					return ""
				}
				return strconv.Itoa([]int{it.Box.Min.X, it.Box.Min.Y, it.Box.Max.X, it.Box.Max.Y}[i])
			}})
		}
	}
	for i, name := range d.Further {
		columns = append(columns, column{name, func(it *Item) string { return it.Further[i] }})
	}
	header := []string{"label", "path", columnSplit}
	for _, c := range columns {
		header = append(header, c.name)
	}
	table := csv.NewWriter(w)
	if err := table.Write(header); err != nil {
		return err
	}
	for i, row := range rows {
		it := &d.Items[row]
		name, err := listedPath(it)
		if err != nil {
			return err
		}
		record := []string{it.Class, name, split(i)}
		for _, c := range columns {
			record = append(record, c.cell(it))
		}
		if err := table.Write(record); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}

// listedPath is a path by which a list finds the image from anywhere.
func listedPath(it *Item) (string, error) {
	switch it.Source.(type) {
	case imageFile, file:
		return filepath.Abs(it.Path)
	}
	return "", fault.Inputf("%s is in no file of its own, so no list can name it; write files with roadmap data make", it.Path)
}
