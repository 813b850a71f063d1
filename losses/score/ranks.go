package score

/*
#include "kernels.h"
*/
import "C"

import "roadmap/pkg/torch"

// Blackbox is how a ranking is differentiated by RaMBO (Rolínek et al. 2020).
// Scores are shifted to s − margin/2 on P_i and s + margin/2 on N_i (eq. 14).
// rk is the descending rank among n = |P_i ∪ N_i| of them, from 1, ties in the
// order of the gallery, and r̃ = rk/n. With g = ∂L/∂r̃ the gradient is that of a
// piecewise linear interpolation of the ranking (alg. 1):
//
//	∂L/∂s = −(r̃(s) − r̃(s + λ g)) / λ
//
// It is not linear in g, so g is that of the bare loss, its mean over the
// queries included; factors around the loss multiply the result.
type Blackbox struct {
	Lambda float64 `yaml:"lambda" in:"(0,inf)"`    // interpolation λ: how far scores move along g
	Margin float64 `yaml:"margin" in:"(-inf,inf)"` // between positives and negatives, in units of score
}

// Ranks are rk(k), the rank of each positive k of a query among all, with the
// gradient of alg. 1, and rk⁺(k), that among its positives, held constant: both
// [q, p] float64, 1 behind a query's last positive.
func (b *Block) Ranks(o Blackbox) (rank, plus *torch.Tensor) {
	s, positives, negatives := b.Positives.Scope(), b.Positives, b.Negatives
	if !ready(positives, negatives, b.columns) {
		return s.Dead(), s.Dead()
	}
	inputs := []*torch.Tensor{negatives, positives}
	if b.plain || !kernels(positives) {
		torch.NoGrad(func() { rank, plus = o.plain(negatives, positives, b.columns) })
		return torch.Function(rank, inputs, func(grad *torch.Tensor, in []*torch.Tensor) []*torch.Tensor {
			return o.plainBackward(in[0], in[1], b.columns, grad)
		}), plus
	}
	rank, plus = s.Empty(positives.Shape(), torch.Float64, torch.CPU), s.Empty(positives.Shape(), torch.Float64, torch.CPU)
	if ready(rank, plus) {
		ranking := o.kernel(negatives, positives, b.columns)
		done(rank, C.sc_ranks(how(positives), &ranking, floats(rank), floats(plus)))
	}
	held := rank.Detach()
	return torch.Function(rank, inputs, func(grad *torch.Tensor, in []*torch.Tensor) []*torch.Tensor {
		byNegatives, byPositives := in[0].EmptyLike(), in[1].EmptyLike()
		if grad = grad.Contiguous(); ready(grad, held, byNegatives, byPositives) {
			ranking := o.kernel(in[0], in[1], b.columns)
			done(grad, C.sc_ranks_backward(how(in[1]), &ranking, floats(held), floats(grad), byNegatives.Data(), byPositives.Data()))
		}
		return []*torch.Tensor{byNegatives, byPositives}
	}), plus
}

func (o Blackbox) kernel(negatives, positives, columns *torch.Tensor) C.sc_ranking {
	return C.sc_ranking{
		negatives: matrixOf(negatives), positives: matrixOf(positives), column: (*C.int64_t)(columns.Data()),
		margin: C.double(o.Margin), lambda: C.double(o.Lambda),
	}
}

// plain is Ranks by tensor operations.
func (o Blackbox) plain(negatives, positives, columns *torch.Tensor) (rank, plus *torch.Tensor) {
	real := positives.GtScalar(noEntry)
	one := zero(positives).AddScalar(1)
	row, at := o.row(negatives, positives, columns)
	rank = real.Where(ranks(row).Gather(1, at), one)
	plus = real.Where(ranks(positives), one)
	return rank.ToDType(torch.Float64), plus.ToDType(torch.Float64)
}

func (o Blackbox) plainBackward(negatives, positives, columns, grad *torch.Tensor) []*torch.Tensor {
	row, at := o.row(negatives, positives, columns)
	n := row.GtScalar(noEntry).SumDim([]int64{1}, true).ToDType(row.DType()).ClampMin(1) // [q, 1]
	// r̃ = rk/n, so ∂/∂r̃ = n ∂/∂rk.
	g := positives.GtScalar(noEntry).Where(grad.ToDType(row.DType()).Mul(n), zero(row))
	moved, _ := o.row(negatives, positives.Add(g.MulScalar(o.Lambda)), columns)
	by := ranks(moved).Sub(ranks(row)).Div(n).DivScalar(o.Lambda)
	return []*torch.Tensor{by.Narrow(1, 0, negatives.Size(1)), by.Gather(1, at)}
}

// row is the shifted scores of all entries in the order of the gallery,
// [q, g+1], and the columns of the positives in it. What stands behind a
// query's last positive goes to the column more.
func (o Blackbox) row(negatives, positives, columns *torch.Tensor) (row, at *torch.Tensor) {
	more := negatives.Scope().Full([]int64{negatives.Size(0), 1}, noEntry, negatives.DType(), negatives.Device())
	row = torch.Cat([]*torch.Tensor{negatives.AddScalar(o.Margin / 2), more}, 1)
	last := columns.Scope().Full(nil, float64(negatives.Size(1)), torch.Int64, columns.Device())
	at = positives.GtScalar(noEntry).Where(columns, last)
	return row.Scatter(1, at, positives.SubScalar(o.Margin/2)), at
}

// ranks are the descending ranks of s [q, n] from 1, stable on ties.
func ranks(s *torch.Tensor) *torch.Tensor {
	_, order := s.SortStable(true, 1, true)
	places := s.Scope().ArangeFrom(1, float64(s.Size(1)+1), 1, s.DType(), s.Device())
	return s.ZerosLike().Scatter(1, order, places.Unsqueeze(0).ExpandAs(order))
}
