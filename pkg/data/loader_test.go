package data

import (
	"context"
	"errors"
	"fmt"
	"image"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
)

// numbered is a dataset without files: image i is 4 × 4 pixels of value i.
func numbered(n int) *Dataset {
	d := &Dataset{Name: "numbered", Split: All}
	for i := range n {
		d.Items = append(d.Items, Item{ID: 1000 + i, Path: fmt.Sprintf("number %d", i), Class: fmt.Sprintf("%04d", i/2), Source: plain(i)})
	}
	d.relabel()
	return d
}

type plain uint8

func (p plain) Image() (image.Image, error) {
	img := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range img.Pix {
		img.Pix[i] = uint8(p)
	}
	return img, nil
}

// failing is a source that fails after a while.
type failing struct {
	after time.Duration
	text  string
}

func (f failing) Image() (image.Image, error) {
	time.Sleep(f.after)
	return nil, errors.New(f.text)
}

// counting is a source that counts how often it is decoded.
type counting struct {
	Source
	decoded *atomic.Int64
}

func (c counting) Image() (image.Image, error) {
	c.decoded.Add(1)
	return c.Source.Image()
}

var small = Transform{Resize: 4, Channels: 1}

func loader(t *testing.T, d *Dataset, tr Transform, o LoaderOptions) *Loader {
	t.Helper()
	l, err := NewLoader(d, tr, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// collect copies all batches of a pass.
func collect(t *testing.T, l *Loader, epoch int, batches [][]int) []Batch {
	t.Helper()
	var all []Batch
	for b, err := range l.Batches(context.Background(), epoch, batches) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Batch{slices.Clone(b.Pixels), b.Shape, slices.Clone(b.Labels), slices.Clone(b.Items)})
	}
	return all
}

func TestLoaderByHand(t *testing.T) {
	quiet(t)
	l := loader(t, numbered(10), small, LoaderOptions{Workers: 3})
	batches := [][]int{{9, 0, 9}, {4}, {}, {1, 2}}
	got := collect(t, l, 0, batches)
	if len(got) != 4 {
		t.Fatalf("%d batches, want 4", len(got))
	}
	for i, b := range got {
		if b.Shape != [4]int{len(batches[i]), 1, 4, 4} || len(b.Pixels) != 16*len(batches[i]) || !slices.Equal(b.Items, batches[i]) {
			t.Errorf("batch %d: shape %v, %d pixels, items %v", i, b.Shape, len(b.Pixels), b.Items)
		}
		for at, row := range batches[i] {
			if b.Labels[at] != int64(row/2) {
				t.Errorf("batch %d: row %d is labelled %d", i, row, b.Labels[at])
			}
			for _, v := range b.Pixels[16*at : 16*at+16] {
				if v != float32(row)/255 {
					t.Fatalf("batch %d: row %d has a pixel of %g/255", i, row, v*255)
				}
			}
		}
	}
}

// The heart of the loader: workers, reading ahead, the cache and its bound
// change nothing, bit for bit, with all of the augmentation on.
func TestLoaderIsTheSameForAnyWorkers(t *testing.T) {
	quiet(t)
	d := open(t, glyphs(t), Test)
	tr := Transform{Resize: 26, Crop: 24, Channels: 3, Mean: imagenetMean, Augment: Augment{
		Area: [2]float64{0.5, 1}, Flip: 0.5, Rotate: 10, Shear: 5, Scale: 0.1, Shift: 0.1,
	}}
	var batches [][]int
	for b := range 12 {
		var rows []int
		for i := range 17 {
			rows = append(rows, (b*31+i*i*7)%d.Len())
		}
		batches = append(batches, rows)
	}
	var want, other []Batch
	for _, o := range []LoaderOptions{
		{Workers: 1, Ahead: 1},
		{Workers: 2},
		{Workers: 8, Ahead: 5, CacheBytes: 1 << 30},
		{Workers: 3, CacheBytes: 26 * 26 * 3 * 10},
		{},
	} {
		o.Augment, o.Seed = true, 3
		l := loader(t, d, tr, o)
		for pass := range 2 { // the second pass finds the cache filled
			got := collect(t, l, 0, batches)
			if want == nil {
				want = got
			}
			if !slices.EqualFunc(got, want, equalBatch) {
				t.Fatalf("%+v, pass %d: the batches differ", o, pass)
			}
		}
		if got := collect(t, l, 1, batches); other == nil {
			other = got
		} else if !slices.EqualFunc(got, other, equalBatch) {
			t.Fatalf("%+v: the batches of epoch 1 differ", o)
		}
	}
	if slices.EqualFunc(want, other, equalBatch) {
		t.Error("epochs 0 and 1 are augmented alike")
	}
	// A resumed pass is the end of a whole one.
	l := loader(t, d, tr, LoaderOptions{Workers: 2, Augment: true, Seed: 3})
	if got := collect(t, l, 0, batches[7:]); !slices.EqualFunc(got, want[7:], equalBatch) {
		t.Error("begun at batch 7, the batches differ")
	}
	l = loader(t, d, tr, LoaderOptions{Augment: true, Seed: 4})
	if got := collect(t, l, 0, batches); slices.EqualFunc(got, want, equalBatch) {
		t.Error("two seeds augment alike")
	}
}

