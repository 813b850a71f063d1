package data

import (
	"os"
	"path/filepath"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestFind(t *testing.T) {
	files := photos(t)
	files["l.csv"] = []byte("path,label\nbee/a.png,b\n")
	root := write(t, files)
	archive := filepath.Join(t.TempDir(), "p.zip")
	pack(t, archive, photos(t))
	cases := []struct {
		spec, root, name, split string
		images                  int
	}{
		{"glyphs", "", "glyphs", All, 425 * 20},
		{"glyphs:test", "", "glyphs", Test, 138 * 20},
		{root, "", "folder", All, 8},
		{archive, "", "folder", All, 8},
		{"folder", root, "folder", All, 8},
		{"folder:train", root, "folder", Train, 5}, // ant and bee
		{filepath.Join(root, "l.csv"), "", "list", All, 1},
		{filepath.Join(root, "l.csv"), root, "list", All, 1},
	}
	for _, c := range cases {
		d, err := Find(c.spec, c.root)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if d.Name != c.name || d.Split != c.split || d.Len() != c.images {
			t.Errorf("%s: %s split %s of %d images, want %s %s %d", c.spec, d.Name, d.Split, d.Len(), c.name, c.split, c.images)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Chdir(root)
	if err := os.Rename("ant", "glyphs"); err != nil {
		t.Fatal(err)
	}
	_, err := Find("./glyphs", "")
	faulttest.Refused(t, err, "no image under ./glyphs")
}

func TestFindRefusals(t *testing.T) {
	root := t.TempDir()
	cases := []struct {
		spec, root string
		says       []string
	}{
		{"glyfs", "", []string{`"glyfs"`, "did you mean glyphs", "omniglot"}},
		{"glyphs:tset", "", []string{`unknown split "tset"`}},
		{"glyphs", root, []string{"glyphs has no root"}},
		{"omniglot", root, []string{"images_background.zip", root, "github.com/brendenlake/omniglot"}},
		{root, root, []string{"drop the root"}},
		{filepath.Join(root, "nowhere"), "", []string{"nowhere", "neither a dataset"}},
		{filepath.Join(root, "nowhere.csv"), "", []string{"nowhere.csv", "no such file"}},
		{"", "", []string{`""`, "neither a dataset"}},
	}
	for _, c := range cases {
		_, err := Find(c.spec, c.root)
		t.Run(c.spec, func(t *testing.T) { faulttest.Refused(t, err, c.says...) })
	}
}

// What every collection promises, with its defaults: valid settings, and
// unknown splits refused.
func TestCollections(t *testing.T) {
	for _, name := range Names() {
		c, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := c.(interface{ Validate() error }); !ok {
			t.Errorf("%s does not check its settings", name)
		} else if err := v.Validate(); err != nil {
			t.Errorf("%s: the defaults are refused: %v", name, err)
		}
		_, err = c.Open("validation")
		faulttest.Refused(t, err, name+`: unknown split "validation"`, ", all)")
	}
	_, err := New("omniglott")
	faulttest.Refused(t, err, `unknown dataset "omniglott"`, `"omniglot"`)
}
