package data

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

func TestFolderByHand(t *testing.T) {
	files := photos(t)
	files["ant/notes.txt"] = []byte("not an image")
	files["ant/.hidden.png"] = []byte("not an image either")
	files["zebra/readme.md"] = []byte("a folder without images is no class")
	root := write(t, files)
	d := open(t, &Folder{Root: root, TrainShare: 0.5, OnError: Fail}, All)
	want := Stats{Name: "folder", Split: All, Images: 8, Classes: 4, Min: 1, Median: 2, Max: 3, Lone: 1} // ant 3, bee 2, cat 1, dog 2
	if s := d.Stats(); s != want {
		t.Errorf("%v, want %v", s, want)
	}
	if !slices.Equal(d.Classes, []string{"ant", "bee", "cat", "dog"}) {
		t.Errorf("classes %v", d.Classes)
	}
	if got, want := d.Stats().String(), "folder/all: 8 images, 4 classes of 1 to 3 (median 2), 0 categories, classes of one image: 1, images skipped: 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if s := (&Dataset{}).Stats(); s != (Stats{}) {
		t.Errorf("an empty dataset counts %v", s)
	}
	if got := d.Labels(); !slices.Equal(got, []int64{0, 0, 0, 1, 1, 2, 3, 3}) {
		t.Errorf("labels %v", got)
	}
	var names []string
	for i, it := range d.Items {
		if it.ID != i {
			t.Errorf("item %d has id %d", i, it.ID)
		}
		rel, err := filepath.Rel(root, it.Path)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(rel))
	}
	if !slices.Equal(names, []string{"ant/1.png", "ant/10.JPEG", "ant/2.jpg", "bee/a.png", "bee/b.png", "cat/x.png", "dog/x.png", "dog/y.png"}) {
		t.Errorf("images %v", names)
	}
	if levels := d.Levels(); len(levels) != 1 || levels[0].Name != "class" {
		t.Errorf("levels %v of a dataset without categories", levels)
	}
	img, err := d.Items[0].Image()
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds().Dx() != 20 || img.Bounds().Dy() != 10 || !sameImage(img, picture(20, 10, 1)) {
		t.Errorf("ant/1.png of %v is not what was written", img.Bounds())
	}
}

func TestFolderDividesClasses(t *testing.T) {
	root := write(t, photos(t))
	checkSplits(t, &Folder{Root: root, TrainShare: 0.5, OnError: Fail})
	for share, want := range map[float64][]string{0.25: {"ant"}, 0.74: {"ant", "bee"}, 0.75: {"ant", "bee", "cat"}, 1: {"ant", "bee", "cat", "dog"}} {
		d := open(t, &Folder{Root: root, TrainShare: share, OnError: Fail}, Train)
		if !slices.Equal(d.Classes, want) { // ⌊share · 4⌋ classes
			t.Errorf("share %g: classes %v, want %v", share, d.Classes, want)
		}
	}
	_, err := (&Folder{Root: root, TrainShare: 1, OnError: Fail}).Open(Test)
	faulttest.Refused(t, err, "split test has no image (of 8 in all)")
}

// 0.29 · 100 is 28.999999999999996 in binary; it is 29 classes all the same.
func TestDivideRoundsAsPeopleDo(t *testing.T) {
	var items []Item
	for i := range 100 {
		items = append(items, Item{Class: fmt.Sprintf("%03d", i)})
	}
	for _, want := range []int{0, 1, 7, 29, 57, 58, 80, 100} {
		train := 0
		for _, p := range divide(items, float64(want)/100) {
			if p.split == Train {
				train++
			}
		}
		if train != want {
			t.Errorf("%d %% of 100 classes are %d", want, train)
		}
	}
}

func TestFolderWithSplitFolders(t *testing.T) {
	p := pngOf(t, picture(5, 5, 1))
	root := write(t, map[string][]byte{
		"train/b/1.png": p, "train/a/1.png": p, "test/c/1.png": p, "test/a2/1.png": p, "other/z/1.png": p,
	})
	f := &Folder{Root: root, TrainShare: 0.5, OnError: Fail}
	checkSplits(t, f)
	if d := open(t, f, Test); !slices.Equal(d.Classes, []string{"a2", "c"}) {
		t.Errorf("test classes %v", d.Classes)
	}
	// A class may be on both sides, as in closed-set data: it stays one class.
	root = write(t, map[string][]byte{"train/a/1.png": p, "test/a/1.png": p, "test/b/1.png": p})
	d := open(t, &Folder{Root: root, OnError: Fail}, All)
	if !slices.Equal(d.Labels(), []int64{0, 0, 1}) {
		t.Errorf("labels %v of classes a, a, b", d.Labels())
	}
}

