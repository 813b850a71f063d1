package data

import (
	"cmp"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/files"
)

func init() {
	register("list", func() Collection { return &List{OnError: Fail, MaxImage: defaultImage} })
}

// List is images named in CSV files (RFC 4180). The first line names the
// columns, in any order:
//
//	path        of the image
//	label       the class: any text (class_id, class, item_id and others do as well)
//	category    a coarser class
//	split       train, or validation (val, test), query, gallery: for one file with all of it
//	is_query    true or false: whether a test image is searched with,
//	is_gallery  and whether it is searched; without both columns it is both
//	sequence    a query never meets the images of its own sequence
//	x_1, y_1, x_2, y_2  the part of the picture that is the image: left, upper, right, lower edge in pixels
//
// Every further column is a level; row, class and columns without a name are
// passed over. So the table of open-metric-learning is a list, and so is the
// CSV file that embed writes. A file without such a line has two columns, path
// and label in either order, told apart by which names files, or else by how
// often values repeat.
//
// Paths are relative to Root, a folder or a zip archive, or, if that is not
// set, to the folder of the list; "a.zip:folder/b.png" is an image in an
// archive. The order is the list's. A row that says what an earlier one says is
// left out and counted; one that contradicts an earlier one is an error.
type List struct {
	Train    string       `yaml:"train"`     // CSV file of the training images
	Test     string       `yaml:"test"`      // CSV file of the test images; with a column split, one of the two is enough
	Root     string       `yaml:"root"`      // folder or zip archive that paths are relative to
	OnError  OnError      `yaml:"on_error"`  // broken images: fail or skip
	MaxImage config.Bytes `yaml:"max_image"` // memory to decode and resize one image, such as 512MiB; 0: 1GiB
}

// The columns of a list with a meaning of their own.
const (
	columnCategory = "category"
	columnSplit    = "split"
	columnQuery    = "is_query"
	columnGallery  = "is_gallery"
	columnSequence = "sequence"
)

var boxColumns = []string{"x_1", "y_1", "x_2", "y_2"}

// knownColumns are those that are no level; the last three are passed over.
var knownColumns = append([]string{"path", "label", columnCategory, columnSplit, columnQuery, columnGallery, columnSequence, "row", "class", ""}, boxColumns...)

// Validate checks the settings that need no file.
func (l *List) Validate() error {
	return cmp.Or(checkMaxImage(l.MaxImage), l.OnError.validate("list"))
}

func (l *List) at(root string) { l.Root = root }

// Splits implements Collection.
func (*List) Splits() []string { return []string{Train, Test, Query, Gallery} }

// Open implements Collection. That the images exist is seen when they are
// read, or with OnError skip.
func (l *List) Open(split string) (*Dataset, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit("list", split, l.Splits()); err != nil {
		return nil, err
	}
	if l.Train == "" && l.Test == "" {
		return nil, fault.Inputf("list: no file is given; set train or test to a CSV file of path,label")
	}
	read := &listReader{archives: map[string]*tree{}, most: imageLimit(l.MaxImage)}
	for _, part := range []struct{ split, file string }{{Train, l.Train}, {Test, l.Test}} {
		if part.file == "" || part.split == Test && l.Test == l.Train {
			continue
		}
		if err := read.file(part.file, l.Root, part.split); err != nil {
			return nil, errors.Join(err, read.close())
		}
	}
	missing := split != All && !slices.ContainsFunc(read.all, func(p placed) bool { return selects(split, p.split, p.Role) })
	if key := map[bool]string{true: Train, false: Test}[split == Train]; missing {
		err := fault.Inputf("list: no file is given for split %s, and none has images of it in a column split; set %s to a CSV file of path,label", split, key)
		return nil, errors.Join(err, read.close())
	}
	d, err := finish("list", split, read.all, l.OnError, read.trees()...)
	if err != nil {
		return nil, err
	}
	d.Further = read.further
	for _, s := range read.repeated {
		if selects(split, s.split, s.Role) {
			d.Skipped = append(d.Skipped, Broken{ID: -1, Path: s.Path, Err: s.why})
		}
	}
	return d, nil
}

// listReader collects the images of one or two lists.
type listReader struct {
	all      []placed
	further  []string // names of the further levels
	repeated []repeat
	archives map[string]*tree // by path
	most     int64            // bytes that a picture may take
}

// repeat is a row that says again what another one has said.
type repeat struct {
	placed
	why error
}

func (r *listReader) trees() []*tree {
	var trees []*tree
	for _, t := range r.archives {
		trees = append(trees, t)
	}
	return trees
}

