package data

import (
	"context"
	"image"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/data/datatest"
)

// The counts of the official set (Lake et al. 2015), on the real archives.
func TestOmniglotCounts(t *testing.T) {
	root := datatest.Shared(t, "omniglot")
	cases := []struct {
		protocol, split             string
		images, classes, categories int
	}{
		{"official", Train, 19280, 964, 30},
		{"official", Test, 13180, 659, 20},
		{"official", All, 32460, 1623, 50},
		{"background80", Train, 771 * 20, 771, 24}, // ⌊0.8 · 964⌋ = 771
		{"background80", Test, 193 * 20, 193, 7},   // one alphabet is on both sides
		{"background80", All, 19280, 964, 30},
	}
	for _, c := range cases {
		d := open(t, &Omniglot{Root: root, Protocol: c.protocol, OnError: Fail}, c.split)
		s := d.Stats()
		want := Stats{Name: "omniglot", Split: c.split, Images: c.images, Classes: c.classes, Categories: c.categories, Min: 20, Median: 20, Max: 20}
		if s != want {
			t.Errorf("%s: %v, want %v", c.protocol, s, want)
		}
		if !slices.IsSorted(d.Classes) {
			t.Errorf("%s %s: classes are not sorted", c.protocol, c.split)
		}
		for i, it := range d.Items {
			if d.Classes[it.Label] != it.Class || !strings.HasPrefix(it.Class, it.Category+"/") {
				t.Fatalf("item %d: %+v is labelled %q", i, it, d.Classes[it.Label])
			}
		}
	}
}

// No class is in two splits, and an image has one id in all of them.
func TestOmniglotSplitsAreDisjoint(t *testing.T) {
	root := datatest.Shared(t, "omniglot")
	for _, protocol := range []string{"official", "background80"} {
		o := &Omniglot{Root: root, Protocol: protocol, OnError: Fail}
		checkSplits(t, o)
	}
}

// Every drawing is 105 × 105 and has ink, black on white, and is the image of
// the path it names.
func TestOmniglotImages(t *testing.T) {
	root := datatest.Shared(t, "omniglot")
	d := open(t, &Omniglot{Root: root, Protocol: "official", OnError: Fail}, Test)
	first := d.Items[0]
	if want := filepath.Join(root, "images_evaluation.zip") + ":" + filepath.FromSlash("images_evaluation/Angelic/character01/0965_01.png"); first.Path != want {
		t.Errorf("the first image is %s, want %s", first.Path, want)
	}
	for i := 0; i < d.Len(); i += 97 {
		img, err := d.Items[i].Image()
		if err != nil {
			t.Fatal(err)
		}
		if img.Bounds() != image.Rect(0, 0, 105, 105) {
			t.Fatalf("%s: %v", d.Items[i].Path, img.Bounds())
		}
		var ink int
		for _, p := range img.(*image.Gray).Pix {
			if p == 0 {
				ink++
			} else if p != 255 {
				t.Fatalf("%s: a pixel of %d", d.Items[i].Path, p)
			}
		}
		if ink < 50 || ink > 105*105/4 {
			t.Errorf("%s: %d pixels of ink", d.Items[i].Path, ink)
		}
	}
}

func TestOmniglotAllImagesDecode(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes 32,460 images")
	}
	root := datatest.Shared(t, "omniglot")
	d := open(t, &Omniglot{Root: root, Protocol: "official", OnError: Fail}, All)
	told := 0
	broken, err := d.Verify(context.Background(), 0, func(int) { told++ })
	if err != nil || len(broken) > 0 || told != 32460 {
		t.Errorf("%d broken, %d reported, error %v", len(broken), told, err)
	}
}
