package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"roadmap/pkg/files"
	"roadmap/pkg/registry"
)

// table is a list in CSV (RFC 4180), with its columns found.
type table struct {
	columns     []string // names; nil where the file has none
	path, label int      // columns of these
	rows        []tableRow
}

type tableRow struct {
	line  int
	cells []string
}

// Names that the two columns go by in lists of other programs. Of several the
// first here is meant.
var (
	pathNames  = []string{"path", "image_path", "img_path", "file_path", "filepath", "relative_im_path", "image_name", "filename", "file_name", "file", "image", "img"}
	labelNames = []string{"label", "class_id", "class", "label_id", "class_name", "target", "item_id", "identity", "pid", "vehicle_id", "id"}
)

// parseTable reads the content of a list. Its first line names the columns if
// it has a path and a label by one of their names. A file without such a line
// has two columns, in either order: paths are what exists, or else what is
// named like an image, or else what repeats less often. Errors begin with the
// line.
func parseTable(content []byte, exists func(path string) bool) (*table, error) {
	if line, bad := files.NotUTF8(content); bad != "" {
		return nil, fmt.Errorf("%d: %s is not UTF-8 text; save the list as such (iconv -f latin1 -t utf8)", line, bad)
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	r.FieldsPerRecord = -1 // checked here, with better words
	t := &table{}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			var at *csv.ParseError
			if errors.As(err, &at) {
				return nil, fmt.Errorf("%d: %w; quote fields as RFC 4180 says", at.Line, at.Err)
			}
			return nil, fmt.Errorf("1: %w", err)
		}
		line, _ := r.FieldPos(0)
		for _, cell := range record {
			if _, err := clean([]byte(cell)); err != nil {
				return nil, fmt.Errorf("%d: %w", line, err)
			}
		}
		if len(t.rows) > 0 && len(record) != len(t.rows[0].cells) {
			return nil, fmt.Errorf("%d: %d fields where the first line has %d; quote fields that contain commas", line, len(record), len(t.rows[0].cells))
		}
		t.rows = append(t.rows, tableRow{line, record})
	}
	if len(t.rows) == 0 {
		return t, nil
	}
	named, err := t.header()
	if err == nil && !named {
		err = t.guess(exists)
	}
	if err != nil {
		return nil, fmt.Errorf("%d: %w", t.rows[0].line, err)
	}
	if t.columns != nil {
		t.rows = t.rows[1:]
	}
	return t, nil
}

// header finds the columns by the names in the first line, if it has them.
func (t *table) header() (named bool, err error) {
	names := make([]string, len(t.rows[0].cells))
	for i, cell := range t.rows[0].cells {
		names[i] = strings.ToLower(strings.TrimSpace(cell))
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) && slices.Contains(knownColumns, name) {
			return false, fmt.Errorf("the column %s is there twice", name)
		}
	}
	find := func(known []string) int {
		for _, name := range known {
			if i := slices.Index(names, name); i >= 0 {
				return i
			}
		}
		return -1
	}
	t.path, t.label = find(pathNames), find(labelNames)
	switch {
	case t.path >= 0 && t.label >= 0:
		t.columns = names
		return true, nil
	case slices.Contains(names, "path") || slices.Contains(names, "label"):
		return false, fmt.Errorf("the first line names %q; it must name path and label", t.rows[0].cells)
	}
	return false, nil
}

// looked is how many rows are looked at to tell paths from labels.
const looked = 256

// guess tells the two columns of a list without names apart, and takes a first
// line that is unlike all others for names.
func (t *table) guess(exists func(path string) bool) error {
	first := t.rows[0].cells
	if len(first) != 2 {
		hint := ""
		if near, ok := registry.Nearest("path", first); ok {
			hint = fmt.Sprintf(" (is %q the path?)", near)
		}
		return fmt.Errorf("%d columns without a first line that names path and label%s", len(first), hint)
	}
	body := t.rows
	if len(body) > 1 {
		body = body[1:] // the first may be names
	}
	sample := body[:min(len(body), looked)]
	score := func(good func(cell string) bool) (left, right int) {
		for _, row := range sample {
			if good(row.cells[0]) {
				left++
			}
			if good(row.cells[1]) {
				right++
			}
		}
		return left, right
	}
	distinct := func(column int) int {
		seen := map[string]bool{}
		for _, row := range t.rows {
			seen[row.cells[column]] = true
		}
		return len(seen)
	}
	left, right := score(exists)
	if left == right {
		left, right = score(isListedImage)
	}
	if left == right {
		left, right = distinct(0), distinct(1)
	}
	t.path, t.label = 0, 1
	if right > left {
		t.path, t.label = 1, 0
	}
	paths, _ := score(isListedImage)
	if t.path == 1 {
		_, paths = score(isListedImage)
	}
	if name := first[t.path]; paths == len(sample) && len(t.rows) > 1 && !isListedImage(name) && !exists(name) {
		t.columns = []string{strings.ToLower(first[0]), strings.ToLower(first[1])}
	}
	return nil
}

// isListedImage says whether a cell is named like an image, of a type that is
// read or not.
func isListedImage(cell string) bool {
	switch strings.ToLower(path.Ext(strings.TrimSpace(cell))) {
	case ".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2":
		return true
	}
	return false
}
