package data

import (
	"image"
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
		{"no label", "path,colour\na.png,1\n", []string{"l.csv:1:", "must name path and label"}},
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
	only := filepath.Join(write(t, map[string][]byte{"x.csv": []byte("a.png,1\n")}), "x.csv")
	_, err = (&List{Test: only, OnError: Fail}).Open(Train)
	faulttest.Refused(t, err, "no file is given for split train")
	_, err = (&List{Train: filepath.Join(t.TempDir(), "gone.csv"), OnError: Fail}).Open(Train)
	faulttest.Refused(t, err, "gone.csv", "no such file")
}

// Columns in either order, with a first line that names them or not, by names
// that exist, names of images or how often they repeat.
func TestListColumns(t *testing.T) {
	files := map[string][]byte{}
	for _, name := range []string{"a/1.png", "a/2.png", "b/1.png", "plain/1", "plain/2", "plain/3"} {
		files[name] = pngOf(t, picture(3, 3, uint8(len(files))))
	}
	root := write(t, files)
	for _, c := range []struct{ name, content string }{
		{"path first", "a/1.png,x\na/2.png,x\nb/1.png,y\n"},
		{"class first", "x,a/1.png\nx,a/2.png\ny,b/1.png\n"},
		{"unknown names", "picture,species\na/1.png,x\na/2.png,x\nb/1.png,y\n"},
		{"unknown names, class first", "Species,Picture\nx,a/1.png\nx,a/2.png\ny,b/1.png\n"},
		{"image,class", "image,class\na/1.png,x\na/2.png,x\nb/1.png,y\n"},
		{"class_id,path", "class_id,path\nx,a/1.png\nx,a/2.png\ny,b/1.png\n"},
		{"index of pandas", ",path,label\n0,a/1.png,x\n1,a/2.png,x\n2,b/1.png,y\n"},
		{"names without type", "x,plain/1\nx,plain/2\ny,plain/3\n"},
		{"images that are not there", "7,gone/1.jpg\n7,gone/2.jpg\n8,gone/3.jpg\n"},
		{"neither there nor named so", "7,gone1\n7,gone2\n8,gone3\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := filepath.Join(write(t, map[string][]byte{"l.csv": []byte(c.content)}), "l.csv")
			d := open(t, &List{Test: list, Root: root, OnError: Fail}, All)
			if d.Len() != 3 || len(d.Classes) != 2 || d.Items[0].Class != d.Items[1].Class || len(d.Items[2].Class) != 1 || len(d.Further) != 0 {
				t.Errorf("%d images of classes %q, levels %q: %+v", d.Len(), d.Classes, d.Further, d.Items)
			}
		})
	}
}

// The table of open-metric-learning.
func TestListOfOpenMetricLearning(t *testing.T) {
	root := write(t, map[string][]byte{"p.png": pngOf(t, picture(20, 10, 1)), "l.csv": []byte(
		"label,path,split,is_query,is_gallery,category,sequence,x_1,y_1,x_2,y_2,maker\n" +
			"1,p.png,train,,,cars,,2.0,3.0,12.0,9.0,vw\n" +
			"2,p.png,validation,True,False,cars,7.0,0,0,5,5,bmw\n" +
			"2,p.png,validation,False,True,cars,7.0,,,,,bmw\n" +
			"3,p.png,validation,1,1,vans,nan,15,5,25,15,bmw\n")})
	l := &List{Train: filepath.Join(root, "l.csv"), OnError: Fail}
	train, test := open(t, l, Train), open(t, l, Test)
	if train.Len() != 1 || test.Len() != 3 || !slices.Equal(test.Further, []string{"maker"}) || test.Items[1].Further[0] != "bmw" {
		t.Fatalf("%+v\n%+v", train.Items, test)
	}
	img, err := train.Items[0].Image()
	if err != nil {
		t.Fatal(err)
	}
	if want := picture(20, 10, 1).SubImage(image.Rect(2, 3, 12, 9)); !sameImage(img, want) {
		t.Errorf("the image is %v, want the part %v", img.Bounds(), want.Bounds())
	}
	if img, err = test.Items[2].Image(); err != nil || img.Bounds().Size() != image.Pt(5, 5) {
		t.Errorf("a box beyond the picture: %v, %v; want what lies inside", img, err)
	}
	if q, g := test.Queries(), test.Gallery(); !slices.Equal(q, []int{0, 2}) || !slices.Equal(g, []int{1, 2}) {
		t.Errorf("queries %v, gallery %v", q, g)
	}
	if g := test.Groups(); !slices.Equal(g, []int64{0, 0, -1}) {
		t.Errorf("sequences %v", g)
	}
	if levels := test.Levels(); len(levels) != 3 || levels[1].Name != "category" || levels[2].Name != "maker" {
		t.Errorf("levels %+v", levels)
	}
	if query := open(t, l, Query); query.Len() != 2 || query.Items[1].Class != "3" {
		t.Errorf("query split %+v", query.Items)
	}
	if categories := train.Categories(); !slices.Equal(categories, []int64{0}) {
		t.Errorf("categories %v", categories)
	}
}

