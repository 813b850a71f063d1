// Package embed runs a network over a dataset as PyTorch does under model.eval()
// and torch.no_grad(), batch by batch, and hands out the embeddings in the
// dataset's order, in float32, whatever the precision of the network.
package embed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"

	"roadmap/backbones"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/torch"
)

// Options say how the work is done. Of them only Precision has an influence on
// the embeddings beyond float rounding.
type Options struct {
	Batch      int         // images at once; 0 means 64
	Workers    int         // goroutines that decode; 0: one a processor
	CacheBytes int64       // memory for decoded images, when the dataset is embedded more than once
	Precision  torch.DType // Float32, BFloat16 or Float16, of the network; embeddings are float32
	Progress   func(done int)

	// Deviation, if given, is called once by a network of 16 bits: with how its
	// first batch differs from what float32 makes of it.
	Deviation func(Deviation)
}

// Deviation is the cosine between the embeddings of the same images in 16 bits
// and in float32: 1 is the same direction.
type Deviation struct {
	Images int     `json:"images"`
	Least  float64 `json:"least"`
	Mean   float64 `json:"mean"`
}

// Embedder embeds one dataset, as often as wanted.
type Embedder struct {
	dataset *data.Dataset
	loader  *data.Loader
	shape   [3]int // channels, height, width
	rows    [][]int
	options Options

	measured bool // whether a batch fits into memory
}

// New prepares to embed a dataset through a transform.
func New(d *data.Dataset, t data.Transform, o Options) (*Embedder, error) {
	if d.Len() == 0 {
		return nil, fault.Inputf("embed: dataset %s has no images in split %s", d.Name, d.Split)
	}
	if o.Batch == 0 {
		o.Batch = 64
	}
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	loader, err := data.NewLoader(d, t, data.LoaderOptions{Workers: o.Workers, CacheBytes: o.CacheBytes})
	if err != nil {
		return nil, err
	}
	e := &Embedder{dataset: d, loader: loader, options: o}
	e.shape[0], e.shape[1], e.shape[2] = t.Size()
	for start := 0; start < d.Len(); start += o.Batch {
		rows := make([]int, 0, min(o.Batch, d.Len()))
		for i := start; i < min(start+o.Batch, d.Len()); i++ {
			rows = append(rows, i)
		}
		e.rows = append(e.rows, rows)
	}
	return e, nil
}

// Run embeds every image with the network as it is now, in the dataset's
// order, and hands the rows over a batch at a time: [n, m.Dim()] float32, valid
// until sink returns. An error of sink ends the work.
func (e *Embedder) Run(ctx context.Context, m *backbones.Model, device torch.Device, sink func(rows []float32) error) error {
	if err := Fits(m, e.shape[0], e.shape[1]); err != nil {
		return err
	}
	runtime.LockOSThread() // libtorch's threads belong to the one that calls it
	defer runtime.UnlockOSThread()
	scope := torch.NewScope()
	defer scope.Close()
	network, err := m.Embedder(scope, e.options.Precision)
	if err != nil {
		return err
	}
	if err := e.withinMemory(network, device); err != nil {
		return fmt.Errorf("embed %s: %w", e.dataset.Name, err)
	}
	buffer := make([]float32, min(e.options.Batch, e.dataset.Len())*m.Dim())
	done := 0
	for batch, err := range e.loader.Batches(ctx, 0, e.rows) {
		if err != nil {
			return fmt.Errorf("embed %s: %w", e.dataset.Name, err)
		}
		rows := buffer[:len(batch.Items)*m.Dim()]
		if err := forward(network, batch, device, rows); err != nil {
			return fmt.Errorf("embed %s, images %d to %d: %w", e.dataset.Name, done, done+len(batch.Items)-1, err)
		}
		if err := e.finite(rows, batch, m.Dim()); err != nil {
			return fmt.Errorf("embed %s: %w%s", e.dataset.Name, err, e.advice())
		}
		if done == 0 && e.options.Deviation != nil && e.options.Precision != torch.Float32 {
			if err := e.compare(m, batch, device, rows); err != nil {
				return err
			}
		}
		if err := sink(rows); err != nil {
			return err
		}
		done += len(batch.Items)
		e.options.Progress(done)
	}
	return nil
}

// withinMemory measures what one image and two images take, on the CPU, and
// refuses a batch that would take more than there is. Images are prepared ahead.
func (e *Embedder) withinMemory(network *backbones.Embedder, device torch.Device) error {
	if e.measured || device != torch.CPU || e.options.Batch <= few || e.dataset.Len() <= few {
		return nil
	}
	e.measured = true
	one, err := e.peak(network, 1)
	if err != nil {
		return err
	}
	two, err := e.peak(network, 2)
	if err != nil {
		return err
	}
	const ahead = 3 // batches of pixels: in use, and prepared
	pixels := 4 * float64(e.shape[0]) * float64(e.shape[1]) * float64(e.shape[2])
	image := max(two-one, 0) + ahead*pixels
	batch := float64(min(e.options.Batch, e.dataset.Len()))
	if free := memory.Free(); one+batch*image > float64(free) {
		fits := max(1, int((float64(free)*0.9-one)/image))
		return fault.Inputf("a batch of %d images takes about %s of memory, and %s are free; one of %d fits", int(batch), memory.About(one+batch*image), free.About(), fits)
	}
	return nil
}

// few images at once are embedded without asking whether they fit.
const few = 8

