package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"roadmap/pkg/fault"
)

// place is the root of a dataset in its authors' layout: a folder, whose zip
// archives are read as if they had been unpacked where they lie, or one such
// archive. Entries are named by their path below the root, with slashes.
type place struct {
	dataset string // whose root it is, for errors
	trees   []*tree
	at      []string // folder below the root that each tree begins in
	base    string   // folder of the dataset's own files below the root: "." or a folder in it
}

// openPlace opens a root. The dataset's own folder is the one below which
// marker, a file or folder of the official layout, is found: the root, or a
// folder in it. layout says, for errors, what is expected.
func openPlace(dataset, root, layout string, markers ...string) (*place, error) {
	if root == "" {
		return nil, fault.Inputf("%s: no root is given; set root to the folder or zip archive with %s", dataset, layout)
	}
	first, err := openTree(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Inputf("%s: there is no %s; set root to the folder or zip archive with %s", dataset, root, layout)
	}
	if err != nil {
		return nil, fault.Inputf("%s: %w", dataset, err)
	}
	p := &place{dataset: dataset, trees: []*tree{first}, at: []string{"."}}
	if first.archive == nil {
		err = p.mount(root, ".", 1)
	}
	if err == nil && !p.settle(markers) {
		err = fault.Inputf("%s: no %s in %s, nor in a folder or archive in it; set root to the folder or zip archive with %s",
			dataset, strings.Join(markers, " or "), root, layout)
	}
	if err != nil {
		_ = p.Close() // only read
		return nil, err
	}
	return p, nil
}

