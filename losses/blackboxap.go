package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("blackboxap", "RaMBO (Rolínek et al., CVPR 2020), alg. 1, eq. 10, 14, 21, 22", func() Loss {
		return &BlackboxAP{score.Blackbox{Lambda: 4, Margin: 0.02}}
	})
}

// BlackboxAP is one minus AP of RaMBO (Rolínek et al. 2020), eq. 10, for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rk⁺(k) / rk(k)
//
// rk⁺ is the rank among the positives, held constant. The loss is the mean of
// L_i over the queries that have a positive. Scores are shifted to s − margin/2
// on P_i and s + margin/2 on N_i (eq. 14). With r̃ = rk/n, n = |P_i ∪ N_i|, and
// g = ∂L/∂r̃ the gradient is that of a piecewise linear interpolation of the
// ranking (alg. 1):
//
//	∂L/∂s = −(r̃(s) − r̃(s + λ g)) / λ
//
// It is not linear in g, so g is that of the bare loss, its mean over the
// queries included; factors around the loss multiply the result.
type BlackboxAP struct {
	score.Blackbox `yaml:",inline"`
}

// Forward implements Loss.
func (l *BlackboxAP) Forward(b *score.Block) *torch.Tensor {
	rank, plus := b.Ranks(l.Blackbox)
	return b.MeanAP(plus.Div(rank))
}
