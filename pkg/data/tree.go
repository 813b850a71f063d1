package data

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg" // the two formats that are read
	_ "image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// tree is a folder, or a zip archive read in place: entries are inflated one
// at a time, when they are asked for.
type tree struct {
	fs.FS
	name    string    // path of the folder or archive, as the user gave it
	join    string    // between name and the path of an entry
	archive io.Closer // nil for a folder
}

// openTree opens a folder or, where the path names a file, a zip archive.
func openTree(name string) (*tree, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &tree{FS: os.DirFS(name), name: name, join: string(filepath.Separator)}, nil
	}
	archive, err := zip.OpenReader(name)
	if errors.Is(err, zip.ErrFormat) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fault.Inputf("%s is neither a folder nor a whole zip archive (%w); fetch or pack it again", name, err)
	}
	if err != nil {
		return nil, err
	}
	return &tree{FS: archive, name: name, join: ":", archive: archive}, nil
}

// Close lets go of an archive.
func (t *tree) Close() error {
	if t.archive == nil {
		return nil
	}
	return t.archive.Close()
}

// path is what people call the entry.
func (t *tree) path(entry string) string {
	if entry == "." {
		return t.name
	}
	return t.name + t.join + filepath.FromSlash(entry)
}

// top is where the classes begin: in an archive that holds nothing but a folder
// of its own name, with folders in it, that one.
func (t *tree) top() string {
	name := strings.TrimSuffix(filepath.Base(t.name), filepath.Ext(t.name))
	if t.archive == nil || !t.isDir(name) {
		return "."
	}
	around, beside, e1 := t.list(".")
	_, within, e2 := t.list(name)
	if e1 != nil || e2 != nil || len(around) > 1 || len(beside)+len(within) > 0 {
		return "."
	}
	return name
}

// isDir reports whether the entry is a folder; symbolic links are followed.
func (t *tree) isDir(entry string) bool {
	info, err := fs.Stat(t, entry)
	return err == nil && info.IsDir()
}

// list returns the folders and the image files in a folder, each sorted by
// name. Hidden entries, and what archivers add, are passed over.
func (t *tree) list(dir string) (folders, images []string, err error) {
	entries, err := fs.ReadDir(t, dir)
	if err != nil {
		return nil, nil, fault.Inputf("%s: cannot be listed: %w", t.path(dir), err)
	}
	for _, e := range entries {
		name := e.Name()
		full := path.Join(dir, name)
		switch {
		case strings.HasPrefix(name, ".") || name == "__MACOSX":
		case e.IsDir() || e.Type()&fs.ModeSymlink != 0 && t.isDir(full):
			folders = append(folders, name)
		case isImageName(name):
			images = append(images, name)
		}
	}
	slices.Sort(folders)
	slices.Sort(images)
	return folders, images, nil
}

// isImageName tells PNG and JPEG files by their names.
func isImageName(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".png", ".jpg", ".jpeg":
		return true
	}
	return false
}

// classes lists the images under dir. At depth 1 dir holds a folder a class;
// at depth 2 a folder a category, which holds a folder a class, and the class
// is named category/class.
func (t *tree) classes(dir string, depth int) ([]Item, error) {
	folders, _, err := t.list(dir)
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, folder := range folders {
		found, err := t.under(dir, folder, depth)
		if err != nil {
			return nil, err
		}
		items = append(items, found...)
	}
	return items, nil
}

// under lists the images of one class folder, or of one category folder.
func (t *tree) under(dir, folder string, depth int) ([]Item, error) {
	full := path.Join(dir, folder)
	if depth > 1 {
		items, err := t.classes(full, depth-1)
		for i := range items {
			items[i].Class = folder + "/" + items[i].Class
			items[i].Category = folder
		}
		return items, err
	}
	folders, images, err := t.list(full)
	if err != nil {
		return nil, err
	}
	if len(images) == 0 && len(folders) > 0 {
		return nil, fault.Inputf("%s holds folders and no image; classes may lie in categories (data.nested=true, in a recipe or behind --set), but no deeper", t.path(full))
	}
	items := make([]Item, len(images))
	for i, name := range images {
		entry := path.Join(full, name)
		items[i] = Item{Path: t.path(entry), Class: folder, Source: file{t, entry}}
	}
	return items, nil
}

// file is an image file in a tree.
type file struct {
	tree  *tree
	entry string
}

// Image implements Source. The error does not repeat the path.
func (f file) Image() (image.Image, error) {
	content, err := fs.ReadFile(f.tree, f.entry)
	if err != nil {
		return nil, withoutPath(err)
	}
	return decode(content)
}

// withoutPath is what happened to a file, for messages that name it already.
func withoutPath(err error) error {
	var inPath *fs.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}

// maxPixels bounds what a header may make the decoder allocate: 2^28 pixels,
// 1 GiB in RGBA.
const maxPixels = 1 << 28

// decode decodes a PNG or JPEG file.
func decode(content []byte) (image.Image, error) {
	if len(content) == 0 {
		return nil, errors.New("the file is empty")
	}
	header, format, err := image.DecodeConfig(bytes.NewReader(content))
	if errors.Is(err, image.ErrFormat) {
		return nil, errors.New("neither PNG nor JPEG")
	}
	if err != nil {
		return nil, damaged(err)
	}
	if int64(header.Width)*int64(header.Height) > maxPixels {
		return nil, fmt.Errorf("%s of %d × %d pixels; at most %d are read", format, header.Width, header.Height, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, damaged(err)
	}
	if img.Bounds().Empty() {
		return nil, fmt.Errorf("%s without pixels", format)
	}
	return img, nil
}

// damaged says in words what the decoders call bad data or an early end.
func damaged(err error) error { return fmt.Errorf("the file is cut off or damaged (%w)", err) }
