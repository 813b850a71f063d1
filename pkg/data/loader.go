package data

import (
	"cmp"
	"context"
	"fmt"
	"image"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Batch is the images of some rows of a dataset, ready for a network.
type Batch struct {
	Pixels []float32 // image by image, channel by channel, row by row
	Shape  [4]int    // images, channels, height, width
	Labels []int64   // of every image
	Items  []int     // rows of the dataset
}

// LoaderOptions say how a loader works; of them only Augment and Seed have an
// influence on the pixels.
type LoaderOptions struct {
	Workers    int    `yaml:"workers"`     // goroutines that decode; 0: one a processor
	Ahead      int    `yaml:"ahead"`       // batches prepared while one is in use; 0 means 2
	CacheBytes int64  `yaml:"cache_bytes"` // memory for images decoded and resized; 0: none
	Augment    bool   `yaml:"-"`           // apply the transform's augmentation: for training, not for evaluation
	Seed       uint64 `yaml:"-"`           // of the augmentation
}

// streamAugment keeps the augmentation's numbers apart from whatever else is
// drawn under the seed.
const streamAugment = 0x617567 // "aug"

// Loader decodes and transforms the images of a dataset.
//
// With a cache, images are kept after decoding and resizing, as bytes, until
// the bound is reached; later ones are decoded every time. Nothing is thrown
// out, since in epochs every image is as likely to be wanted as another.
type Loader struct {
	dataset   *Dataset
	transform Transform
	curves    []curve
	options   LoaderOptions
	cache     []atomic.Pointer[raster] // by row
	free      atomic.Int64             // bytes left in the cache
	mu        sync.Mutex
	spare     []*pending // buffers of batches that are done with
}

// NewLoader returns a loader of the dataset's images. A transform that is not
// valid is an error of the input.
func NewLoader(d *Dataset, t Transform, o LoaderOptions) (*Loader, error) {
	if err := cmp.Or(t.Validate(), t.Sized()); err != nil {
		return nil, err
	}
	if o.Workers < 0 || o.Ahead < 0 || o.CacheBytes < 0 {
		return nil, fault.Inputf("loader: workers=%d, ahead=%d, cache_bytes=%d; give 0 or more", o.Workers, o.Ahead, o.CacheBytes)
	}
	if o.Ahead == 0 {
		o.Ahead = 2
	}
	l := &Loader{dataset: d, transform: t, curves: t.curves(), options: o, cache: make([]atomic.Pointer[raster], d.Len())}
	l.free.Store(o.CacheBytes)
	return l, nil
}

// Batches prepares the given batches, lists of rows of the dataset, and yields
// them in order. The epoch seeds the augmentation. A batch belongs to the
// reader until it asks for the next one; then its memory is used again.
//
// The sequence ends after the last batch, or with a nil batch and an error: of
// the first image, in order, that cannot be read, or of the context. All
// goroutines have ended when the loop over the sequence is left, however that
// happens.
func (l *Loader) Batches(ctx context.Context, epoch int, batches [][]int) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		if err := l.within(batches); err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		run := &run{loader: l, epoch: epoch, jobs: make(chan job)}
		var wait sync.WaitGroup
		for range workersOr(l.options.Workers) {
			wait.Go(run.work)
		}
		ready := make(chan *pending, l.options.Ahead)
		wait.Go(func() { run.deal(ctx, batches, ready) })
		defer func() {
			cancel(context.Canceled)
			wait.Wait()
		}()
		for p := range ready {
			<-p.done
			batch, err := &p.Batch, p.failure()
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(batch, nil) {
				return
			}
			l.giveBack(p)
		}
		if err := context.Cause(ctx); err != nil {
			yield(nil, err)
		}
	}
}

// batchBytes bounds the pixels of one batch: 64 GiB.
const batchBytes = 64 << 30

// within refuses batches that no memory holds, before any is made.
func (l *Loader) within(batches [][]int) error {
	longest := 0
	for _, rows := range batches {
		longest = max(longest, len(rows))
	}
	c, h, w := l.transform.Size()
	if bytes := times(int64(longest), int64(l.transform.Len()), 4); bytes > batchBytes {
		return fault.Inputf("a batch of %d images of %d × %d × %d numbers takes %d bytes; at most %d are taken: make batches or images smaller",
			longest, c, h, w, bytes, int64(batchBytes))
	}
	return nil
}

