package losses

import "roadmap/pkg/torch"

func init() {
	register("blackboxap", "RaMBO (Rolínek et al., CVPR 2020), alg. 1, eq. 10, 14, 21, 22", func() Loss {
		return &BlackboxAP{Common: common(), Blackbox: blackbox()}
	})
}

// BlackboxAP is one minus AP (eq. 10), for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rk⁺(k) / rk(k)
//
// rk⁺ is the rank among the positives, held constant. The loss is the mean of
// L_i over the queries that have a positive.
type BlackboxAP struct {
	Common   `yaml:",inline"`
	Blackbox `yaml:",inline"`
}

// Validate implements Loss.
func (l *BlackboxAP) Validate() error { return validateAll(&l.Common, &l.Blackbox) }

// Forward implements Loss.
func (l *BlackboxAP) Forward(b *Block) *torch.Tensor {
	return l.Blackbox.forward(b, func(rank, plus *torch.Tensor) (loss, slope *torch.Tensor) {
		ap := plus.Div(rank)
		return ap.RSubScalar(1), ap.Div(rank) // ∂(1 − rk⁺/rk)/∂rk
	})
}

func (l *BlackboxAP) temporaries(int) int { return blackboxTemporaries }

func (l *BlackboxAP) terms(b *Block) []torch.RankTerm { return l.Blackbox.term(b, 0) }
