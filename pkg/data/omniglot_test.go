package data

import (
	"context"
	"image"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
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

// doodles is an Omniglot of two drawings a character, with the official names.
func doodles(t *testing.T) (background, evaluation map[string][]byte) {
	t.Helper()
	background, evaluation = map[string][]byte{}, map[string][]byte{}
	for i, name := range []string{"Greek/character01", "Greek/character02", "Futurama/character01", "Futurama/character02", "Latin/character01"} {
		for _, drawing := range []string{"/0001_01.png", "/0001_02.png"} {
			background["images_background/"+name+drawing] = pngOf(t, picture(10, 10, uint8(i)))
		}
	}
	evaluation["images_evaluation/Angelic/character01/0965_01.png"] = pngOf(t, picture(10, 10, 9))
	evaluation["images_evaluation/__MACOSX/character01/0965_01.png"] = []byte("what an archiver adds")
	return background, evaluation
}

// The archives, the folders they unpack to, and archives without the folder
// around everything are the same dataset.
func TestOmniglotLayouts(t *testing.T) {
	background, evaluation := doodles(t)
	zipped, flat := t.TempDir(), t.TempDir()
	pack(t, filepath.Join(zipped, "images_background.zip"), background)
	pack(t, filepath.Join(zipped, "images_evaluation.zip"), evaluation)
	bare := func(files map[string][]byte) map[string][]byte {
		stripped := map[string][]byte{}
		for name, content := range files {
			_, rest, _ := strings.Cut(name, "/")
			stripped[rest] = content
		}
		return stripped
	}
	pack(t, filepath.Join(flat, "images_background.zip"), bare(background))
	pack(t, filepath.Join(flat, "images_evaluation.zip"), bare(evaluation))
	files := map[string][]byte{}
	maps.Copy(files, background)
	maps.Copy(files, evaluation)
	for _, root := range []string{zipped, flat, write(t, files)} {
		o := &Omniglot{Root: root, Protocol: "official", OnError: Fail}
		checkSplits(t, o)
		d := open(t, o, All)
		want := []string{"Angelic/character01", "Futurama/character01", "Futurama/character02", "Greek/character01", "Greek/character02", "Latin/character01"}
		if !slices.Equal(d.Classes, want) || d.Len() != 11 {
			t.Errorf("%s: %d images of %v", root, d.Len(), d.Classes)
		}
		if broken, err := d.Verify(context.Background(), 0, nil); err != nil || len(broken) > 0 {
			t.Errorf("%s: broken %v, error %v", root, broken, err)
		}
		o.Protocol = "background80" // ⌊0.8 · 5⌋ = 4 classes train
		checkSplits(t, o)
		if d := open(t, o, Test); !slices.Equal(d.Classes, []string{"Latin/character01"}) {
			t.Errorf("%s: background80 tests %v", root, d.Classes)
		}
	}
}

func TestOmniglotRefusals(t *testing.T) {
	background, _ := doodles(t)
	half := write(t, background)
	hollow := write(t, map[string][]byte{"images_background/Greek/readme.txt": nil})
	cut := t.TempDir()
	pack(t, filepath.Join(cut, "images_background.zip"), background)
	truncate(t, filepath.Join(cut, "images_background.zip"), 100)
	cases := []struct {
		name string
		o    Omniglot
		says []string
	}{
		{"missing folder", Omniglot{Root: filepath.Join(half, "nowhere"), Protocol: "background80"}, []string{"images_background.zip", "nowhere", "set root"}},
		{"missing archive", Omniglot{Root: half, Protocol: "official"}, []string{"images_evaluation.zip", "set root"}},
		{"no image", Omniglot{Root: hollow, Protocol: "background80"}, []string{"no image", "alphabet/character/image.png"}},
		{"cut archive", Omniglot{Root: cut, Protocol: "background80"}, []string{"images_background.zip", "fetch or pack it again"}},
		{"protocol", Omniglot{Root: half, Protocol: "vinyals"}, []string{`protocol is "vinyals"`, "official or background80"}},
		{"on_error", Omniglot{Root: half, Protocol: "official", OnError: "x"}, []string{`on_error is "x"`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.o.OnError == "" {
				c.o.OnError = Fail
			}
			_, err := c.o.Open(Train)
			faulttest.Refused(t, err, c.says...)
		})
	}
}
