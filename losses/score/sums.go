package score

/*
#include "kernels.h"
*/
import "C"

import (
	"iter"

	"roadmap/pkg/torch"
)

// A Step is a function of differences t of scores that counts one score above
// another, by 1 or less sharply.
type Step struct {
	kernel C.sc_step
	tensor func(t *torch.Tensor) *torch.Tensor // the same by tensor operations
	zero   float64                             // its value at 0
	flat   bool                                // it has no gradient
}

// Heaviside is H(t): 1 for t ≥ 0, else 0. It has no gradient.
func Heaviside() Step {
	return Step{
		kernel: C.sc_step{kind: C.SC_HEAVISIDE},
		tensor: func(t *torch.Tensor) *torch.Tensor { return t.GeScalar(0).ToDType(t.DType()) },
		zero:   1,
		flat:   true,
	}
}

// Sigmoid is σ(t/τ).
func Sigmoid(tau float64) Step {
	return Step{
		kernel: C.sc_step{kind: C.SC_SIGMOID, tau: C.double(tau)},
		tensor: func(t *torch.Tensor) *torch.Tensor { return t.DivScalar(tau).Sigmoid() },
		zero:   0.5,
	}
}

// UpperBound is the function H⁻ of ROADMAP (Ramzi et al. 2021), eq. 5:
//
//	H⁻(t) = σ(t/τ)                t < 0
//	      = σ(t/τ) + Start        0 ≤ t ≤ Delta
//	      = Rho (t − Delta) + Offset    t > Delta
type UpperBound struct {
	Tau, Rho, Delta, Start, Offset float64
	ZeroIsLow                      bool // t = 0 falls in the first branch
}

// Step is H⁻.
func (u UpperBound) Step() Step {
	zero := 0.5 + u.Start
	if u.ZeroIsLow {
		zero = 0.5
	}
	return Step{
		kernel: C.sc_step{
			kind: C.SC_UPPER_BOUND, tau: C.double(u.Tau), rho: C.double(u.Rho), delta: C.double(u.Delta),
			start: C.double(u.Start), offset: C.double(u.Offset), zero_is_low: flag(u.ZeroIsLow),
		},
		tensor: u.tensor,
		zero:   zero,
	}
}

func (u UpperBound) tensor(t *torch.Tensor) *torch.Tensor {
	up := t.GeScalar(0)
	if u.ZeroIsLow {
		up = t.GtScalar(0)
	}
	low := t.DivScalar(u.Tau).Sigmoid().Add(up.ToDType(t.DType()).MulScalar(u.Start))
	linear := t.SubScalar(u.Delta).MulScalar(u.Rho).AddScalar(u.Offset)
	return t.GtScalar(u.Delta).Where(linear, low)
}

// Hinge is [t + Margin]₊, and 0 where that is not above Least. Its derivative at
// a kink is 0.
type Hinge struct {
	Margin, Least float64
	Below         bool // 0 for t ≥ 0 too
}

// Step is the hinge.
func (h Hinge) Step() Step {
	s := h.step(C.SC_HINGE, func(x *torch.Tensor) *torch.Tensor { return x })
	s.zero *= h.Margin
	return s
}

// Active is 1 where the hinge is above 0, and 0 elsewhere. It has no gradient.
func (h Hinge) Active() Step {
	s := h.step(C.SC_HINGE_ACTIVE, (*torch.Tensor).OnesLike)
	s.flat = true
	return s
}

func (h Hinge) step(kind C.int, value func(x *torch.Tensor) *torch.Tensor) Step {
	s := Step{
		kernel: C.sc_step{kind: kind, margin: C.double(h.Margin), least: C.double(h.Least), below: flag(h.Below)},
		tensor: func(t *torch.Tensor) *torch.Tensor {
			x := t.AddScalar(h.Margin)
			in := x.GtScalar(h.Least)
			if h.Below {
				in = in.And(t.LtScalar(0))
			}
			return in.Where(value(x), zero(x))
		},
	}
	if h.Margin > h.Least && !h.Below {
		s.zero = 1
	}
	return s
}

// RankPlus is rank⁺(k) = 1 + Σ_{j∈P_i\{k}} h(s_j − s_k) for each positive k of
// each query: [q, p] float64, 1 behind a query's last positive.
func (b *Block) RankPlus(h Step) *torch.Tensor {
	return b.sums(h, b.Positives, b.Positives, 1-h.zero, 1) // k itself adds h(0), a constant
}