// pending is a batch that workers are filling.
type pending struct {
	Batch
	errs []error       // of every image
	left atomic.Int64  // images to do
	done chan struct{} // closed when none is left
}

// failure is the error of the first image that has one.
func (p *pending) failure() error {
	for _, err := range p.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// job is one image of a batch.
type job struct {
	batch *pending
	at    int // place in the batch
}

// run is one pass over batches.
type run struct {
	loader *Loader
	epoch  int
	jobs   chan job
}

// deal hands out the images of one batch after the other, as many batches
// ahead as ready holds, until the context is done.
func (r *run) deal(ctx context.Context, batches [][]int, ready chan<- *pending) {
	defer close(ready)
	defer close(r.jobs)
	for _, rows := range batches {
		p := r.loader.take(rows)
		select {
		case ready <- p:
		case <-ctx.Done():
			return
		}
		for at := range rows {
			select {
			case r.jobs <- job{p, at}:
			case <-ctx.Done():
				p.finish(len(rows) - at)
				return
			}
		}
	}
}

// finish counts images as done.
func (p *pending) finish(images int) {
	if p.left.Add(-int64(images)) == 0 {
		close(p.done)
	}
}

// work does jobs until there are no more.
func (r *run) work() {
	for j := range r.jobs {
		j.batch.errs[j.at] = r.loader.fill(j.batch, j.at, r.epoch)
		j.batch.finish(1)
	}
}

// fill writes one image of a batch.
func (l *Loader) fill(p *pending, at, epoch int) error {
	row := p.Items[at]
	if row < 0 || row >= l.dataset.Len() {
		return fmt.Errorf("loader: row %d of a dataset of %d images", row, l.dataset.Len())
	}
	r, err := l.raster(row)
	if err != nil {
		return err
	}
	item := &l.dataset.Items[row]
	size := l.transform.Len()
	dst := p.Pixels[at*size : (at+1)*size]
	p.Labels[at] = item.Label
	var random *rand.Rand
	if l.options.Augment && l.transform.Augment.active() {
		random = rng.New(l.options.Seed, streamAugment, uint64(epoch), uint64(item.ID))
	}
	l.transform.render(dst, r, l.curves, random)
	return nil
}

// raster returns the prepared image of a row, from the cache if it is there.
func (l *Loader) raster(row int) (*raster, error) {
	if r := l.cache[row].Load(); r != nil {
		return r, nil
	}
	item := &l.dataset.Items[row]
	var r *raster
	var unfit error
	err := item.use(l.transform.memory, func(img image.Image) error {
		r, unfit = l.transform.prepare(img)
		return nil
	})
	if err != nil {
		return nil, item.broken(err)
	}
	if unfit != nil {
		return nil, fault.Inputf("%s: %w", item.Path, unfit)
	}
	size := int64(len(r.pix))
	if l.free.Add(-size) < 0 || !l.cache[row].CompareAndSwap(nil, r) {
		l.free.Add(size) // no room, or another worker was faster
	}
	return r, nil
}

// take returns a batch of these rows to fill, in memory used before if any is
// large enough.
func (l *Loader) take(rows []int) *pending {
	l.mu.Lock()
	p := &pending{}
	if n := len(l.spare); n > 0 {
		p.Batch = l.spare[n-1].Batch
		l.spare = l.spare[:n-1]
	}
	l.mu.Unlock()
	c, h, w := l.transform.Size()
	p.Shape = [4]int{len(rows), c, h, w}
	p.Pixels = resize(p.Pixels, len(rows)*c*h*w)
	p.Labels = resize(p.Labels, len(rows))
	p.Items = append(p.Items[:0], rows...)
	p.errs = make([]error, len(rows))
	p.left.Store(int64(len(rows)))
	p.done = make(chan struct{})
	if len(rows) == 0 {
		close(p.done)
	}
	return p
}

// giveBack keeps the memory of a batch that was read.
func (l *Loader) giveBack(p *pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spare = append(l.spare, p)
}

// resize returns a slice of n, in the same memory if it is large enough.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