func TestFolderNested(t *testing.T) {
	p := pngOf(t, picture(5, 5, 1))
	root := write(t, map[string][]byte{
		"birds/owl/1.png": p, "birds/owl/2.png": p, "fish/eel/1.png": p, "fish/owl/1.png": p,
	})
	d := open(t, &Folder{Root: root, Nested: true, OnError: Fail}, All)
	if !slices.Equal(d.Classes, []string{"birds/owl", "fish/eel", "fish/owl"}) {
		t.Errorf("classes %v", d.Classes)
	}
	levels := d.Levels()
	if len(levels) != 2 || levels[1].Name != "category" || !slices.Equal(levels[1].Names, []string{"birds", "fish"}) ||
		!slices.Equal(levels[1].Labels, []int64{0, 0, 1, 1}) || !slices.Equal(levels[0].Labels, []int64{0, 0, 1, 2}) {
		t.Errorf("levels %+v", levels)
	}
	_, err := (&Folder{Root: root, OnError: Fail}).Open(All)
	faulttest.Refused(t, err, "birds", "holds folders and no image", "nested=true")
}

// An archive may hold its folders in one of its own name. One of another name,
// or one that holds images, is a class or a category.
func TestFolderInArchiveOfOneFolder(t *testing.T) {
	p := pngOf(t, picture(5, 5, 1))
	for _, c := range []struct {
		name   string
		files  []string
		nested bool
		want   []string // classes
	}{
		{"birds.zip", []string{"birds/owl/1.png", "birds/jay/1.png"}, false, []string{"jay", "owl"}},
		{"birds.zip", []string{"birds/night/owl/1.png", "birds/day/jay/1.png"}, true, []string{"day/jay", "night/owl"}},
		{"other.zip", []string{"birds/owl/1.png", "birds/jay/1.png"}, true, []string{"birds/jay", "birds/owl"}},
		{"owl.zip", []string{"owl/1.png"}, false, []string{"owl"}},
		{"owl.zip", []string{"owl/1.png", "jay/1.png"}, false, []string{"jay", "owl"}},
	} {
		archive, files := filepath.Join(t.TempDir(), c.name), map[string][]byte{}
		for _, f := range c.files {
			files[f] = p
		}
		pack(t, archive, files)
		if d := open(t, &Folder{Root: archive, Nested: c.nested, OnError: Fail}, All); !slices.Equal(d.Classes, c.want) {
			t.Errorf("%v: classes %v, want %v", c.files, d.Classes, c.want)
		}
	}
}

// An archive is the folder it was packed from, entry by entry, at any
// compression, and closes.
func TestFolderInArchive(t *testing.T) {
	files := photos(t)
	root := write(t, files)
	archive := filepath.Join(t.TempDir(), "photos.zip")
	pack(t, archive, files)
	plain := open(t, &Folder{Root: root, OnError: Fail}, All)
	packed, err := (&Folder{Root: archive, OnError: Fail}).Open(All)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(plain.Labels(), packed.Labels()) {
		t.Errorf("labels %v in the folder, %v in the archive", plain.Labels(), packed.Labels())
	}
	if want := archive + ":" + filepath.FromSlash("ant/1.png"); packed.Items[0].Path != want {
		t.Errorf("path %s, want %s", packed.Items[0].Path, want)
	}
	for i := range plain.Items {
		a, err := plain.Items[i].Image()
		if err != nil {
			t.Fatal(err)
		}
		b, err := packed.Items[i].Image()
		if err != nil {
			t.Fatal(err)
		}
		if !sameImage(a, b) {
			t.Errorf("%s differs from %s", packed.Items[i].Path, plain.Items[i].Path)
		}
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := packed.Items[0].Image(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close the archive is still read: %v", err)
	}
}

func TestFolderFollowsLinks(t *testing.T) {
	root := write(t, photos(t))
	linked := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "bee"), filepath.Join(linked, "wasp")); err != nil {
		t.Skip(err)
	}
	d := open(t, &Folder{Root: linked, OnError: Fail}, All)
	if d.Len() != 2 || d.Classes[0] != "wasp" {
		t.Errorf("%d images of classes %v behind a link", d.Len(), d.Classes)
	}
}