// Images in zip archives: as the root, or by name.
func TestListInArchives(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "photos.zip")
	pack(t, archive, photos(t))
	for _, c := range []struct{ content, root string }{
		{"path,label\nant/1.png,x\nbee/a.png,y\n", archive},
		{"path,label\n" + archive + ":ant/1.png,x\n" + archive + ":bee/a.png,y\n", ""},
		{"path,label\nphotos.zip:ant/1.png,x\nphotos.zip:bee/a.png,y\n", filepath.Dir(archive)},
	} {
		list := filepath.Join(write(t, map[string][]byte{"l.csv": []byte(c.content)}), "l.csv")
		d := open(t, &List{Train: list, Root: c.root, OnError: Fail}, Train)
		if img, err := d.Items[1].Image(); err != nil || !sameImage(img, picture(12, 12, 4)) || d.Items[1].Path != archive+":bee/a.png" {
			t.Errorf("%s: %s, %v", c.content, d.Items[1].Path, err)
		}
	}
}

func TestListBadRows(t *testing.T) {
	cases := []struct {
		name, content string
		says          []string
	}{
		{"out of the root", "path,label\n../secret.png,1\n", []string{"l.csv:2:", "leads out of"}},
		{"out of an archive", "path,label\nphotos.zip:../secret.png,1\n", []string{"l.csv:2:", "no such file"}},
		{"NUL", "path,label\na\x00.png,1\n", []string{"l.csv:2:", "NUL"}},
		{"not UTF-8", "path,label\na.png,caf\xe9\n", []string{"l.csv:2:", "UTF-8"}},
		{"two labels", "path,label\na.png,1\nb.png,1\na.png,2\n", []string{"l.csv:4:", "a.png", `"2"`, `"1"`}},
		{"split", "path,label,split\na.png,1,tarin\n", []string{"l.csv:2:", `"tarin"`}},
		{"no role", "path,label,split,is_query,is_gallery\na.png,1,test,False,False\n", []string{"l.csv:2:", "neither query nor in the gallery"}},
		{"a role that is none", "path,label,is_query\na.png,1,maybe\n", []string{"l.csv:2:", `is_query is "maybe"`}},
		{"half a box", "path,label,x_1,y_1,x_2,y_2\na.png,1,0,0,3,\n", []string{"l.csv:2:", "3 of the 4 edges"}},
		{"an empty box", "path,label,x_1,y_1,x_2,y_2\na.png,1,5,0,3,9\n", []string{"l.csv:2:", "is empty"}},
		{"a box of words", "path,label,x_1,y_1,x_2,y_2\na.png,1,left,0,3,9\n", []string{"l.csv:2:", `x_1 is "left"`}},
		{"a boundless box", "path,label,x_1,y_1,x_2,y_2\na.png,1,0,0,inf,9\n", []string{"l.csv:2:", "not in pixels"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			name := filepath.Join(write(t, map[string][]byte{"l.csv": []byte(c.content)}), "l.csv")
			_, err := (&List{Test: name, OnError: Fail}).Open(Test)
			faulttest.Refused(t, err, c.says...)
		})
	}
	_, err := (&List{Test: "x.csv", Train: "x.csv", Root: filepath.Join(t.TempDir(), "gone"), OnError: Fail}).Open(Test)
	faulttest.Refused(t, err, "x.csv")
}

