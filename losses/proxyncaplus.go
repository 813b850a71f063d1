package losses

import "roadmap/pkg/torch"

func init() {
	register("proxynca++", "ProxyNCA++ (Teh et al., ECCV 2020), eq. 4", func() Loss {
		return &ProxyNCAPlus{Common: common(), Temperature: 1. / 9}
	})
}

// ProxyNCAPlus is the softmax over all proxies of ProxyNCA++ (Teh et al.
// 2020), eq. 4, for a query x of class proxy p:
//
//	L = −ln( e^{−d(x, p)/T} / Σ_z e^{−d(x, z)/T} ),  d = 2 − 2s
//
// The loss is the mean over all queries.
type ProxyNCAPlus struct {
	Common      `yaml:",inline"`
	Temperature float64 `yaml:"temperature"` // T, in units of squared distance
}

// Validate implements Loss.
func (l *ProxyNCAPlus) Validate() error {
	if err := positive("temperature", l.Temperature); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *ProxyNCAPlus) Forward(b *Block) *torch.Tensor {
	return b.softmax(b.Scores.MulScalar(2 / l.Temperature))
}

func (l *ProxyNCAPlus) usesProxies()        {}
func (l *ProxyNCAPlus) temporaries(int) int { return 8 }

func (l *ProxyNCAPlus) terms(b *Block) []torch.RankTerm { return b.softmaxTerm(2/l.Temperature, false) }
