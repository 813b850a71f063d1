package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("proxynca", "Proxy-NCA (Movshovitz-Attias et al., ICCV 2017), eq. 6", func() Loss {
		return &ProxyNCA{Scale: 1}
	})
}

// ProxyNCA attracts a query x to the proxy p of its class and repels it from
// the others. Proxy-NCA (Movshovitz-Attias et al. 2017), eq. 6, for a query:
//
//	L = −ln( e^{−c d(x, p)} / Σ_{z≠p} e^{−c d(x, z)} ),  d = 2 − 2s
//
// c is the scale. The loss is the mean over all queries. A single proxy has no
// others, and the loss is 0.
type ProxyNCA struct {
	Scale float64 `yaml:"scale" in:"(0,inf)"` // factor c of the squared distances
}

// Forward implements Loss.
func (l *ProxyNCA) Forward(b *score.Block) *torch.Tensor {
	if b.Negatives.Size(1) == 1 {
		return b.Positives.Sum().MulScalar(0)
	}
	own, others := b.Positives.MulScalar(2*l.Scale), b.Negatives.MulScalar(2*l.Scale) // −c d up to a constant that cancels
	return b.Mean(others.LogSumExp([]int64{1}, false).Sub(own.Squeeze(1)))
}

// Traits says that the gallery is proxies.
func (l *ProxyNCA) Traits() score.Traits { return score.Traits{Proxies: true} }
