package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("recallk", "Recall@k surrogate (Patel et al., CVPR 2022), eq. 4-6", func() Loss {
		return &RecallK{K: []int{1, 2, 4, 8, 16}, Tau: 0.01, TauRank: 1, Variant: "paper"}
	})
}

// RecallK is a smooth recall@k, averaged over several k. Patel et al. 2022,
// eq. 4 to 6, for query i:
//
//	rank(x) = 1 + Σ_{j≠x} σ((s_j − s_x)/τ)
//	L_i = 1 − 1/|K| Σ_{k∈K} 1/|P_i| Σ_{x∈P_i} σ((k − rank(x))/τ_rank)
//
// The authors' program (variant "released") divides by min(k, |P_i|) in place
// of |P_i|, and by no less than the inner sum where that is above k. The loss
// is the mean of L_i over the queries that have a positive.
type RecallK struct {
	K       []int   `yaml:"k" in:"[1,inf)"`                // lengths k of the short lists
	Tau     float64 `yaml:"tau" in:"(0,inf)"`              // temperature τ of the sigmoid over differences, in units of score
	TauRank float64 `yaml:"tau_rank" in:"(0,inf)"`         // temperature of the sigmoid over ranks, in ranks
	Variant string  `yaml:"variant" in:"{paper,released}"` // "paper" or "released"
}

// Forward implements Loss.
func (l *RecallK) Forward(b *score.Block) *torch.Tensor {
	rank := b.RankPlus(score.Sigmoid(l.Tau)).Add(b.RankMinus(score.Sigmoid(l.Tau))) // [q, p]
	k := make([]float64, len(l.K))
	for i := range k {
		k[i] = float64(l.K[i])
	}
	ks := torch.From(rank.Scope(), k).ToDevice(rank.Device())
	among := ks.Sub(rank.Unsqueeze(2)).DivScalar(l.TauRank).Sigmoid() // [q, p, k] whether a positive is among the first k
	in := b.Real().Unsqueeze(2).Where(among, among.ZerosLike()).SumDim([]int64{1}, false)
	of := b.CountPositives()
	if l.Variant == "released" {
		in, of = in.Minimum(ks), of.Minimum(ks)
	}
	return b.MeanRanked(in.Div(of).MeanDim([]int64{1}, false).RSubScalar(1))
}
