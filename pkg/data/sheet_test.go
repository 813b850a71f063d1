package data

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"path/filepath"
	"strings"
	"testing"
)

// A query's box is drawn around its part of the picture, in the sheet's own
// scale; what cannot be read is said.
func TestSheetOfClasses(t *testing.T) {
	white := image.NewGray(image.Rect(0, 0, 40, 40))
	for i := range white.Pix {
		white.Pix[i] = 255
	}
	root := write(t, map[string][]byte{"p.png": pngOf(t, white), "q.png": []byte("broken"),
		"l.csv": []byte("path,label,is_query,is_gallery,x_1,y_1,x_2,y_2\np.png,<a>,1,0,10,20,30,40\nq.png,<a>,1,1,,,,\np.png,b,1,1,,,,\n")})
	s := &Sheet{Title: "t", Side: 80}
	s.Classes(open(t, &List{Test: filepath.Join(root, "l.csv"), OnError: Fail}, Test), 1, 5)
	if len(s.Columns) != 1 || len(s.Columns[0].Cells) != 2 || s.Columns[0].Cells[0].Note != "query" {
		t.Fatalf("%+v", s.Columns)
	}
	drawn := s.thumbnail(s.Columns[0].Cells[0])
	for _, p := range []struct {
		x, y int
		want color.RGBA
	}{{20, 60, sheetMark}, {59, 60, sheetMark}, {40, 40, sheetMark}, {40, 60, sheetPaper}, {10, 10, sheetPaper}} {
		if got := drawn.RGBAAt(p.x, p.y); got != p.want {
			t.Errorf("pixel (%d, %d) is %v, want %v", p.x, p.y, got, p.want)
		}
	}
	var sheet, page bytes.Buffer
	if err := s.WritePNG(&sheet); err != nil {
		t.Fatal(err)
	}
	if img, err := png.Decode(&sheet); err != nil || img.Bounds().Dy() < 2*80 {
		t.Errorf("%v", err)
	}
	if err := s.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"&lt;a&gt;", "neither PNG nor JPEG", "<b>query</b>", "data:image/jpeg;base64,"} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("no %q in the page", part)
		}
	}
}

// A batch shows the very pixels that the network gets.
func TestSheetOfABatch(t *testing.T) {
	root := write(t, map[string][]byte{"a/1.png": pngOf(t, picture(8, 8, 1)), "a/2.png": pngOf(t, picture(8, 8, 2)), "b/1.png": pngOf(t, picture(8, 8, 3))})
	d := open(t, &Folder{Root: root, OnError: Fail}, All)
	transform := Transform{Resize: 8, Mean: Moments{0.5, 0.4, 0.3}, Std: Moments{0.2, 0.3, 0.1}}
	loader, err := NewLoader(d, transform, LoaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Sheet{Side: 32}
	for batch, err := range loader.Batches(context.Background(), 0, [][]int{{1, 0, 2}}) {
		if err != nil {
			t.Fatal(err)
		}
		s.Batch(d, transform, batch)
	}
	if len(s.Columns) != 2 || s.Columns[0].Name != "a" || len(s.Columns[0].Cells) != 2 {
		t.Fatalf("%+v", s.Columns)
	}
	if !sameImage(s.Columns[0].Cells[0].Picture, picture(8, 8, 2)) || !sameImage(s.Columns[1].Cells[0].Picture, picture(8, 8, 3)) {
		t.Error("the pixels are not those of the files")
	}
}
