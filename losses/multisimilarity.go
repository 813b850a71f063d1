package losses

import (
	"math"

	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("multisimilarity", "Multi-similarity (Wang et al., CVPR 2019), eq. 15, 16", func() Loss {
		return &MultiSimilarity{Alpha: 2, Beta: 50, Base: 0.5, Epsilon: 0.1}
	})
}

// MultiSimilarity weighs a pair by how it stands among the other pairs.
// Multi-similarity (Wang et al. 2019), eq. 16, for query i:
//
//	L_i = 1/α ln(1 + Σ_{k∈P'_i} e^{−α(s_k − λ)})  +  1/β ln(1 + Σ_{k∈N'_i} e^{β(s_k − λ)})
//
// over the mined pairs (eq. 11 and 12): P'_i holds the positives with
// s − ε < max over N_i, N'_i the negatives with s + ε > min over P_i. A query
// without positives or without negatives contributes 0. The loss is the mean of
// L_i over all queries.
type MultiSimilarity struct {
	Alpha   float64 `yaml:"alpha" in:"(0,inf)"`      // sharpness α over positives, per unit of score
	Beta    float64 `yaml:"beta" in:"(0,inf)"`       // sharpness β over negatives, per unit of score
	Base    float64 `yaml:"base" in:"(-inf,inf)"`    // λ, the score between the two
	Epsilon float64 `yaml:"epsilon" in:"(-inf,inf)"` // margin ε of the mining, in units of score
}

// Forward implements Loss.
func (l *MultiSimilarity) Forward(b *score.Block) *torch.Tensor {
	p, n := b.Positives, b.Negatives
	inf := p.Scope().Full(nil, math.Inf(1), p.DType(), p.Device())
	least := b.Real().Where(p.Detach(), inf).AMin([]int64{1}, true) // [q, 1] min over P_i
	most := n.Detach().AMax([]int64{1}, true)                       // [q, 1] max over N_i
	positive := b.Real().And(p.Detach().SubScalar(l.Epsilon).Lt(most))
	negative := n.Detach().AddScalar(l.Epsilon).Gt(least)
	return b.Mean(logOnePlus(p.SubScalar(l.Base).MulScalar(-l.Alpha), positive).DivScalar(l.Alpha).
		Add(logOnePlus(n.SubScalar(l.Base).MulScalar(l.Beta), negative).DivScalar(l.Beta)))
}

// logOnePlus is ln(1 + Σ_mask e^x) of x [q, g] for each row, [q], without overflow.
func logOnePlus(x, mask *torch.Tensor) *torch.Tensor {
	one := x.Scope().Zeros([]int64{x.Size(0), 1}, x.DType(), x.Device()) // e⁰
	none := x.Scope().Full(nil, math.Inf(-1), x.DType(), x.Device())
	return torch.Cat([]*torch.Tensor{mask.Where(x, none), one}, 1).LogSumExp([]int64{1}, false)
}

// Traits says that the loss is over pairs.
func (l *MultiSimilarity) Traits() score.Traits { return score.Traits{Pairs: true} }
