package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("ap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 1", func() Loss { return &AP{} })
}

// AP is one minus the true average precision, the metric itself: its value has
// no gradient, and cannot be trained on. ROADMAP (Ramzi et al. 2021), eq. 1, for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rank⁺(k) / (rank⁺(k) + rank⁻(k))
//	rank⁺(k) = 1 + Σ_{j∈P_i\{k}} H(s_j − s_k)
//	rank⁻(k) = Σ_{j∈N_i} H(s_j − s_k)
//
// H(0) = 1: a tie counts against the positive. The loss is the mean of L_i
// over the queries that have a positive.
type AP struct{}

// Forward implements Loss.
func (l *AP) Forward(b *score.Block) *torch.Tensor {
	plus, minus := b.RankPlus(score.Heaviside()), b.RankMinus(score.Heaviside())
	return b.MeanAP(plus.Div(plus.Add(minus)))
}

// Traits says that AP is a metric.
func (l *AP) Traits() score.Traits { return score.Traits{Metric: true} }
