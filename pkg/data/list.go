package data

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/files"
	"roadmap/pkg/registry"
)

func init() {
	register("list", func() Collection { return &List{OnError: Fail, MaxImage: defaultImage} })
}

// List is images named in CSV files (RFC 4180), one file a split. The first
// line names the columns: path and label, and if wanted category; others are
// passed over, so the CSV file that embed writes is one. A file without such a
// line has the two columns path,label.
//
// A label may be any text; it is the class. Paths are relative to Root or, if
// that is not set, to the folder of the list. The order is the list's.
type List struct {
	Train    string       `yaml:"train"`     // CSV file of the training images
	Test     string       `yaml:"test"`      // CSV file of the test images
	Root     string       `yaml:"root"`      // folder that paths are relative to
	OnError  OnError      `yaml:"on_error"`  // broken images: fail or skip
	MaxImage config.Bytes `yaml:"max_image"` // memory to decode and resize one image, such as 512MiB; 0: 1GiB
}

// Validate checks the settings that need no file.
func (l *List) Validate() error {
	return cmp.Or(checkMaxImage(l.MaxImage), l.OnError.validate("list"))
}

func (l *List) at(root string) { l.Root = root }

// Open implements Collection. That the images exist is seen when they are
// read, or with OnError skip.
func (l *List) Open(split string) (*Dataset, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit("list", split); err != nil {
		return nil, err
	}
	var all []placed
	for _, part := range []struct{ split, file string }{{Train, l.Train}, {Test, l.Test}} {
		if part.file == "" {
			if part.split == split {
				return nil, fault.Inputf("list: no file is given for split %s; set %s to a CSV file of path,label", split, split)
			}
			continue
		}
		items, err := readList(part.file, l.Root)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			it.ID = len(all)
			it.Source = imageFile{it.Path, imageLimit(l.MaxImage)}
			all = append(all, placed{it, part.split})
		}
	}
	if len(all) == 0 {
		return nil, fault.Inputf("list: no file is given; set train or test to a CSV file of path,label")
	}
	return finish("list", split, all, l.OnError)
}

// listBytes bounds the file of a list; the largest published one has 10 MB.
const listBytes = 256 << 20

// readList reads one CSV file.
func readList(name, root string) ([]Item, error) {
	content, err := files.Read(name, listBytes)
	if err != nil {
		return nil, fault.Inputf("list: %w; give a CSV file of path,label", err)
	}
	if root == "" {
		root = filepath.Dir(name)
	}
	items, err := parseList(content, root)
	if err != nil {
		return nil, fault.Inputf("%s:%w", name, err)
	}
	if len(items) == 0 {
		return nil, fault.Inputf("%s: the list names no image; give lines of path,label", name)
	}
	return items, nil
}

// parseList reads the content of a list. Errors begin with the line.
func parseList(content []byte, root string) ([]Item, error) {
	if line, bad := files.NotUTF8(content); bad != "" {
		return nil, fmt.Errorf("%d: %s is not UTF-8 text; save the list as such (iconv -f latin1 -t utf8)", line, bad)
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	r.FieldsPerRecord = -1 // checked here, with better words
	columns := map[string]int{}
	width := 0
	var items []Item
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			var at *csv.ParseError
			if errors.As(err, &at) {
				return nil, fmt.Errorf("%d: %w; quote fields as RFC 4180 says", at.Line, at.Err)
			}
			return nil, fmt.Errorf("1: %w", err)
		}
		line, _ := r.FieldPos(0)
		if width == 0 {
			width = len(record)
			var named bool
			if columns, named, err = header(record); err != nil {
				return nil, fmt.Errorf("%d: %w", line, err)
			}
			if named {
				continue
			}
		}
		if len(record) != width {
			return nil, fmt.Errorf("%d: %d fields where the first line has %d; quote fields that contain commas", line, len(record), width)
		}
		it, err := listed(record, columns, root)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", line, err)
		}
		items = append(items, it)
	}
}

// header finds the columns in the first line, or takes path,label for granted
// if it names neither.
func header(record []string) (columns map[string]int, named bool, err error) {
	columns = map[string]int{}
	for i, name := range record {
		name = strings.ToLower(strings.TrimSpace(name))
		if _, double := columns[name]; double && slices.Contains(listColumns, name) {
			return nil, false, fmt.Errorf("the column %s is there twice", name)
		}
		columns[name] = i
	}
	_, path := columns["path"]
	_, label := columns["label"]
	switch {
	case path && label:
		return columns, true, nil
	case path || label:
		return nil, false, fmt.Errorf("the first line names %q; it must name path and label", record)
	case len(record) == 2:
		return map[string]int{"path": 0, "label": 1}, false, nil
	}
	hint := ""
	if near, ok := registry.Nearest("path", record); ok {
		hint = fmt.Sprintf(" (is %q the path?)", near)
	}
	return nil, false, fmt.Errorf("%d columns without a first line that names path and label%s", len(record), hint)
}

// listColumns are the columns with a meaning.
var listColumns = []string{"path", "label", "category"}

// listed is the item of one line.
func listed(record []string, columns map[string]int, root string) (Item, error) {
	path, label := record[columns["path"]], record[columns["label"]]
	if path == "" || label == "" {
		return Item{}, fmt.Errorf("path %q, label %q; neither may be empty", path, label)
	}
	it := Item{Path: path, Class: label}
	if !filepath.IsAbs(path) {
		it.Path = filepath.Join(root, filepath.FromSlash(path))
	}
	it.Source = imageFile{it.Path, imageLimit(0)}
	if i, ok := columns["category"]; ok {
		it.Category = record[i]
	}
	return it, nil
}

// imageFile is an image in a file of its own.
type imageFile struct {
	path string
	most int64 // bytes that the picture may take
}

// Image implements Source. The error does not repeat the path.
func (f imageFile) Image() (image.Image, error) { return f.encoded().image() }

func (f imageFile) use(more func(width, height int) int64, then func(image.Image) error) error {
	return f.encoded().use(more, then)
}

func (f imageFile) encoded() encoded {
	return encoded{func() (fs.File, error) {
		file, _, err := files.Open(f.path)
		return file, err
	}, f.most}
}
