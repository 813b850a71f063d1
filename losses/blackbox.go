package losses

import (
	"math"

	"roadmap/pkg/torch"
)

// Blackbox is the differentiation of a ranking by RaMBO (Rolínek et al. 2020).
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
	Lambda float64 `yaml:"lambda"` // interpolation λ: how far scores move along g
	Margin float64 `yaml:"margin"` // between positives and negatives, in units of score
}

func blackbox() Blackbox { return Blackbox{Lambda: 4, Margin: 0.02} }

// Validate refuses a λ that cannot be divided by.
func (o *Blackbox) Validate() error {
	if err := positive("lambda", o.Lambda); err != nil {
		return err
	}
	return finite("margin", o.Margin)
}

// forward is the block's share of the mean of each over the positives, with
// the gradient of alg. 1. each maps rk and rk⁺ [q, p] to the loss of a positive
// and its derivative by rk.
func (o *Blackbox) forward(b *Block, each func(rank, plus *torch.Tensor) (loss, slope *torch.Tensor)) *torch.Tensor {
	var value, grad *torch.Tensor
	torch.NoGrad(func() {
		p := b.Positives()
		s := b.Scores.Detach()
		half := b.Positive.ToDType(s.DType()).MulScalar(-o.Margin).AddScalar(o.Margin / 2)
		met := b.Positive.Or(b.Negative)
		s = met.Where(s.Add(half), zero(s).AddScalar(math.Inf(-1)))
		n := met.ToDType(s.DType()).SumDim([]int64{1}, true).ClampMin(1) // [q, 1]
		rank := ranks(s)
		plus := ranks(p.Real.Where(s.Gather(1, p.Index), zero(s).AddScalar(math.Inf(-1))))
		loss, slope := each(rank.Gather(1, p.Index), plus)
		share := 1 / float64(max(b.Ranked, 1))
		value = b.MeanRanked(p.mean(loss))

		// r̃ = rk/n, so ∂/∂r̃ = n ∂/∂rk.
		g := p.Real.Where(slope.Mul(n).Div(p.Count.Unsqueeze(1)), zero(s)).MulScalar(share)
		moved := ranks(s.ScatterAdd(1, p.Index, g.MulScalar(o.Lambda)))
		grad = met.Where(moved.Sub(rank).Div(n).DivScalar(o.Lambda), zero(s))
	})
	return value.WithGrad([]*torch.Tensor{b.Scores}, []*torch.Tensor{grad})
}

// ranks are the descending ranks of s [q, n] from 1, stable on ties.
func ranks(s *torch.Tensor) *torch.Tensor {
	_, order := s.SortStable(true, 1, true)
	places := s.Scope().ArangeFrom(1, float64(s.Size(1)+1), 1, s.DType(), s.Device())
	return s.ZerosLike().Scatter(1, order, places.Unsqueeze(0).ExpandAs(order))
}

// blackboxTemporaries is what forward holds at once, in score matrices.
const blackboxTemporaries = 16

// term is the loss for the fused pass; form is 0 for AP, 1 and 2 for recall
// with log and loglog.
func (o *Blackbox) term(b *Block, form float64) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankBlackbox, Weight: 1, P: []float64{o.Lambda, o.Margin, form, b.perRanked()}}}
}
