package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("blackboxrecall", "RaMBO (Rolínek et al., CVPR 2020), alg. 1, eq. 14, 16-20", func() Loss {
		return &BlackboxRecall{Blackbox: score.Blackbox{Lambda: 4, Margin: 0.02}, Weight: "log"}
	})
}

// BlackboxRecall is a loss on recall over all lengths of the short list, of
// RaMBO (Rolínek et al. 2020), eq. 16 to 20, for query i:
//
//	L_i = 1/|P_i| Σ_{k∈P_i} w(rk(k) − rk⁺(k)),  w(x) = ln(1 + x) or ln(1 + ln(1 + x))
//
// The difference counts the negatives ranked above k; rk⁺ is held constant. The
// loss is the mean of L_i over the queries that have a positive.
type BlackboxRecall struct {
	score.Blackbox `yaml:",inline"`
	Weight         string `yaml:"weight" in:"{log,loglog}"` // w: "log" or "loglog"
}

// Forward implements Loss.
func (l *BlackboxRecall) Forward(b *score.Block) *torch.Tensor {
	rank, plus := b.Ranks(l.Blackbox)
	loss := rank.Sub(plus).Log1p()
	if l.Weight == "loglog" {
		loss = loss.Log1p()
	}
	return b.MeanRanked(loss)
}