// What an image looks like does not depend on where it stands, and evaluation
// sees no augmentation.
func TestLoaderAugmentsByImage(t *testing.T) {
	d := open(t, glyphs(t), Test)
	tr := Transform{Resize: 28, Channels: 1, Augment: Augment{Rotate: 20}}
	l := loader(t, d, tr, LoaderOptions{Augment: true})
	a := collect(t, l, 0, [][]int{{5, 6, 7}})[0]
	b := collect(t, l, 0, [][]int{{1}, {7, 5}})[1]
	n := tr.Len()
	if !slices.Equal(a.Pixels[2*n:], b.Pixels[:n]) || !slices.Equal(a.Pixels[:n], b.Pixels[n:]) {
		t.Error("an image is augmented by its place in the epoch")
	}
	img, err := d.Items[5].Image()
	if err != nil {
		t.Fatal(err)
	}
	plain := collect(t, loader(t, d, tr, LoaderOptions{}), 0, [][]int{{5}})[0].Pixels
	if !slices.Equal(plain, apply(t, tr, img)) {
		t.Error("without Augment the image is not the plain one")
	}
	if slices.Equal(plain, a.Pixels[:n]) {
		t.Error("with Augment the image is the plain one")
	}
}

func TestLoaderCacheIsBounded(t *testing.T) {
	d := numbered(10)
	var decoded atomic.Int64
	for i := range d.Items {
		d.Items[i].Source = counting{d.Items[i].Source, &decoded}
	}
	all := [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}
	for _, c := range []struct {
		bytes int64
		want  int64 // decodings in 3 passes of 10 images of 16 bytes
	}{{0, 30}, {15, 30}, {16 * 4, 10 + 6 + 6}, {16*4 + 15, 10 + 6 + 6}, {160, 10}, {1 << 20, 10}} {
		decoded.Store(0)
		l := loader(t, d, small, LoaderOptions{Workers: 4, CacheBytes: c.bytes})
		for range 3 {
			collect(t, l, 0, all)
		}
		if decoded.Load() != c.want {
			t.Errorf("a cache of %d bytes: %d images decoded, want %d", c.bytes, decoded.Load(), c.want)
		}
	}
}

// An image too large for the rest of the cache leaves that rest to others.
func TestLoaderCacheTakesWhatFits(t *testing.T) {
	d := numbered(4)
	var decoded atomic.Int64
	d.Items[0].Source = pictureSource{picture(10, 10, 0)} // 100 bytes in grey; the others 16
	for i := range d.Items {
		d.Items[i].Source = counting{d.Items[i].Source, &decoded}
	}
	l := loader(t, d, Transform{Crop: 2, Channels: 1}, LoaderOptions{Workers: 1, CacheBytes: 50})
	for range 3 {
		collect(t, l, 0, [][]int{{0, 1, 2, 3}})
	}
	if decoded.Load() != 4+1+1 {
		t.Errorf("%d images decoded in 3 passes, want 4 and twice the large one", decoded.Load())
	}
}

type pictureSource struct{ img image.Image }

func (p pictureSource) Image() (image.Image, error) { return p.img, nil }

// The memory of batches is used again: a pass over many batches allocates
// buffers for the few that are in the air.
func TestLoaderReusesMemory(t *testing.T) {
	l := loader(t, numbered(4), small, LoaderOptions{Workers: 2, Ahead: 2})
	batches := make([][]int, 100)
	for i := range batches {
		batches[i] = []int{i % 4, (i + 1) % 4}
	}
	buffers := map[*float32]bool{}
	for range 2 {
		for b, err := range l.Batches(context.Background(), 0, batches) {
			if err != nil {
				t.Fatal(err)
			}
			buffers[&b.Pixels[0]] = true
		}
	}
	if len(buffers) > 5 { // one read, two ready, one being dealt, one spare
		t.Errorf("%d buffers for 200 batches", len(buffers))
	}
}

// The error is that of the first bad image in order, however long the others
// take, and the batches before it arrive.
func TestLoaderErrors(t *testing.T) {
	quiet(t)
	d := numbered(40)
	d.Items[21].Source = failing{20 * time.Millisecond, "slow"}
	d.Items[22].Source = failing{0, "quick"}
	d.Items[35].Source = failing{0, "later"}
	var batches [][]int
	for row := 0; row < 40; row += 4 {
		batches = append(batches, []int{row, row + 1, row + 2, row + 3})
	}
	for _, workers := range []int{1, 4, 16} {
		read := 0
		var failed error
		for b, err := range loader(t, d, small, LoaderOptions{Workers: workers, Ahead: 4}).Batches(context.Background(), 0, batches) {
			if failed != nil {
				t.Fatal("the sequence goes on after an error")
			}
			if failed = err; err == nil {
				read++
			} else if b != nil {
				t.Error("a batch comes with the error")
			}
		}
		faulttest.Refused(t, failed, "number 21", "slow", "on_error=skip")
		if read != 5 {
			t.Errorf("%d batches before the error, want 5", read)
		}
	}
	for _, err := range loader(t, d, small, LoaderOptions{}).Batches(context.Background(), 0, [][]int{{40}}) {
		if err == nil || fault.IsInput(err) {
			t.Errorf("row 40 of 40: %v, want an error that is not the input's", err)
		}
	}
	crop := Transform{Crop: 5, Channels: 1}
	for _, err := range loader(t, d, crop, LoaderOptions{}).Batches(context.Background(), 0, [][]int{{7}}) {
		faulttest.Refused(t, err, "number 7", "4 × 4", "crop=5")
	}
}