func TestFolderRefusals(t *testing.T) {
	root := write(t, photos(t))
	flat := write(t, map[string][]byte{"1.png": pngOf(t, picture(4, 4, 1))})
	notZip := filepath.Join(flat, "1.png")
	cut := filepath.Join(t.TempDir(), "cut.zip")
	pack(t, cut, photos(t))
	truncate(t, cut, 300)
	cases := []struct {
		name   string
		folder Folder
		split  string
		says   []string
	}{
		{"missing folder", Folder{Root: filepath.Join(root, "nowhere")}, All, []string{"there is no", "nowhere", "set root"}},
		{"no root", Folder{}, All, []string{"set root"}},
		{"empty folder", Folder{Root: t.TempDir()}, All, []string{"no image under", "class/image.png"}},
		{"empty folder, nested", Folder{Root: t.TempDir(), Nested: true}, All, []string{"category/class/image.png"}},
		{"images in the root", Folder{Root: flat}, All, []string{"no image under", "class/image.png"}},
		{"file for a folder", Folder{Root: notZip}, All, []string{"1.png", "neither a folder nor a whole zip archive"}},
		{"cut archive", Folder{Root: cut}, All, []string{"cut.zip", "fetch or pack it again"}},
		{"unknown split", Folder{Root: root}, "tset", []string{`unknown split "tset"`, `did you mean "test"`}},
		{"share", Folder{Root: root, TrainShare: 1.5}, All, []string{"train_share is 1.5"}},
		{"on_error", Folder{Root: root, OnError: "ignore"}, All, []string{`on_error is "ignore"`, "fail or skip"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.folder.OnError == "" {
				c.folder.OnError = Fail
			}
			_, err := c.folder.Open(c.split)
			faulttest.Refused(t, err, c.says...)
		})
	}
}

// Broken images, each with what its error must say besides the path.
func broken(t *testing.T) map[string]struct {
	content []byte
	says    string
} {
	whole, photo := pngOf(t, picture(40, 40, 9)), jpegOf(t, picture(40, 40, 9))
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 0xff
	bomb := slices.Clone(whole[:33]) // signature and header, which claims 2^16 by 2^16 pixels
	copy(bomb[16:], "\x00\x01\x00\x00\x00\x01\x00\x00")
	copy(bomb[29:], crc(bomb[12:29]))
	return map[string]struct {
		content []byte
		says    string
	}{
		"truncated.png": {whole[:len(whole)/2], "cut off or damaged"},
		"headless.png":  {whole[:10], "cut off or damaged"},
		"truncated.jpg": {photo[:len(photo)/2], "cut off or damaged"},
		"empty.png":     {nil, "empty"},
		"text.png":      {[]byte("<html>404</html>"), "neither PNG nor JPEG"},
		"flipped.png":   {flipped, "cut off or damaged"},
		"bomb.png":      {bomb, "65536 × 65536 pixels takes "},
	}
}

func TestBrokenImageNamesItsPath(t *testing.T) {
	for name, b := range broken(t) {
		t.Run(name, func(t *testing.T) {
			files := map[string][]byte{"ant/" + name: b.content}
			archive := filepath.Join(t.TempDir(), "a.zip")
			pack(t, archive, files)
			for _, root := range []string{write(t, files), archive} {
				d := open(t, &Folder{Root: root, OnError: Fail}, All)
				_, err := d.Items[0].Image()
				faulttest.Refused(t, err, d.Items[0].Path, name, "broken image", b.says, "replace or remove it", "on_error=skip")
				if strings.Count(err.Error(), d.Items[0].Path) != 1 {
					t.Errorf("%q names the file more than once", err)
				}
			}
		})
	}
}

func TestVanishedImage(t *testing.T) {
	root := write(t, photos(t))
	d := open(t, &Folder{Root: root, OnError: Fail}, All)
	if err := os.Remove(d.Items[0].Path); err != nil {
		t.Fatal(err)
	}
	_, err := d.Items[0].Image()
	faulttest.Refused(t, err, d.Items[0].Path, "no such file")
}

