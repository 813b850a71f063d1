package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("contrastive", "Dimensionality reduction by learning an invariant mapping (Hadsell et al., CVPR 2006), eq. 4, with hinges on cosine for squared distances", func() Loss {
		return &Contrastive{PositiveMargin: 1, NegativeMargin: 0.5}
	})
}

// Contrastive pulls positives up to one score and pushes negatives below
// another, over all pairs of a batch. It is Hadsell et al. 2006, eq. 4, with
// the cosine for the distance, a hinge for its square on both sides, and the
// two sums as means:
//
//	L = mean [positive_margin − s]₊ over positive pairs  +  mean [s − negative_margin]₊ over negative pairs
//
// Each mean is over the pairs with a term above 10⁻⁶, and 0 if there are none.
type Contrastive struct {
	PositiveMargin float64 `yaml:"positive_margin" in:"(-inf,inf)"` // score wanted of positives at least
	NegativeMargin float64 `yaml:"negative_margin" in:"(-inf,inf)"` // score wanted of negatives at most
}

// Forward implements Loss.
func (l *Contrastive) Forward(b *score.Block) *torch.Tensor {
	return violations(b, l.PositiveMargin, l.NegativeMargin, 1e-6)
}

// Traits says that the loss is over pairs, and that they are counted.
func (l *Contrastive) Traits() score.Traits { return score.Traits{Pairs: true, Totals: true} }

// violations is the block's share of the mean of [floor − s]₊ over the positive
// pairs for which it is above least, and that of [s − ceiling]₊ over the
// negative ones.
func violations(b *score.Block, floor, ceiling, least float64) *torch.Tensor {
	pull := b.Positives.RSubScalar(floor).ReLU() // [q, p]
	pulled := pull.GtScalar(least).And(b.Real())
	push := score.Hinge{Margin: -ceiling, Least: least}
	return b.Ratio(sumOver(pull, pulled), sumOver(pulled, pulled)).Add(b.Ratio(b.SumNegatives(push.Step()), b.SumNegatives(push.Active())))
}

// sumOver is the sum of values over mask, both [q, n], for each query: [q].
func sumOver(values, mask *torch.Tensor) *torch.Tensor {
	nothing := values.Scope().Zeros(nil, values.DType(), values.Device())
	return mask.Where(values, nothing).SumDim([]int64{1}, false)
}