// mount opens the archives in a folder, and in the folders in it down to a
// depth.
func (p *place) mount(root, dir string, depth int) error {
	entries, err := fs.ReadDir(p.trees[0], dir)
	if err != nil {
		return fault.Inputf("%s: %s cannot be listed: %w", p.dataset, p.trees[0].path(dir), err)
	}
	for _, e := range entries {
		entry := path.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case strings.EqualFold(path.Ext(e.Name()), ".zip") && !p.trees[0].isDir(entry):
			t, err := openTree(filepath.Join(root, filepath.FromSlash(entry)))
			if err != nil {
				return fault.Inputf("%s: %w", p.dataset, err)
			}
			p.trees, p.at = append(p.trees, t), append(p.at, dir)
		case depth > 0 && e.IsDir() && len(entries) <= maxFolders:
			if err := p.mount(root, entry, depth-1); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxFolders is the number of entries of a folder beyond which its folders are
// those of classes, in which no archive is looked for.
const maxFolders = 64

// settle finds the dataset's own folder.
func (p *place) settle(markers []string) bool {
	candidates := []string{"."}
	for i, t := range p.trees {
		folders, _, _, err := t.list(".")
		if err != nil {
			continue
		}
		for _, folder := range folders {
			candidates = append(candidates, path.Join(p.at[i], folder))
		}
		candidates = append(candidates, p.at[i])
	}
	for _, base := range candidates {
		p.base = base
		if slices.ContainsFunc(markers, p.has) {
			return true
		}
	}
	return false
}

// Close lets go of the archives.
func (p *place) Close() error {
	var errs []error
	for _, t := range p.trees {
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// find names the tree that holds an entry below the dataset's own folder, and
// the entry's name in it. An entry that is in no archive is looked for in the
// root itself, so that a list of images is not held against the disk one by
// one.
func (p *place) find(entry string) (*tree, string) {
	full := path.Join(p.base, entry)
	for i := len(p.trees) - 1; i > 0; i-- {
		inside, ok := full, true
		if p.at[i] != "." {
			inside, ok = strings.CutPrefix(full, p.at[i]+"/")
		}
		if ok && fs.ValidPath(inside) {
			if _, err := fs.Stat(p.trees[i], inside); err == nil {
				return p.trees[i], inside
			}
		}
	}
	return p.trees[0], full
}

// has reports whether there is such a file or folder.
func (p *place) has(entry string) bool {
	t, name := p.find(entry)
	_, err := fs.Stat(t, name)
	return err == nil
}

// first is the first of some entries that there is, or the first of all.
func (p *place) first(entries ...string) string {
	if i := slices.IndexFunc(entries, p.has); i >= 0 {
		return entries[i]
	}
	return entries[0]
}

// path is what people call an entry.
func (p *place) path(entry string) string {
	t, name := p.find(entry)
	return t.path(name)
}

// image is the item of an image file. Its class and place are the caller's.
func (p *place) image(entry string) Item {
	t, name := p.find(entry)
	return Item{Path: t.path(name), Source: file{t, name}}
}

// classes lists the images in the folders of dir, each of which is a class.
func (p *place) classes(dir string) ([]Item, error) {
	t, name := p.find(dir)
	if !t.isDir(name) {
		return nil, fault.Inputf("%s: there is no folder %s", p.dataset, t.path(name))
	}
	return t.classes(name, 1)
}

// maxList bounds the size of a list that is read.
const maxList = 1 << 30

// read returns the content of a file of the dataset. One that is compressed
// with gzip, named so, is as good.
func (p *place) read(entry string) ([]byte, error) {
	zipped := !p.has(entry) && p.has(entry+".gz")
	if zipped {
		entry += ".gz"
	}
	t, name := p.find(entry)
	content, err := readEntry(t, name, zipped)
	if err != nil {
		return nil, fault.Inputf("%s: %s: %w", p.dataset, t.path(name), withoutPath(err))
	}
	return content, nil
}

func readEntry(t *tree, name string, zipped bool) ([]byte, error) {
	f, err := t.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if zipped {
		if r, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	content, err := io.ReadAll(io.LimitReader(r, maxList+1))
	if err == nil && len(content) > maxList {
		err = fmt.Errorf("more than %d bytes; this is no list", maxList)
	}
	return content, err
}

// rows reads a list of lines with columns between blanks: each gets the fields
// of a line, of which the last takes all the rest. skip lines at the beginning
// are headers. Errors of each are given file and line.
func (p *place) rows(entry string, skip, columns int, each func(fields []string) error) error {
	content, err := p.read(entry)
	if err != nil {
		return err
	}
	number := 0
	for line := range bytes.Lines(content) {
		if number++; number <= skip {
			continue
		}
		fields, err := columnsOf(line, columns)
		if err == nil && len(fields) > 0 {
			err = each(fields)
		}
		if err != nil {
			return fault.Inputf("%s:%d: %w", p.path(entry), number, err)
		}
	}
	if number <= skip {
		return fault.Inputf("%s: the list names nothing; it may be cut off", p.path(entry))
	}
	return nil
}

// columnsOf cuts a line at blanks into so many fields; none for a blank line.
func columnsOf(line []byte, columns int) ([]string, error) {
	text, err := clean(line)
	if err != nil {
		return nil, err
	}
	var fields []string
	for text = strings.TrimSpace(text); text != ""; {
		end := strings.IndexAny(text, " \t")
		if end < 0 || len(fields) == columns-1 {
			end = len(text)
		}
		fields, text = append(fields, text[:end]), strings.TrimSpace(text[end:])
	}
	if len(fields) > 0 && len(fields) < columns {
		return nil, fmt.Errorf("%d fields where %d are expected: %q", len(fields), columns, fields)
	}
	return fields, nil
}

// clean is a line as text, or says why it is none.
func clean(line []byte) (string, error) {
	switch {
	case bytes.IndexByte(line, 0) >= 0:
		return "", errors.New("a NUL byte; the file is damaged, or no text")
	case !utf8.Valid(line):
		return "", errors.New("not UTF-8 text; save the list as UTF-8")
	}
	return string(line), nil
}

// within is a path from a list, below dir. One that leads out of dir is
// refused.
func within(dir, name string) (string, error) {
	full := path.Clean(strings.ReplaceAll(name, `\`, "/"))
	if !fs.ValidPath(full) || full == "." {
		return "", fmt.Errorf("the path %q leads out of the dataset's folder", name)
	}
	return path.Join(dir, full), nil
}
