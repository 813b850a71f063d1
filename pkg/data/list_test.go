package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

func TestListByHand(t *testing.T) {
	root := write(t, photos(t))
	lists := write(t, map[string][]byte{
		"train.csv": []byte("row,Path,label,category,note\n0,dog/y.png,rex,dogs,\"a, b\"\n1,ant/1.png,17,\"ants, black\",\n2,dog/x.png,rex,dogs,\n"),
		"test.csv":  []byte("\ufeffbee/a.png,maja\r\n\"bee/b.png\",\"maja\"\r\n"),
	})
	l := &List{Train: filepath.Join(lists, "train.csv"), Test: filepath.Join(lists, "test.csv"), Root: root, OnError: Fail}
	d := open(t, l, Train)
	if !slices.Equal(d.Classes, []string{"17", "rex"}) || !slices.Equal(d.Labels(), []int64{1, 0, 1}) {
		t.Errorf("classes %v, labels %v: the order of the list must stay", d.Classes, d.Labels())
	}
	if got := d.Items[1].Category; got != "ants, black" {
		t.Errorf("category %q", got)
	}
	img, err := d.Items[0].Image()
	if err != nil {
		t.Fatal(err)
	}
	if !sameImage(img, picture(8, 8, 8)) {
		t.Error("the first image is not dog/y.png")
	}
	if levels := d.Levels(); len(levels) != 2 || !slices.Equal(levels[1].Names, []string{"ants, black", "dogs"}) {
		t.Errorf("levels %+v", levels)
	}
	test := open(t, l, Test)
	if test.Len() != 2 || test.Items[0].Class != "maja" || test.Items[1].ID != 4 || filepath.Base(test.Items[1].Path) != "b.png" {
		t.Errorf("test split %+v", test.Items)
	}
	checkSplits(t, l)
}

// Without a root, paths are relative to the list's own folder.
func TestListBesideItsImages(t *testing.T) {
	files := photos(t)
	files["all.csv"] = []byte("path,label\nant/1.png,a\n" + filepath.ToSlash(filepath.Join(write(t, photos(t)), "bee", "a.png")) + ",b\n")
	d := open(t, &List{Test: filepath.Join(write(t, files), "all.csv"), OnError: Fail}, All)
	for i := range d.Items {
		if _, err := d.Items[i].Image(); err != nil {
			t.Error(err)
		}
	}
}

func TestListOfMissingImages(t *testing.T) {
	root := write(t, map[string][]byte{"l.csv": []byte("path,label\na.png,1\nb.png,1\n"), "b.png": pngOf(t, picture(3, 3, 3))})
	l := &List{Train: filepath.Join(root, "l.csv"), OnError: Fail}
	d := open(t, l, Train)
	_, err := d.Items[0].Image()
	faulttest.Refused(t, err, filepath.Join(root, "a.png"), "no such file")
	l.OnError = Skip
	if d := open(t, l, Train); d.Len() != 1 || len(d.Skipped) != 1 || d.Items[0].ID != 1 {
		t.Errorf("%d images, skipped %v", d.Len(), d.Skipped)
	}
}

func TestListRefusals(t *testing.T) {
	cases := []struct {
		name, content string
		says          []string
	}{
		{"empty", "", []string{"names no image"}},
		{"header alone", "path,label\n", []string{"names no image"}},
		{"no label", "path,class\na.png,1\n", []string{"l.csv:1:", "must name path and label"}},
		{"three columns without names", "1,a.png,x\n", []string{"l.csv:1:", "3 columns without a first line"}},
		{"nearly a name", "paths,labels,x\n", []string{`is "paths" the path?`}},
		{"double column", "path,label,Path\n", []string{"l.csv:1:", "column path is there twice"}},
		{"short line", "path,label\na.png,1\nb.png\n", []string{"l.csv:3:", "1 fields where the first line has 2"}},
		{"long line", "path,label\na,b.png,1\n", []string{"l.csv:2:", "quote fields"}},
		{"empty path", "path,label\n\"\",1\n", []string{"l.csv:2:", "neither may be empty"}},
		{"empty label", "path,label\na.png,\n", []string{"l.csv:2:", "neither may be empty"}},
		{"open quote", "path,label\na.png,1\n\"b.png,1\n", []string{"l.csv:", "RFC 4180"}},
		{"stray quote", "path,label\na\"b.png,1\n", []string{"l.csv:2:", "RFC 4180"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(write(t, map[string][]byte{"l.csv": []byte(c.content)}), "l.csv")
			_, err := (&List{Train: name, OnError: Fail}).Open(Train)
			faulttest.Refused(t, err, append(c.says, name)...)
		})
	}
	_, err := (&List{OnError: Fail}).Open(All)
	faulttest.Refused(t, err, "no file is given", "path,label")
	_, err = (&List{Test: "x.csv", OnError: Fail}).Open(Train)
	faulttest.Refused(t, err, "no file is given for split train")
	_, err = (&List{Train: filepath.Join(t.TempDir(), "gone.csv"), OnError: Fail}).Open(Train)
	faulttest.Refused(t, err, "gone.csv", "no such file")
}

// Any bytes are read or refused, never a crash; what is read has a path and a
// class, and written as CSV it reads back the same.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{"path,label\na,1\n", "a,b\nc,d", "x,y,z", "label,path,category\n\"a\"\"b\",c,\n", "\ufeffpath,label", "\"", "\n\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		items, err := parseList(content, "root")
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') && !strings.ContainsRune(string(content), '\n') {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		for _, it := range items {
			if it.Path == "" || it.Class == "" || it.Source == nil {
				t.Fatalf("an item without path, class or source: %+v", it)
			}
		}
	})
}

// The real list of Stanford Online Products: class_id,path without a first
// line has its columns the other way round, which only a first line can say.
func TestListOfOnlineProducts(t *testing.T) {
	content, err := os.ReadFile(datatest.Shared(t, "sop-lists/stanford_online_test.csv"))
	if err != nil {
		t.Fatal(err)
	}
	items, err := parseList(append([]byte("label,path\n"), content...), "images")
	if err != nil {
		t.Fatal(err)
	}
	d := &Dataset{Name: "sop", Split: Test, Items: items}
	d.relabel()
	want := Stats{Name: "sop", Split: Test, Images: 60502, Classes: 11316, Min: 2, Median: d.Stats().Median, Max: 12}
	if s := d.Stats(); s != want {
		t.Errorf("%v, want %v", s, want)
	}
}
