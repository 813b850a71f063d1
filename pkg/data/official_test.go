package data

import (
	"fmt"
	"image"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// rootOf makes a root of tiny files and links to official lists, by the names
// that these have in the official layout.
func rootOf(t *testing.T, files map[string][]byte, lists map[string]string) string {
	t.Helper()
	root := write(t, files)
	for name, list := range lists {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(datatest.Shared(t, list), path); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// checkOfficial opens every split, holds it against the counts that are said
// to be right, and gives it back. Every split must have such counts.
func checkOfficial(t *testing.T, c Collection) map[string]*Dataset {
	t.Helper()
	splits := map[string]*Dataset{}
	for _, split := range append(c.Splits(), All) {
		d := open(t, c, split)
		splits[split] = d
		if faults := d.Miscounted(); faults != nil {
			t.Errorf("%s %s: %v", d.Name, split, faults)
		}
		if len(d.Official) == 0 && split != All {
			t.Errorf("%s %s: nothing is said of its numbers", d.Name, split)
		}
		for i, it := range d.Items {
			if it.Class == "" || it.Path == "" || it.Source == nil || len(it.Further) != len(d.Further) {
				t.Fatalf("%s %s: item %d lacks something: %+v", d.Name, split, i, it)
			}
		}
	}
	return splits
}

// shows checks that an image is the picture.
func shows(t *testing.T, it *Item, want image.Image) {
	t.Helper()
	img, err := it.Image()
	if err != nil {
		t.Error(err)
	} else if !sameImage(img, want) {
		t.Errorf("%s shows another picture", it.Path)
	}
}

// zipped packs files, in a folder of the archive, and returns the archive.
func zipped(t *testing.T, name, folder string, files map[string][]byte) string {
	t.Helper()
	inside := map[string][]byte{}
	for path, content := range files {
		inside[folder+path] = content
	}
	archive := filepath.Join(t.TempDir(), name)
	pack(t, archive, inside)
	return archive
}

// tinySOP is Online Products with three images.
func tinySOP(t *testing.T) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"Ebay_train.txt":         []byte("image_id class_id super_class_id path\n1 1 1 bicycle_final/1_0.JPG\n2 1 1 bicycle_final/1_1.JPG\n"),
		"Ebay_test.txt":          []byte("image_id class_id super_class_id path\n3 2 2 cabinet_final/2_0.JPG\n"),
		"bicycle_final/1_0.JPG":  jpegOf(t, picture(9, 8, 1)),
		"bicycle_final/1_1.JPG":  jpegOf(t, picture(8, 8, 2)),
		"cabinet_final/2_0.JPG":  pngOf(t, picture(7, 8, 3)),
		"cabinet_final/more.txt": []byte("not an image"),
	}
}

// A root is the dataset's folder, a folder around it, an archive of either, or
// a folder with such an archive, or with its images in an archive.
func TestPlaces(t *testing.T) {
	files := tinySOP(t)
	plain := write(t, files)
	inner := map[string][]byte{}
	lists := map[string][]byte{}
	for name, content := range files {
		inner["Stanford_Online_Products/"+name] = content
		if strings.HasSuffix(name, ".txt") {
			lists[name] = content
		}
	}
	archive := zipped(t, "sop.zip", "Stanford_Online_Products/", files)
	images := write(t, lists)
	pack(t, filepath.Join(images, "images.zip"), files)
	for name, root := range map[string]string{
		"folder": plain, "folder around": write(t, inner),
		"archive": zipped(t, "sop.zip", "", files), "archive with a folder": archive,
		"folder with an archive": filepath.Dir(archive), "images in an archive": images,
	} {
		t.Run(name, func(t *testing.T) {
			s := &SOP{Official{Root: root, OnError: Skip}}
			d := open(t, s, Test)
			if d.Len() != 1 || d.Items[0].Class != "2" || d.Items[0].Category != "cabinet_final" || d.Items[0].ID != 2 {
				t.Fatalf("%+v", d.Items)
			}
			shows(t, &d.Items[0], picture(7, 8, 3))
			if d := open(t, s, All); d.Len() != 3 {
				t.Errorf("%d images", d.Len())
			}
			if inZip := strings.Contains(d.Items[0].Path, ".zip:"); inZip != strings.Contains(name, "archive") {
				t.Errorf("path %s", d.Items[0].Path)
			}
		})
	}
}

func TestOfficialRefusals(t *testing.T) {
	for _, name := range Names() {
		c, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := c.(interface{ at(string) })
		if !ok {
			continue
		}
		if _, isList := c.(*List); isList {
			continue
		}
		split := c.Splits()[0]
		r.at(filepath.Join(t.TempDir(), "gone"))
		_, err = c.Open(split)
		faulttest.Refused(t, err, name, "gone", "set root to")
		r.at(t.TempDir())
		_, err = c.Open(split)
		faulttest.Refused(t, err, name)
		damaged := filepath.Join(write(t, map[string][]byte{"x.zip": []byte("PK\x03\x04 no archive")}), "x.zip")
		r.at(damaged)
		_, err = c.Open(split)
		faulttest.Refused(t, err, name)
	}
}

// Lines of lists that are wrong are told with file and line.
func TestOfficialBadLines(t *testing.T) {
	for _, c := range []struct {
		name, line string
		says       []string
	}{
		{"too short", "3 2 2", []string{"3 fields where 4 are expected"}},
		{"out of the folder", "3 2 2 ../../etc/passwd", []string{"leads out of"}},
		{"from the root", "3 2 2 /etc/passwd", []string{"leads out of"}},
		{"no category", "3 2 2 x.JPG", []string{"in no folder"}},
		{"NUL", "3 2 2 a/x\x00.JPG", []string{"NUL"}},
		{"not UTF-8", "3 2 2 a/x\xff.JPG", []string{"UTF-8"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := tinySOP(t)
			files["Ebay_test.txt"] = []byte("header\n" + c.line + "\n")
			_, err := (&SOP{Official{Root: write(t, files), OnError: Fail}}).Open(Train)
			faulttest.Refused(t, err, append(c.says, "Ebay_test.txt:2:")...)
		})
	}
}

func TestMiscounted(t *testing.T) {
	d := open(t, &SOP{Official{Root: write(t, tinySOP(t)), OnError: Fail}}, Train)
	faults := fmt.Sprint(d.Miscounted())
	for _, part := range []string{"images: 2, expected 59551", "classes: 1, expected 11318", "categories: 1, expected 12"} {
		if !strings.Contains(faults, part) {
			t.Errorf("%s does not say %q", faults, part)
		}
	}
}
