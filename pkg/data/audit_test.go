package data

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// audited opens a collection and its splits, and looks at them.
func audited(t *testing.T, c Collection, splits ...string) *Audit {
	t.Helper()
	var parts []*Dataset
	for _, split := range splits {
		parts = append(parts, open(t, c, split))
	}
	a, err := NewAudit(context.Background(), open(t, c, All), parts, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The same picture in two formats is one, two boxes of a picture are two; an
// image in the gallery may be a query as well; names that differ in case show.
func TestAudit(t *testing.T) {
	same, other := picture(6, 5, 1), picture(6, 5, 2)
	grey := write(t, map[string][]byte{
		"p.png": pngOf(t, same), "P2.PNG": pngOf(t, same), "q.png": pngOf(t, other),
		"l.csv": []byte("path,label,split,is_query,is_gallery,x_1,y_1,x_2,y_2\n" +
			"p.png,Dog,train,,,0,0,3,3\np.png,Dog,train,,,3,0,6,3\n" +
			"q.png,dog,test,1,0,,,,\nP2.PNG,cat,test,0,1,0,0,3,3\nq.png,dog,test,0,1,,,,\n"),
	})
	a := audited(t, &List{Test: filepath.Join(grey, "l.csv"), OnError: Fail}, Train, Test, Query)
	if len(a.Duplicates) != 2 || len(a.LeakedPaths) != 0 || a.Leaked != 1 || a.Conflicts != 1 {
		t.Errorf("%+v", a)
	}
	if d := a.Duplicates[0]; len(d.Paths) != 2 || !slices.Equal(d.Classes, []string{"Dog", "cat"}) || !slices.Equal(d.Splits, []string{Test, Train}) {
		t.Errorf("%+v; the first box is in P2.PNG too", d)
	}
	if len(a.Alike) != 1 || !slices.Equal(a.Alike[0], []string{"Dog", "dog"}) {
		t.Errorf("names that differ in case: %v", a.Alike)
	}
	faulttest.Refused(t, a.Err(), "pictures that both train and test: 1", "of 5 images")
	var list bytes.Buffer
	// The first box is Dog and cat; the second is then alone in its class.
	if n, err := a.WriteList(&list); err != nil || n != 2 || strings.Contains(list.String(), "Dog") || strings.Count(list.String(), "q.png") != 2 {
		t.Errorf("%d images, %v:\n%s", n, err, list.String())
	}
}

// What WriteList writes is the dataset again: roles, boxes, levels, sequences.
func TestWriteListReadsBack(t *testing.T) {
	files := map[string][]byte{"l.csv": []byte("path,label,split,is_query,is_gallery,category,sequence,x_1,y_1,x_2,y_2,maker\n" +
		"1.png,a,train,,,,,,,,,\"vw, golf\"\n2.png,a,train,,,,,,,,,bmw\n3.png,b,test,1,0,van,7,1,2,5,4,bmw\n4.png,b,test,0,1,van,8,,,,,vw\n")}
	for i, name := range []string{"1.png", "2.png", "3.png", "4.png"} {
		files[name] = pngOf(t, picture(6, 5, uint8(i)))
	}
	root := write(t, files)
	before := &List{Test: filepath.Join(root, "l.csv"), OnError: Fail}
	a := audited(t, before, Train, Test)
	if err := a.Err(); err != nil {
		t.Fatal(err)
	}
	var list bytes.Buffer
	if n, err := a.WriteList(&list); err != nil || n != 4 {
		t.Fatalf("%d, %v", n, err)
	}
	after := &List{Train: filepath.Join(write(t, map[string][]byte{"clean.csv": list.Bytes()}), "clean.csv"), OnError: Fail}
	for _, split := range []string{Train, Test, Query, Gallery} {
		x, y := open(t, before, split), open(t, after, split)
		if x.Len() != y.Len() || !slices.Equal(x.Further, y.Further) {
			t.Fatalf("%s: %d images of levels %v became %d of %v", split, x.Len(), x.Further, y.Len(), y.Further)
		}
		for i := range x.Items {
			p, q := x.Items[i], y.Items[i]
			if p.Class != q.Class || p.Category != q.Category || p.Group != q.Group || p.Role != q.Role || p.Box != q.Box || !slices.Equal(p.Further, q.Further) || p.Path != q.Path {
				t.Errorf("%s: %+v became %+v", split, p, q)
			}
		}
	}
}

// The numbers of an official dataset are part of the verdict; images in memory
// cannot be listed.
func TestAuditCounts(t *testing.T) {
	a := audited(t, &SOP{Official{Root: write(t, tinySOP(t)), OnError: Fail}}, Train, Test)
	faulttest.Refused(t, a.Err(), "wrong counts of train: images: 2, expected 59551", "wrong counts of all")
	if len(a.Splits) != 3 || !slices.Equal(a.Splits[1].Lone, []string{"2"}) {
		t.Errorf("%+v", a.Splits)
	}
	g := audited(t, &Glyphs{Side: 16, Sizes: []float64{0.7}, Copies: 1}, Train, Test)
	if err := g.Err(); err != nil {
		t.Error(err)
	}
	_, err := g.WriteList(&bytes.Buffer{})
	faulttest.Refused(t, err, "in no file", "data make")
}
