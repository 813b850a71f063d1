package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("recallk", "Recall@k surrogate (Patel et al., CVPR 2022), eq. 4-6", func() Loss {
		return &RecallK{Common: common(), K: []int{1, 2, 4, 8, 16}, Tau: 0.01, TauRank: 1, Variant: "paper"}
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
	Common  `yaml:",inline"`
	K       []int   `yaml:"k"`        // lengths k of the short lists
	Tau     float64 `yaml:"tau"`      // temperature τ of the sigmoid over differences, in units of score
	TauRank float64 `yaml:"tau_rank"` // temperature of the sigmoid over ranks, in ranks
	Variant string  `yaml:"variant"`  // "paper" or "released"
}

// Validate implements Loss.
func (l *RecallK) Validate() error {
	if len(l.K) == 0 || len(l.K) > 64 {
		return fault.Inputf("k is %v; give between 1 and 64 lengths of short lists", l.K)
	}
	for _, k := range l.K {
		if k < 1 {
			return fault.Inputf("k is %v; give whole numbers of at least 1", l.K)
		}
	}
	if l.Variant != "paper" && l.Variant != "released" {
		return fault.Inputf("variant is %q; give paper or released", l.Variant)
	}
	if err := positive("tau", l.Tau, "tau_rank", l.TauRank); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *RecallK) Forward(b *Block) *torch.Tensor {
	p := b.Positives()
	plus, minus := b.smoothRanks(l.Tau)
	rank := plus.Add(minus)
	recall := zero(rank)
	for _, k := range l.K {
		in := rank.RSubScalar(float64(k)).DivScalar(l.TauRank).Sigmoid() // [q, p] whether x is among the first k
		sum := p.Real.Where(in, zero(in)).SumDim([]int64{1}, false)
		of := p.Count
		if l.Variant == "released" {
			sum, of = sum.ClampMax(float64(k)), of.ClampMax(float64(k))
		}
		recall = recall.Add(sum.Div(of).DivScalar(float64(len(l.K))))
	}
	return b.MeanRanked(p.present().Sub(recall))
}

func (l *RecallK) terms(b *Block) []torch.RankTerm {
	p := []float64{l.Tau, l.TauRank, flag(l.Variant == "released")}
	for _, k := range l.K {
		p = append(p, float64(k))
	}
	return []torch.RankTerm{{Kind: torch.RankRecall, Weight: b.perRanked(), P: p}}
}