func (r *listReader) close() error {
	var errs []error
	for _, t := range r.archives {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// listBytes bounds the file of a list; the largest published one has 10 MB.
const listBytes = 256 << 20

// file reads one list. Its images are of a split where it has no column that
// says so.
func (r *listReader) file(name, root, split string) error {
	content, err := files.Read(name, listBytes)
	if err != nil {
		return fault.Inputf("list: %w; give a CSV file of path,label", err)
	}
	at := listRoot{dir: root, archives: r.archives, most: r.most}
	if root == "" {
		at.dir = filepath.Dir(name)
	} else if info, err := os.Stat(root); err == nil && !info.IsDir() {
		if at.inside, err = at.archive(root); err != nil {
			return fault.Inputf("list: root: %w", err)
		}
	} else if err != nil {
		return fault.Inputf("list: root: %w; give a folder or a zip archive", err)
	}
	begin := len(r.all)
	if err := r.parse(content, &at, split); err != nil {
		return fault.Inputf("%s:%w", name, err)
	}
	if len(r.all) == begin {
		return fault.Inputf("%s: the list names no image; give lines of path,label", name)
	}
	return nil
}

// parse reads the content of a list. Errors begin with the line.
func (r *listReader) parse(content []byte, at *listRoot, split string) error {
	t, err := parseTable(content, at.exists)
	if err != nil {
		return err
	}
	columns, further := map[string]int{}, []string(nil)
	for i, name := range t.columns {
		switch {
		case i == t.path || i == t.label:
		case slices.Contains(knownColumns, name):
			columns[name] = i
		case !strings.HasPrefix(name, "unnamed:"): // an index that pandas wrote
			columns[name], further = i, append(further, name)
		}
	}
	if len(r.all) == 0 {
		r.further = further
	} else {
		r.keep(further)
	}
	seen := map[string]int{} // line of an image
	for _, row := range t.rows {
		p, err := at.item(t, row, columns, split)
		if err != nil {
			return fmt.Errorf("%d: %w", row.line, err)
		}
		for _, level := range r.further {
			p.Further = append(p.Further, row.cells[columns[level]])
		}
		key := fmt.Sprint(p.Path, "\x00", p.Box, p.split, p.Role)
		if before, double := seen[key]; double {
			other := r.all[before]
			if other.Class != p.Class || other.Category != p.Category {
				return fmt.Errorf("%d: %s has the label %q here, and %q in an earlier line; drop one of the two", row.line, p.Path, p.Class, other.Class)
			}
			r.repeated = append(r.repeated, repeat{p, fmt.Errorf("listed again in line %d", row.line)})
			continue
		}
		seen[key] = len(r.all)
		p.ID = len(r.all)
		r.all = append(r.all, p)
	}
	return nil
}

// keep drops the levels that the second of two lists does not have.
func (r *listReader) keep(further []string) {
	var left []int
	for i, name := range r.further {
		if slices.Contains(further, name) {
			left = append(left, i)
		}
	}
	pick := func(of []string) []string {
		var picked []string
		for _, i := range left {
			picked = append(picked, of[i])
		}
		return picked
	}
	for i := range r.all {
		r.all[i].Further = pick(r.all[i].Further)
	}
	r.further = pick(r.further)
}

// listRoot is what the paths of a list are relative to.
type listRoot struct {
	dir      string
	inside   *tree // the archive, where the root is one
	archives map[string]*tree
	most     int64 // bytes that a picture may take
	names    namesByFold
}

// archive opens a zip archive once.
func (l *listRoot) archive(name string) (*tree, error) {
	if t, open := l.archives[name]; open {
		return t, nil
	}
	t, err := openTree(name)
	if err != nil {
		return nil, err
	}
	t.most = l.most
	l.archives[name] = t
	return t, nil
}

// exists says whether there is a file of that path.
func (l *listRoot) exists(name string) bool {
	_, source, err := l.source(name)
	if err != nil {
		return false
	}
	switch s := source.(type) {
	case imageFile:
		info, err := os.Stat(s.path)
		return err == nil && !info.IsDir()
	case file:
		info, err := fs.Stat(s.tree, s.entry)
		return err == nil && !info.IsDir()
	}
	return false
}

// zipMark divides the path of an archive from that of an entry.
const zipMark = ".zip:"

// source finds an image by its path in the list, and says what people call it.
func (l *listRoot) source(name string) (shown string, s Source, err error) {
	switch i := strings.Index(strings.ToLower(name), zipMark); {
	case i >= 0 && l.inside == nil:
		archive := name[:i+len(zipMark)-1]
		if !filepath.IsAbs(archive) {
			if archive, err = l.below(archive); err != nil {
				return "", nil, err
			}
		}
		t, err := l.archive(archive)
		if err != nil {
			return "", nil, err
		}
		entry, err := within(".", name[i+len(zipMark):])
		return t.path(entry), file{t, entry}, err
	case l.inside != nil:
		entry, err := within(".", name)
		return l.inside.path(entry), file{l.inside, entry}, err
	case filepath.IsAbs(name):
		return name, imageFile{name, l.most, &l.names}, nil
	}
	full, err := l.below(name)
	return full, imageFile{full, l.most, &l.names}, err
}

// below is a relative path below the root.
func (l *listRoot) below(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", fmt.Errorf("the path %q leads out of %s; set root to a folder above all images, or give the whole path from /", name, l.dir)
	}
	return filepath.Join(l.dir, filepath.FromSlash(name)), nil
}

// item is the image of one row.
func (l *listRoot) item(t *table, row tableRow, columns map[string]int, split string) (placed, error) {
	cell := func(name string) string {
		if i, ok := columns[name]; ok {
			return empty(row.cells[i])
		}
		return ""
	}
	name, label := row.cells[t.path], row.cells[t.label]
	if name == "" || label == "" {
		return placed{}, fmt.Errorf("path %q, label %q; neither may be empty", name, label)
	}
	shown, source, err := l.source(name)
	if err != nil {
		return placed{}, err
	}
	p := placed{Item{Path: shown, Class: label, Category: cell(columnCategory), Group: cell(columnSequence), Source: source}, split}
	if p.Box, err = box(cell); err != nil {
		return placed{}, err
	}
	if err := p.place(cell(columnSplit)); err != nil {
		return placed{}, err
	}
	_, hasQuery := columns[columnQuery]
	_, hasGallery := columns[columnGallery]
	if p.split == Train || !hasQuery && !hasGallery {
		return p, nil
	}
	query, e1 := truth(columnQuery, cell(columnQuery), !hasQuery)
	gallery, e2 := truth(columnGallery, cell(columnGallery), !hasGallery)
	switch {
	case e1 != nil || e2 != nil:
		return placed{}, errors.Join(e1, e2)
	case !query && !gallery:
		return placed{}, errors.New("a test image is neither query nor in the gallery; set one of them, or drop the row")
	case !query:
		p.Role = GalleryOnly
	case !gallery:
		p.Role = QueryOnly
	}
	return p, nil
}

// place sets the split, and perhaps the role, that a column says.
func (p *placed) place(split string) error {
	switch strings.ToLower(split) {
	case "":
	case "train", "training":
		p.split = Train
	case "test", "validation", "valid", "val":
		p.split = Test
	case "query":
		p.split, p.Role = Test, QueryOnly
	case "gallery":
		p.split, p.Role = Test, GalleryOnly
	default:
		return fmt.Errorf("the split %q is none of train, validation (or val, test), query and gallery", split)
	}
	return nil
}

// empty is a cell, without what pandas writes for a missing value.
func empty(cell string) string {
	switch cell = strings.TrimSpace(cell); strings.ToLower(cell) {
	case "nan", "none", "null", "<na>":
		return ""
	}
	return cell
}

// truth reads a cell of yes or no.
func truth(column, cell string, missing bool) (bool, error) {
	switch strings.ToLower(cell) {
	case "":
		return missing, nil
	case "true", "1", "1.0", "yes", "t":
		return true, nil
	case "false", "0", "0.0", "no", "f":
		return false, nil
	}
	return false, fmt.Errorf("%s is %q; give true or false", column, cell)
}

// box reads the four edges, all or none of which are given.
func box(cell func(string) string) (image.Rectangle, error) {
	var edges [4]float64
	given := 0
	for i, name := range boxColumns {
		text := cell(name)
		if text == "" {
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(x) {
			return image.Rectangle{}, fmt.Errorf("%s is %q, no number of pixels", name, text)
		}
		edges[i] = x
		given++
	}
	switch given {
	case 0:
		return image.Rectangle{}, nil
	case len(edges):
		return rectangle(edges)
	}
	return image.Rectangle{}, fmt.Errorf("%d of the 4 edges %s of a box are given; give all or none", given, strings.Join(boxColumns, ", "))
}

// imageFile is an image in a file of its own.
type imageFile struct {
	path  string
	most  int64 // bytes that the picture may take
	names *namesByFold
}

// Image implements Source. The error does not repeat the path.
func (f imageFile) Image() (image.Image, error) { return f.encoded().image() }

func (f imageFile) use(more func(width, height int) int64, then func(image.Image) error) error {
	return f.encoded().use(more, then)
}

func (f imageFile) encoded() encoded {
	return encoded{func() (fs.File, error) {
		file, _, err := files.Open(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			if near := f.names.near(f.path); near != "" {
				return nil, fmt.Errorf("%w; there is %s, whose name differs in case", withoutPath(err), near)
			}
		}
		return file, err
	}, f.most}
}

// namesByFold finds files whose names differ from those asked for in nothing
// but upper and lower case. Each folder is read once.
type namesByFold struct {
	mu      sync.Mutex
	folders map[string]map[string]string
}

// near is the name of such a file, or "".
func (n *namesByFold) near(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	dir, base := filepath.Split(name)
	names, known := n.folders[dir]
	if !known {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return ""
		}
		names = map[string]string{}
		for _, e := range entries {
			names[strings.ToLower(e.Name())] = e.Name()
		}
		if n.folders == nil {
			n.folders = map[string]map[string]string{}
		}
		n.folders[dir] = names
	}
	if found := names[strings.ToLower(base)]; found != "" && found != base {
		return path.Join(filepath.ToSlash(dir), found)
	}
	return ""
}
