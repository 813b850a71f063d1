package losses

import (
	"math"

	"roadmap/pkg/torch"
)

func init() {
	register("multisimilarity", "Multi-similarity (Wang et al., CVPR 2019), eq. 15, 16", func() Loss {
		return &MultiSimilarity{Common: common(), Alpha: 2, Beta: 50, Base: 0.5, Epsilon: 0.1}
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
	Common  `yaml:",inline"`
	Alpha   float64 `yaml:"alpha"`   // sharpness α over positives, per unit of score
	Beta    float64 `yaml:"beta"`    // sharpness β over negatives, per unit of score
	Base    float64 `yaml:"base"`    // λ, the score between the two
	Epsilon float64 `yaml:"epsilon"` // margin ε of the mining, in units of score
}

// Validate implements Loss.
func (l *MultiSimilarity) Validate() error {
	if err := positive("alpha", l.Alpha, "beta", l.Beta); err != nil {
		return err
	}
	if err := finite("base", l.Base, "epsilon", l.Epsilon); err != nil {
		return err
	}
	return validateAll(&l.Common)
}

// Forward implements Loss.
func (l *MultiSimilarity) Forward(b *Block) *torch.Tensor {
	s, inf := b.Scores.Detach(), math.Inf(1)
	least := b.Positive.Where(s, zero(s).AddScalar(inf)).AMin([]int64{1}, true)
	most := b.Negative.Where(s, zero(s).AddScalar(-inf)).AMax([]int64{1}, true)
	positive := b.Positive.And(s.SubScalar(l.Epsilon).Lt(most))
	negative := b.Negative.And(s.AddScalar(l.Epsilon).Gt(least))
	return b.Mean(logOnePlus(b.Scores.SubScalar(l.Base).MulScalar(-l.Alpha), positive).DivScalar(l.Alpha).
		Add(logOnePlus(b.Scores.SubScalar(l.Base).MulScalar(l.Beta), negative).DivScalar(l.Beta)))
}

// logOnePlus is ln(1 + Σ_mask e^x) of x [q, g] for each row, [q], without overflow.
func logOnePlus(x, mask *torch.Tensor) *torch.Tensor {
	one := x.Scope().Zeros([]int64{x.Size(0), 1}, x.DType(), x.Device()) // e⁰
	x = mask.Where(x, zero(x).AddScalar(math.Inf(-1)))
	return torch.Cat([]*torch.Tensor{x, one}, 1).LogSumExp([]int64{1}, false)
}

func (l *MultiSimilarity) pairLoss()           {}
func (l *MultiSimilarity) temporaries(int) int { return 16 }

func (l *MultiSimilarity) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankMultiSimilarity, Weight: 1 / float64(b.Queries), P: []float64{l.Alpha, l.Beta, l.Base, l.Epsilon}}}
}
