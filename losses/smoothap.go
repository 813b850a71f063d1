package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("smoothap", "Smooth-AP (Brown et al., ECCV 2020), eq. 6", func() Loss {
		return &SmoothAP{Tau: 0.01}
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
	Tau float64 `yaml:"tau" in:"(0,inf)"` // temperature τ of the sigmoid, in units of score
}

// Forward implements Loss.
func (l *SmoothAP) Forward(b *score.Block) *torch.Tensor {
	plus, minus := b.RankPlus(score.Sigmoid(l.Tau)), b.RankMinus(score.Sigmoid(l.Tau))
	return b.MeanAP(plus.Div(plus.Add(minus)))
}
