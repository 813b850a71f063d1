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
// L_i over the queries that have a positive.
type BlackboxAP struct {
	score.Blackbox `yaml:",inline"`
}

// Forward implements Loss.
func (l *BlackboxAP) Forward(b *score.Block) *torch.Tensor {
	rank, plus := b.Ranks(l.Blackbox)
	return b.MeanAP(plus.Div(rank))
}
