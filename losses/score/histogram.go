package score

/*
#include "kernels.h"
*/
import "C"

import "roadmap/pkg/torch"

// Bins are the bins of a histogram of scores with triangular counts: bin b, from
// 0, is centred at the score 1 − b/PerScore, and a score counts for each bin by
// max(0, 1 − its distance from the centre · PerScore).
type Bins struct {
	PerScore float64 // bins that a difference of scores of 1 spans
	Count    int
	Flat     bool // beyond the outermost centres a score counts 1 there; else ever less
}

// HistogramPlus is h⁺, the soft counts of a query's positives: [q, bins] float64.
func (b *Block) HistogramPlus(bins Bins) *torch.Tensor { return b.histogram(b.Positives, bins) }

// HistogramMinus is the soft counts of a query's negatives: [q, bins] float64.
func (b *Block) HistogramMinus(bins Bins) *torch.Tensor { return b.histogram(b.Negatives, bins) }

// histogram is the soft counts of the entries of each row of x [q, n]:
// [q, bins] float64. The derivative at a corner of a triangle is 0.
func (b *Block) histogram(x *torch.Tensor, bins Bins) *torch.Tensor {
	if !ready(x) {
		return x.Scope().Dead()
	}
	if b.plain || !kernels(x) {
		var value *torch.Tensor
		torch.NoGrad(func() { value = bins.plain(x) })
		return torch.Function(value, []*torch.Tensor{x}, bins.plainBackward)
	}
	kernel := C.sc_bins{per_score: C.double(bins.PerScore), bins: C.int64_t(bins.Count), flat: flag(bins.Flat)}
	value := x.Scope().Empty([]int64{x.Size(0), int64(bins.Count)}, torch.Float64, torch.CPU)
	if ready(value) {
		done(value, C.sc_histogram(how(x), matrixOf(x), &kernel, floats(value)))
	}
	return torch.Function(value, []*torch.Tensor{x}, func(grad *torch.Tensor, inputs []*torch.Tensor) []*torch.Tensor {
		x := inputs[0]
		byX := x.EmptyLike()
		if grad = grad.Contiguous(); ready(grad, byX) {
			done(grad, C.sc_histogram_backward(how(x), matrixOf(x), &kernel, floats(grad), byX.Data()))
		}
		return []*torch.Tensor{byX}
	})
}

// plain is histogram by tensor operations, bin by bin.
func (bins Bins) plain(x *torch.Tensor) *torch.Tensor {
	counts := make([]*torch.Tensor, bins.Count)
	for bin := range counts {
		counts[bin] = bins.plainBin(x, bin)
	}
	return torch.Stack(counts, 1)
}

// plainBackward has autograd differentiate plainBin, computed once more.
func (bins Bins) plainBackward(grad *torch.Tensor, inputs []*torch.Tensor) []*torch.Tensor {
	byX := inputs[0].ZerosLike()
	for bin := range bins.Count {
		torch.EnableGrad(func() {
			x := inputs[0].Detach().RequireGrad(true)
			by := torch.Gradients(bins.plainBin(x, bin), grad.Select(1, int64(bin)), []*torch.Tensor{x}, false, false)
			torch.NoGrad(func() { byX.AddInPlace(by[0]) })
		})
	}
	return []*torch.Tensor{byX}
}

// plainBin is the counts of one bin, [q].
func (bins Bins) plainBin(x *torch.Tensor, bin int) *torch.Tensor {
	real := x.GtScalar(noEntry)
	place := x.RSubScalar(1).MulScalar(bins.PerScore)
	if bins.Flat {
		last := float64(bins.Count - 1)
		inside := place.GtScalar(0).And(place.LtScalar(last)) // beyond, and at the corners, the derivative is 0
		place = inside.Where(place, place.Detach().Clamp(0, last))
	}
	counts := place.SubScalar(float64(bin)).Abs().RSubScalar(1).ReLU()
	return real.Where(counts, zero(counts)).SumDim([]int64{1}, false).ToDType(torch.Float64)
}
