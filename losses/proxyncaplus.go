package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("proxynca++", "ProxyNCA++ (Teh et al., ECCV 2020), eq. 4", func() Loss {
		return &ProxyNCAPlus{Temperature: 1. / 9}
	})
}

// ProxyNCAPlus is the softmax over all proxies of ProxyNCA++ (Teh et al.
// 2020), eq. 4, for a query x of class proxy p:
//
//	L = −ln( e^{−d(x, p)/T} / Σ_z e^{−d(x, z)/T} ),  d = 2 − 2s
//
// The loss is the mean over all queries.
type ProxyNCAPlus struct {
	Temperature float64 `yaml:"temperature" in:"(0,inf)"` // T, in units of squared distance
}

// Forward implements Loss.
func (l *ProxyNCAPlus) Forward(b *score.Block) *torch.Tensor { return softmax(b, 2/l.Temperature) }

// Traits says that the gallery is proxies.
func (l *ProxyNCAPlus) Traits() score.Traits { return score.Traits{Proxies: true} }
