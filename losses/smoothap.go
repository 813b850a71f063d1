package losses

import "roadmap/pkg/torch"

func init() {
	register("smoothap", "Smooth-AP (Brown et al., ECCV 2020), eq. 6", func() Loss {
		return &SmoothAP{Common: common(), Tau: 0.01}
	})
}

// SmoothAP replaces the step function in AP by a sigmoid. Smooth-AP (Brown et
// al. 2020), eq. 6, for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rank⁺(k) / (rank⁺(k) + rank⁻(k))
//	rank⁺(k) = 1 + Σ_{j∈P_i\{k}} σ((s_j − s_k)/τ)
//	rank⁻(k) = Σ_{j∈N_i} σ((s_j − s_k)/τ)
//
// The loss is the mean of L_i over the queries that have a positive.
type SmoothAP struct {
	Common `yaml:",inline"`
	Tau    float64 `yaml:"tau"` // temperature τ of the sigmoid, in units of score
}

// Validate implements Loss.
func (l *SmoothAP) Validate() error {
	if err := positive("tau", l.Tau); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *SmoothAP) Forward(b *Block) *torch.Tensor {
	plus, minus := b.smoothRanks(l.Tau)
	return b.oneMinus(plus.Div(plus.Add(minus)))
}

// smoothRanks are rank⁺ and rank⁻ of every positive, [q, p], with the sigmoid
// of temperature tau for the step function.
func (b *Block) smoothRanks(tau float64) (plus, minus *torch.Tensor) {
	p := b.Positives()
	above := func(s *torch.Tensor, mask *torch.Tensor) *torch.Tensor { // [q, p] Σ over mask of σ((s_j − s_k)/τ)
		smooth := s.Unsqueeze(1).Sub(p.Scores.Unsqueeze(2)).DivScalar(tau).Sigmoid()
		return mask.Unsqueeze(1).Where(smooth, zero(smooth)).SumDim([]int64{2}, false)
	}
	// k itself adds σ(0) = ½ to its own sum, without gradient.
	return above(p.Scores, p.Real).AddScalar(1 - 0.5), above(b.Scores, b.Negative)
}

// oneMinus is the block's share of the mean over ranked queries of one minus
// the mean of terms [q, p] over the query's positives.
func (b *Block) oneMinus(terms *torch.Tensor) *torch.Tensor {
	p := b.Positives()
	return b.MeanRanked(p.present().Sub(p.mean(terms)))
}

func (l *SmoothAP) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankSmoothAP, Weight: b.perRanked(), P: []float64{l.Tau}}}
}