// RankMinus is rank⁻(k) = Σ_{j∈N_i} h(s_j − s_k) for each positive k of each
// query: [q, p] float64, 0 behind a query's last positive.
func (b *Block) RankMinus(h Step) *torch.Tensor { return b.sums(h, b.Negatives, b.Positives, 0, 0) }

// SumNegatives is Σ_{j∈N_i} h(s_j) for each query: [q] float64.
func (b *Block) SumNegatives(h Step) *torch.Tensor {
	n := b.Negatives
	origin := n.Scope().Zeros([]int64{n.Size(0), 1}, n.DType(), n.Device())
	return b.sums(h, n, origin, 0, 0).Squeeze(1)
}

// sums is start + Σ_j h(x_j − c) over the entries of each row of x [q, n], for
// each threshold c of at [q, m]: [q, m] float64, and padding where that is -Inf.
// Backward computes the steps once more, since that costs less than keeping them.
func (b *Block) sums(h Step, x, at *torch.Tensor, start, padding float64) *torch.Tensor {
	if !ready(x, at) {
		return x.Scope().Dead()
	}
	kernel := !b.plain && kernels(x)
	var value *torch.Tensor
	if kernel {
		if value = x.Scope().Empty(at.Shape(), torch.Float64, torch.CPU); ready(value) {
			done(value, C.sc_sums(how(x), matrixOf(x), matrixOf(at), &h.kernel, C.double(start), C.double(padding), floats(value)))
		}
	} else {
		torch.NoGrad(func() {
			sums := h.plainSums(x, at, b.limit).AddScalar(start)
			value = at.GtScalar(noEntry).Where(sums, sums.FullLike(padding))
		})
	}
	if h.flat {
		return value
	}
	return torch.Function(value, []*torch.Tensor{x, at}, func(grad *torch.Tensor, inputs []*torch.Tensor) []*torch.Tensor {
		x, at := inputs[0], inputs[1]
		if !kernel {
			return h.plainBackward(x, at, grad, b.limit)
		}
		byX, byAt := x.EmptyLike(), at.EmptyLike()
		if grad = grad.Contiguous(); ready(grad, byX, byAt) {
			done(grad, C.sc_sums_backward(how(x), matrixOf(x), matrixOf(at), &h.kernel, floats(grad), byX.Data(), byAt.Data()))
		}
		return []*torch.Tensor{byX, byAt}
	})
}

// plainSums is sums by tensor operations. No more than limit bytes of
// differences exist at once.
func (h Step) plainSums(x, at *torch.Tensor, limit int64) *torch.Tensor {
	var sums []*torch.Tensor
	for at := range parts(x, at, limit) {
		sums = append(sums, h.plainPart(x, at))
	}
	return torch.Cat(sums, 1)
}

// plainBackward has autograd differentiate plainPart, computed once more.
func (h Step) plainBackward(x, at, grad *torch.Tensor, limit int64) []*torch.Tensor {
	byX := x.ZerosLike()
	var byAt []*torch.Tensor
	first := int64(0)
	for at := range parts(x, at, limit) {
		torch.EnableGrad(func() {
			in := []*torch.Tensor{x.Detach().RequireGrad(true), at.Detach().RequireGrad(true)}
			by := torch.Gradients(h.plainPart(in[0], in[1]), grad.Narrow(1, first, at.Size(1)), in, false, false)
			torch.NoGrad(func() { byX.AddInPlace(by[0]) })
			byAt = append(byAt, by[1])
		})
		first += at.Size(1)
	}
	return []*torch.Tensor{byX, torch.Cat(byAt, 1)}
}

// parts cuts thresholds at [q, p] into columns [q, m] for which differences
// [q, m, n] with x [q, n] fit into limit bytes.
func parts(x, at *torch.Tensor, limit int64) iter.Seq[*torch.Tensor] {
	p, step := at.Size(1), max(1, limit/(x.Numel()*x.DType().Bytes()))
	return func(yield func(*torch.Tensor) bool) {
		for k := int64(0); k < p; k += step {
			if !yield(at.Narrow(1, k, min(step, p-k))) {
				return
			}
		}
	}
}

// plainPart is sums for thresholds at [q, m].
func (h Step) plainPart(x, at *torch.Tensor) *torch.Tensor {
	real := at.GtScalar(noEntry)
	steps := h.tensor(x.Unsqueeze(1).Sub(real.Where(at, zero(at)).Unsqueeze(2))) // [q, m, n]
	sums := steps.SumDim([]int64{2}, false).ToDType(torch.Float64)
	return real.Where(sums, zero(sums))
}