// A row that is there twice counts once, and is counted.
func TestListSaysTwice(t *testing.T) {
	name := filepath.Join(write(t, map[string][]byte{"l.csv": []byte("path,label\na.png,1\nb.png,1\na.png,1\n")}), "l.csv")
	d := open(t, &List{Train: name, OnError: Fail}, Train)
	if d.Len() != 2 || len(d.Skipped) != 1 || !strings.Contains(d.Skipped[0].String(), "a.png: listed again in line 4") {
		t.Errorf("%d images, skipped %v", d.Len(), d.Skipped)
	}
}

// A file whose name differs in case is named.
func TestListNamesDifferInCase(t *testing.T) {
	root := write(t, map[string][]byte{"l.csv": []byte("path,label\nA.PNG,1\nc.png,1\n"), "a.png": pngOf(t, picture(3, 3, 3))})
	d := open(t, &List{Train: filepath.Join(root, "l.csv"), OnError: Fail}, Train)
	_, err := d.Items[0].Image()
	faulttest.Refused(t, err, "no such file", "there is "+filepath.ToSlash(filepath.Join(root, "a.png")), "differs in case")
	if _, err = d.Items[1].Image(); strings.Contains(err.Error(), "case") {
		t.Error(err)
	}
}

// Any bytes are read or refused, never a crash; what is read has a path and a
// class.
func FuzzParseList(f *testing.F) {
	for _, seed := range []string{"path,label\na,1\n", "a,b\nc,d", "x,y,z", "label,path,category\n\"a\"\"b\",c,\n", "\ufeffpath,label", "\"", "\n\n",
		"label,path,split,is_query,is_gallery,category,sequence,x_1,y_1,x_2,y_2\n1,a,val,1,0,c,s,1,2,3,4\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r := &listReader{archives: map[string]*tree{}}
		err := r.parse(content, &listRoot{dir: "root", archives: r.archives}, Test)
		if err != nil {
			if strings.ContainsRune(err.Error(), '\n') && !strings.ContainsRune(string(content), '\n') {
				t.Errorf("more than one line: %q", err)
			}
			return
		}
		for _, p := range r.all {
			if p.Path == "" || p.Class == "" || p.Source == nil || len(p.Further) != len(r.further) {
				t.Fatalf("an item without path, class, source or levels: %+v", p)
			}
		}
	})
}

// The published lists of Online Products, In-Shop and CUB are class,path
// without a first line.
func TestPublishedLists(t *testing.T) {
	for list, want := range map[string][2]int{
		"sop-lists/stanford_online_train.csv": {59551, 11318},
		"sop-lists/stanford_online_test.csv":  {60502, 11316},
		"inshop-lists/deep_fashion_train.csv": {25882, 3997},
		"inshop-lists/deep_fashion_test.csv":  {26830, 3985},
		"cub200-lists/cub_train.csv":          {5864, 100},
		"cub200-lists/cub_test.csv":           {5924, 100},
	} {
		d := open(t, &List{Test: datatest.Shared(t, list), Root: t.TempDir(), OnError: Fail}, Test)
		if d.Len() != want[0] || len(d.Classes) != want[1] {
			t.Errorf("%s: %d images of %d classes, want %v", list, d.Len(), len(d.Classes), want)
		}
	}
}