// peak is the memory for tensors that n black images take on their way through
// the network.
func (e *Embedder) peak(network *backbones.Embedder, n int) (bytes float64, err error) {
	s := torch.NewScope()
	defer s.Close()
	before, err := torch.Memory(torch.CPU)
	if err != nil {
		return 0, err
	}
	if err := torch.ResetPeakMemory(torch.CPU); err != nil {
		return 0, err
	}
	images := s.Zeros([]int64{int64(n), int64(e.shape[0]), int64(e.shape[1]), int64(e.shape[2])}, torch.Float32, torch.CPU)
	if err := network.Forward(images).Err(); err != nil {
		return 0, err
	}
	after, err := torch.Memory(torch.CPU)
	return float64(after.Peak - before.Allocated), err
}

// compare embeds a batch in float32 too, and reports how rows deviate.
func (e *Embedder) compare(m *backbones.Model, batch *data.Batch, device torch.Device, rows []float32) error {
	scope := torch.NewScope()
	defer scope.Close()
	network, err := m.Embedder(scope, torch.Float32)
	if err != nil {
		return err
	}
	exact := make([]float32, len(rows))
	if err := forward(network, batch, device, exact); err != nil {
		return fmt.Errorf("embed %s in float32, to compare: %w", e.dataset.Name, err)
	}
	if err := e.finite(exact, batch, m.Dim()); err != nil {
		return fmt.Errorf("embed %s in float32, to compare: %w", e.dataset.Name, err)
	}
	e.options.Deviation(deviation(rows, exact, m.Dim()))
	return nil
}

// ErrNotFinite is what errors.Is finds where an embedding is refused for it.
var ErrNotFinite = errors.New("NaN or infinity")

// finite refuses embeddings that cannot be compared.
func (e *Embedder) finite(rows []float32, b *data.Batch, dim int) error {
	for i, x := range rows {
		if x-x != 0 {
			return fault.Inputf("the embedding of %s has %w", e.dataset.Items[b.Items[i/dim]].Path, ErrNotFinite)
		}
	}
	return nil
}

// advice is what to do about embeddings that are not finite.
func (e *Embedder) advice() string {
	if e.options.Precision == torch.Float16 {
		return "; float16 ends at 65,504: use bfloat16 or float32"
	}
	return "; the weights or the image are not sound"
}

// deviation compares embeddings row by row.
func deviation(rows, exact []float32, dim int) Deviation {
	d := Deviation{Images: len(rows) / dim, Least: 1}
	for i := 0; i < len(rows); i += dim {
		var dot, a, b float64
		for j := i; j < i+dim; j++ {
			x, y := float64(rows[j]), float64(exact[j])
			dot, a, b = dot+x*y, a+x*x, b+y*y
		}
		cosine := 1.0 // of two rows of zeros
		if a > 0 || b > 0 {
			cosine = dot / math.Sqrt(max(a*b, math.SmallestNonzeroFloat64))
		}
		d.Least, d.Mean = min(d.Least, cosine), d.Mean+cosine/float64(d.Images)
	}
	return d
}

// All is Run into memory: [n, m.Dim()] float32 for the whole dataset.
func (e *Embedder) All(ctx context.Context, m *backbones.Model, device torch.Device) ([]float32, error) {
	all := make([]float32, 0, e.dataset.Len()*m.Dim())
	err := e.Run(ctx, m, device, func(rows []float32) error {
		all = append(all, rows...)
		return nil
	})
	return all, err
}

// forward embeds one batch into rows, [n, dim].
func forward(network *backbones.Embedder, b *data.Batch, device torch.Device, rows []float32) error {
	s := torch.NewScope()
	defer s.Close()
	return torch.ReadInto(network.Forward(Pixels(s, b, device)), rows)
}

// Pixels is the batch's images as a tensor [n, c, h, w] in scope s. On the CPU
// it shares the batch's memory, so close the scope before the next batch.
func Pixels(s *torch.Scope, b *data.Batch, device torch.Device) *torch.Tensor {
	x := torch.Wrap(s, b.Pixels, int64(b.Shape[0]), int64(b.Shape[1]), int64(b.Shape[2]), int64(b.Shape[3]))
	return x.ToDevice(device)
}

// Precision reads the name of a dtype for a network on a device: float32,
// bfloat16, float16 or auto, which is bfloat16 where the device is much faster
// with it and float32 elsewhere.
func Precision(name string, d torch.Device) (torch.DType, error) {
	switch name {
	case "auto":
		if torch.FastBFloat16(d) {
			return torch.BFloat16, nil
		}
		return torch.Float32, nil
	case "float32":
		return torch.Float32, nil
	case "bfloat16":
		return torch.BFloat16, nil
	case "float16":
		return torch.Float16, nil
	}
	return 0, fault.Inputf("precision %q: give auto, float32, bfloat16 or float16", name)
}

// InPrecision runs f, under autocast unless the precision is float32.
func InPrecision(device torch.Device, precision torch.DType, f func()) {
	if precision == torch.Float32 {
		f()
		return
	}
	torch.Autocast(device, precision, f)
}

// Fits checks that the network takes images of so many channels, and so many
// pixels each way.
func Fits(m *backbones.Model, channels, side int) error {
	in := m.Input()
	if in.Channels != channels {
		return fault.Inputf("the network takes images of %d channels, the transform makes %d; set transform.channels=%d or the model's channels to %d",
			in.Channels, channels, in.Channels, in.Channels)
	}
	if in.Takes == nil {
		return nil
	}
	return in.Takes(side)
}
