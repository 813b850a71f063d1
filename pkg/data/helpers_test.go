package data

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"testing"
)

// open opens a split that must open, and closes it after the test.
func open(t *testing.T, c Collection, split string) *Dataset {
	t.Helper()
	d, err := c.Open(split)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// checkSplits holds the splits of a collection against each other: train and
// test share no class, are together all, and an image keeps its id.
func checkSplits(t *testing.T, c Collection) {
	t.Helper()
	train, test, all := open(t, c, Train), open(t, c, Test), open(t, c, All)
	ids, paths, classes := map[int]string{}, map[string]int{}, map[string]string{}
	for _, it := range all.Items {
		if other, ok := ids[it.ID]; ok {
			t.Fatalf("id %d is %s and %s", it.ID, other, it.Path)
		}
		ids[it.ID] = it.Path
		paths[it.Path] = it.ID
	}
	for _, d := range []*Dataset{train, test} {
		for _, class := range d.Classes {
			if other, ok := classes[class]; ok {
				t.Errorf("class %s is in %s and %s", class, other, d.Split)
			}
			classes[class] = d.Split
		}
		for _, it := range d.Items {
			if ids[it.ID] != it.Path {
				t.Fatalf("id %d is %s in all and %s in %s", it.ID, ids[it.ID], it.Path, d.Split)
			}
			delete(paths, it.Path)
		}
	}
	if len(paths) > 0 || train.Len()+test.Len() != all.Len() {
		t.Errorf("%d + %d images of %d, %d in neither", train.Len(), test.Len(), all.Len(), len(paths))
	}
	if len(classes) != len(all.Classes) {
		t.Errorf("%d classes in the splits, %d in all", len(classes), len(all.Classes))
	}
}

// write makes files below a new folder and returns it.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// picture is a w × h image whose pixels all differ from their neighbours and
// from those of another seed.
func picture(w, h int, seed uint8) *image.NRGBA {
	img := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetNRGBA(x, y, color.NRGBA{seed + uint8(37*x+11*y), uint8(5*x) ^ seed, uint8(91 * y), 255})
		}
	}
	return img
}

func pngOf(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegOf(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// photos is a folder of classes: "ant" and "bee" of 3 and 2 images, "cat" of
// 1, "dog" of 2, PNG and JPEG, of different sizes.
func photos(t *testing.T) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"ant/1.png":   pngOf(t, picture(20, 10, 1)),
		"ant/2.jpg":   jpegOf(t, picture(16, 16, 2)),
		"ant/10.JPEG": jpegOf(t, picture(9, 30, 3)),
		"bee/a.png":   pngOf(t, picture(12, 12, 4)),
		"bee/b.png":   pngOf(t, picture(13, 12, 5)),
		"cat/x.png":   pngOf(t, picture(14, 15, 6)),
		"dog/x.png":   pngOf(t, picture(15, 14, 7)),
		"dog/y.png":   pngOf(t, picture(8, 8, 8)),
	}
}

// crc is the checksum of a PNG chunk.
func crc(chunk []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(chunk))
}

func sameImage(a, b image.Image) bool {
	if a.Bounds() != b.Bounds() {
		return false
	}
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			if color.NRGBAModel.Convert(a.At(x, y)) != color.NRGBAModel.Convert(b.At(x, y)) {
				return false
			}
		}
	}
	return true
}
