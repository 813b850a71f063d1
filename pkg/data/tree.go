package data

import (
	"archive/zip"
	"errors"
	"image"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"roadmap/pkg/fault"
	"roadmap/pkg/files"
)

// tree is a folder, or a zip archive read in place: entries are inflated one
// at a time, when they are asked for.
type tree struct {
	fs.FS
	name    string         // path of the folder or archive, as the user gave it
	join    string         // between name and the path of an entry
	archive io.Closer      // nil for a folder
	most    int64          // bytes that a picture may take
	others  map[string]int // files that are no images by their names, by extension
	empty   []string       // class folders without images
}

// openTree opens a folder or, where the path names a file, a zip archive.
func openTree(name string) (*tree, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &tree{FS: os.DirFS(name), name: name, join: string(filepath.Separator), most: imageLimit(0)}, nil
	}
	file, info, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	archive, err := openZip(name, file, info.Size())
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &tree{FS: archive, name: name, join: ":", archive: file, most: imageLimit(0)}, nil
}

// deepest bounds the folders above an entry of an archive. archive/zip makes
// every one of them, so that a few long names would become many folders.
const deepest = 64

// openZip reads the directory of an archive.
func openZip(name string, file io.ReaderAt, size int64) (*zip.Reader, error) {
	archive, err := zip.NewReader(file, size)
	switch {
	case errors.Is(err, zip.ErrFormat), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, notZip(name, file, err)
	case err != nil && !errors.Is(err, zip.ErrInsecurePath): // such names are not found, as nothing is unpacked
		return nil, err
	}
	for _, f := range archive.File {
		if !utf8.ValidString(f.Name) { // archive/zip would list nothing beside it
			return nil, fault.Inputf("%s: the name %.100q is not UTF-8; pack the archive anew from files with names that are", name, f.Name)
		}
		if strings.Count(f.Name, "/") > deepest {
			return nil, fault.Inputf("%s: an entry lies in more than %d folders (%q…); pack it again", name, deepest, f.Name[:deepest])
		}
	}
	return archive, nil
}

// notZip says what a file is that is no zip archive, and the way out.
func notZip(name string, file io.ReaderAt, err error) error {
	start := make([]byte, 512)
	n, _ := file.ReadAt(start, 0) // what cannot be read is not recognised
	start = start[:n]
	lower := strings.ToLower(name)
	for _, other := range []struct{ what, magic, ending string }{
		{"a gzip file", "\x1f\x8b", ".tar.gz"}, {"an xz file", "\xfd7zXZ", ".tar.xz"}, {"a bzip2 file", "BZh", ".tar.bz2"},
		{"a zstd file", "\x28\xb5\x2f\xfd", ".tar.zst"}, {"a 7-Zip archive", "7z\xbc\xaf", ".7z"}, {"a RAR archive", "Rar!", ".rar"},
	} {
		if strings.HasPrefix(string(start), other.magic) || strings.HasSuffix(lower, other.ending) {
			return fault.Inputf("%s is %s, which is not read; unpack it, or pack it anew as a zip archive", name, other.what)
		}
	}
	if len(start) > 262 && string(start[257:262]) == "ustar" || strings.HasSuffix(lower, ".tar") {
		return fault.Inputf("%s is a tar archive, which is not read; unpack it (tar -xf), or pack it anew as a zip archive", name)
	}
	return fault.Inputf("%s is neither a folder nor a whole zip archive (%w); fetch or pack it again", name, err)
}

// open opens an entry. What is not a regular file is refused.
func (t *tree) open(entry string) (fs.File, error) {
	if t.archive != nil {
		return t.Open(entry)
	}
	file, _, err := files.Open(filepath.Join(t.name, filepath.FromSlash(entry)))
	return file, err
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
	around, beside, _, e1 := t.list(".")
	_, within, _, e2 := t.list(name)
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

// list returns the folders, the image files and the other files in a folder,
// each sorted by name. Hidden entries, and what archivers add, are passed over.
// A name that is not UTF-8 could be written to no list, so it is refused.
func (t *tree) list(dir string) (folders, images, others []string, err error) {
	entries, err := fs.ReadDir(t, dir)
	if err != nil {
		return nil, nil, nil, fault.Inputf("%s: cannot be listed: %w", t.path(dir), err)
	}
	for _, e := range entries {
		name := e.Name()
		full := path.Join(dir, name)
		switch {
		case strings.HasPrefix(name, ".") || name == "__MACOSX":
		case !utf8.ValidString(name):
			return nil, nil, nil, fault.Inputf("%s: the name %q is not UTF-8; rename it (convmv -f latin1 -t utf8 --notest renames a whole tree)", t.path(dir), name)
		case e.IsDir() || e.Type()&fs.ModeSymlink != 0 && t.isDir(full):
			folders = append(folders, name)
		case isImageName(name):
			images = append(images, name)
		default:
			others = append(others, name)
		}
	}
	slices.Sort(folders)
	slices.Sort(images)
	slices.Sort(others)
	return folders, images, others, nil
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
	folders, _, others, err := t.list(dir)
	if err != nil {
		return nil, err
	}
	t.count(others)
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
	folders, images, others, err := t.list(full)
	if err != nil {
		return nil, err
	}
	t.count(others)
	if len(images) == 0 && len(folders) > 0 {
		return nil, fault.Inputf("%s holds folders and no image; classes may lie in categories (data.nested=true, in a recipe or behind --set), but no deeper", t.path(full))
	}
	if len(images) == 0 {
		t.empty = append(t.empty, t.path(full))
	}
	items := make([]Item, len(images))
	for i, name := range images {
		entry := path.Join(full, name)
		items[i] = Item{Path: t.path(entry), Class: folder, Source: file{t, entry}}
	}
	return items, nil
}

// count notes files that are no images by their names.
func (t *tree) count(others []string) {
	if t.others == nil {
		t.others = map[string]int{}
	}
	for _, name := range others {
		t.others[strings.ToLower(path.Ext(name))]++
	}
}

// file is an image file in a tree.
type file struct {
	tree  *tree
	entry string
}

// Image implements Source. The error does not repeat the path.
func (f file) Image() (image.Image, error) { return f.encoded().image() }

func (f file) use(more func(width, height int) int64, then func(image.Image) error) error {
	return f.encoded().use(more, then)
}

func (f file) encoded() encoded {
	return encoded{func() (fs.File, error) { return f.tree.open(f.entry) }, f.tree.most}
}

// withoutPath is what happened to a file, for messages that name it already.
func withoutPath(err error) error {
	var inPath *fs.PathError
	if errors.As(err, &inPath) {
		return inPath.Err
	}
	return err
}
