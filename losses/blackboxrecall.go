package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("blackboxrecall", "RaMBO (Rolínek et al., CVPR 2020), alg. 1, eq. 14, 16-20", func() Loss {
		return &BlackboxRecall{Common: common(), Blackbox: blackbox(), Weight: "log"}
	})
}

// BlackboxRecall is a loss on recall over all lengths of the short list
// (eq. 16 to 20), for query i:
//
//	L_i = 1/|P_i| Σ_{k∈P_i} w(rk(k) − rk⁺(k)),  w(x) = ln(1 + x) or ln(1 + ln(1 + x))
//
// The difference counts the negatives ranked above k; rk⁺ is held constant. The
// loss is the mean of L_i over the queries that have a positive.
type BlackboxRecall struct {
	Common   `yaml:",inline"`
	Blackbox `yaml:",inline"`
	Weight   string `yaml:"weight"` // w: "log" or "loglog"
}

// Validate implements Loss.
func (l *BlackboxRecall) Validate() error {
	if l.Weight != "log" && l.Weight != "loglog" {
		return fault.Inputf("weight is %q; give log or loglog", l.Weight)
	}
	return validateAll(&l.Common, &l.Blackbox)
}

// Forward implements Loss.
func (l *BlackboxRecall) Forward(b *Block) *torch.Tensor {
	return l.Blackbox.forward(b, func(rank, plus *torch.Tensor) (loss, slope *torch.Tensor) {
		above := rank.Sub(plus)
		loss, slope = above.Log1p(), above.AddScalar(1).Reciprocal()
		if l.Weight == "loglog" {
			return loss.Log1p(), slope.Div(loss.AddScalar(1))
		}
		return loss, slope
	})
}

func (l *BlackboxRecall) temporaries(int) int { return blackboxTemporaries }

func (l *BlackboxRecall) terms(b *Block) []torch.RankTerm {
	return l.Blackbox.term(b, 1+flag(l.Weight == "loglog"))
}
