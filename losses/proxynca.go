package losses

import (
	"math"

	"roadmap/pkg/torch"
)

func init() {
	register("proxynca", "Proxy-NCA (Movshovitz-Attias et al., ICCV 2017), eq. 6", func() Loss {
		return &ProxyNCA{Common: common(), Scale: 1}
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
	Common `yaml:",inline"`
	Scale  float64 `yaml:"scale"` // factor c of the squared distances
}

// Validate implements Loss.
func (l *ProxyNCA) Validate() error {
	if err := positive("scale", l.Scale); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *ProxyNCA) Forward(b *Block) *torch.Tensor {
	if b.Scores.Size(1) == 1 {
		return b.Scores.Sum().MulScalar(0)
	}
	logits := b.Scores.MulScalar(2 * l.Scale) // −c d up to a constant that cancels
	own := b.Positives().Index
	others := b.Negative.Where(logits, zero(logits).AddScalar(math.Inf(-1)))
	return b.Mean(others.LogSumExp([]int64{1}, false).Sub(logits.Gather(1, own).Squeeze(1)))
}

func (l *ProxyNCA) usesProxies()        {}
func (l *ProxyNCA) temporaries(int) int { return 10 }

func (l *ProxyNCA) terms(b *Block) []torch.RankTerm { return b.softmaxTerm(2*l.Scale, true) }