// skip leaves broken images out, keeps the ids of the others, drops classes of
// which nothing is left, and says what it did.
func TestSkip(t *testing.T) {
	files := photos(t)
	files["ant/0.png"] = []byte("broken")
	files["cat/x.png"] = files["cat/x.png"][:20]
	root := write(t, files)
	whole := open(t, &Folder{Root: root, OnError: Fail}, All)
	d := open(t, &Folder{Root: root, OnError: Skip}, All)
	if d.Len() != 7 || !slices.Equal(d.Classes, []string{"ant", "bee", "dog"}) {
		t.Errorf("%d images of classes %v", d.Len(), d.Classes)
	}
	if len(d.Skipped) != 2 || d.Stats().Skipped != 2 || !strings.HasSuffix(d.Skipped[0].Path, "0.png") || !strings.Contains(d.Skipped[1].String(), "x.png: the file is cut off or damaged") {
		t.Errorf("skipped %v", d.Skipped)
	}
	for _, it := range d.Items {
		if whole.Items[it.ID].Path != it.Path {
			t.Errorf("%s has the id of %s", it.Path, whole.Items[it.ID].Path)
		}
		if d.Classes[it.Label] != it.Class {
			t.Errorf("%s is labelled %s", it.Path, d.Classes[it.Label])
		}
	}
	_, err := (&Folder{Root: write(t, map[string][]byte{"a/1.png": nil}), OnError: Skip}).Open(All)
	faulttest.Refused(t, err, "all 1 images", "broken", "1.png", "empty")
}

func TestVerify(t *testing.T) {
	files := photos(t)
	files["bee/a.png"] = files["bee/a.png"][:30]
	files["dog/y.png"] = nil
	d := open(t, &Folder{Root: write(t, files), OnError: Fail}, All)
	for _, workers := range []int{0, 1, 5} {
		highest := 0
		broken, err := d.Verify(context.Background(), workers, func(done int) { highest = max(highest, done) })
		if err != nil {
			t.Fatal(err)
		}
		if len(broken) != 2 || broken[0].ID != 3 || broken[1].ID != 7 || highest != 8 {
			t.Errorf("%d workers: broken %v, told %d of 8", workers, broken, highest)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Verify(ctx, 2, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, Verify returned %v", err)
	}
}

func pack(t *testing.T, name string, files map[string][]byte) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	method := zip.Store
	for path, content := range files {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: path, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := entry.Write(content); err != nil {
			t.Fatal(err)
		}
		method = zip.Store + zip.Deflate - method // every second entry is compressed
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	t.Helper()
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

// Real colour images in an archive with train and test folders: the counts
// that its description states, and pictures that are pictures.
func TestFolderOnCIFAR100(t *testing.T) {
	f := &Folder{Root: datatest.Shared(t, "cifar100/cifar100-200perclass.zip"), OnError: Fail}
	for _, split := range []string{Train, Test} {
		d := open(t, f, split)
		want := Stats{Name: "folder", Split: split, Images: 10000, Classes: 100, Min: 100, Median: 100, Max: 100}
		if s := d.Stats(); s != want {
			t.Errorf("%v, want %v", s, want)
		}
		for i := 0; i < d.Len(); i += 500 {
			img, err := d.Items[i].Image()
			if err != nil {
				t.Fatal(err)
			}
			if img.Bounds().Dx() != 32 || img.Bounds().Dy() != 32 {
				t.Errorf("%s: %v", d.Items[i].Path, img.Bounds())
			}
		}
	}
}

// Real photographs in JPEG, named by their dataset's own list.
func TestListOfPhotographs(t *testing.T) {
	shared := datatest.Shared(t, "grocerystore")
	archive, err := zip.OpenReader(filepath.Join(shared, "grocerystore-val-original.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	root := t.TempDir()
	if err := os.CopyFS(root, archive); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(filepath.Join(shared, "val.txt"))
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "val.csv") // the list's lines are path, fine class, coarse class
	if err := os.WriteFile(list, append([]byte("path,label,category\n"), strings.ReplaceAll(string(lines), ", ", ",")...), 0o666); err != nil {
		t.Fatal(err)
	}
	d := open(t, &List{Test: list, Root: root, OnError: Skip}, Test)
	if s := d.Stats(); s.Images != 296 || s.Classes != 60 || s.Categories != 37 || s.Skipped != 0 {
		t.Errorf("%v, want 296 images, 60 classes, 37 categories, none skipped", s)
	}
	tr := Transform{Resize: 256, Crop: 224, Mean: imagenetMean}
	b := collect(t, loader(t, d, tr, LoaderOptions{}), 0, [][]int{{0, 100, 295}})[0]
	for i := range 3 {
		var sum, squares float64
		for _, v := range b.Pixels[i*tr.Len() : (i+1)*tr.Len()] {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		mean := sum / float64(tr.Len())
		if sd := math.Sqrt(squares/float64(tr.Len()) - mean*mean); math.Abs(mean) > 2 || sd < 0.2 || sd > 2 {
			t.Errorf("%s: mean %.2f, standard deviation %.2f", d.Items[b.Items[i]].Path, mean, sd)
		}
	}
}