func TestLoaderTruncatedImage(t *testing.T) {
	files := photos(t)
	files["bee/a.png"] = files["bee/a.png"][:40]
	root := write(t, files)
	d := open(t, &Folder{Root: root, OnError: Fail}, All)
	var failed error
	for _, err := range loader(t, d, small, LoaderOptions{}).Batches(context.Background(), 0, [][]int{{0, 1}, {2, 3}}) {
		failed = err
	}
	faulttest.Refused(t, failed, filepath.Join(root, "bee", "a.png"), "cut off or damaged", "replace or remove it", "on_error=skip")
}

// However the loop is left, no goroutine stays: quiet counts them.
func TestLoaderStops(t *testing.T) {
	quiet(t)
	d := numbered(64)
	var batches [][]int
	for i := range 500 {
		batches = append(batches, []int{i % 64, (i + 9) % 64, (i + 20) % 64})
	}
	for _, workers := range []int{1, 7} {
		l := loader(t, d, small, LoaderOptions{Workers: workers, Ahead: 3})
		for n := range 5 { // break after n batches
			read := 0
			for _, err := range l.Batches(context.Background(), 0, batches) {
				if err != nil {
					t.Fatal(err)
				}
				if read++; read > n {
					break
				}
			}
		}
		cause := errors.New("the user has had enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		read := 0
		var last error
		for _, err := range l.Batches(ctx, 0, batches) {
			if last = err; err != nil {
				continue
			}
			if read++; read == 3 {
				cancel(cause)
			}
		}
		if !errors.Is(last, cause) || read != 3 {
			t.Errorf("cancelled after 3 batches: %d read, error %v", read, last)
		}
		for _, err := range l.Batches(ctx, 0, nil) {
			last = err
		}
		if !errors.Is(last, cause) {
			t.Errorf("begun after it was cancelled: %v", last)
		}
	}
	// The loader's own sequence may be left by a panic of its reader, too.
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the reader's panic is lost")
			}
		}()
		for range loader(t, d, small, LoaderOptions{}).Batches(context.Background(), 0, batches) {
			panic("reader")
		}
	}()
}

func TestLoaderRefusals(t *testing.T) {
	_, err := NewLoader(numbered(1), Transform{}, LoaderOptions{})
	faulttest.Refused(t, err, "give resize or crop")
	_, err = NewLoader(numbered(1), small, LoaderOptions{Workers: -1})
	faulttest.Refused(t, err, "workers=-1")
}

// Real drawings through the whole way: ink is white and a minority.
func TestLoaderOnOmniglot(t *testing.T) {
	quiet(t)
	o := &Omniglot{Root: datatest.Shared(t, "omniglot"), Protocol: "background80", OnError: Fail}
	d := open(t, o, Test)
	tr := Transform{Resize: 28, Channels: 1, Invert: true}
	var rows []int
	for i := 0; i < d.Len(); i += 7 {
		rows = append(rows, i)
	}
	b := collect(t, loader(t, d, tr, LoaderOptions{CacheBytes: 1 << 20}), 0, [][]int{rows})[0]
	var sum float64
	for _, v := range b.Pixels {
		if v < 0 || v > 1 {
			t.Fatalf("a pixel of %g", v)
		}
		sum += float64(v)
	}
	if mean := sum / float64(len(b.Pixels)); mean < 0.03 || mean > 0.15 {
		t.Errorf("the mean pixel is %.3f: ink should be white on black", mean)
	}
}

func BenchmarkLoaderOmniglot(b *testing.B) {
	o := &Omniglot{Root: datatest.Shared(b, "omniglot"), Protocol: "background80", OnError: Fail}
	d, err := o.Open(Train)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	rows := make([]int, 128)
	for i := range rows {
		rows[i] = i * 97 % d.Len()
	}
	for _, bytes := range []int64{0, 1 << 30} {
		b.Run(fmt.Sprintf("cache=%d", bytes), func(b *testing.B) {
			l, err := NewLoader(d, Transform{Resize: 28, Channels: 1, Invert: true}, LoaderOptions{CacheBytes: bytes})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				for _, err := range l.Batches(context.Background(), 0, [][]int{rows}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/128, "µs/image")
		})
	}
}

func equalBatch(a, b Batch) bool {
	return slices.Equal(a.Pixels, b.Pixels) && a.Shape == b.Shape && slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Items, b.Items)
}

// quiet fails the test if it ends with more goroutines than it began with.
func quiet(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		// A goroutine that has done its work may take a moment to be gone.
		for range 100 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("%d goroutines, %d before the test", runtime.NumGoroutine(), before)
	})
}
