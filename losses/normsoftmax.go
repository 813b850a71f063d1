package losses

import "roadmap/pkg/torch"

func init() {
	register("normsoftmax", "Classification is a strong baseline (Zhai and Wu, BMVC 2019), eq. 4", func() Loss {
		return &NormSoftmax{Common: common(), Temperature: 0.05}
	})
}

// NormSoftmax is the softmax cross-entropy of cosines with the proxies. Zhai
// and Wu 2019, eq. 4, for a query of class y:
//
//	L = −ln( e^{s_y/σ} / Σ_z e^{s_z/σ} )
//
// σ is the temperature. The loss is the mean over all queries.
type NormSoftmax struct {
	Common      `yaml:",inline"`
	Temperature float64 `yaml:"temperature"` // σ, in units of score
}

// Validate implements Loss.
func (l *NormSoftmax) Validate() error {
	if err := positive("temperature", l.Temperature); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *NormSoftmax) Forward(b *Block) *torch.Tensor {
	return b.softmax(b.Scores.DivScalar(l.Temperature))
}

func (l *NormSoftmax) usesProxies()        {}
func (l *NormSoftmax) temporaries(int) int { return 8 }

func (l *NormSoftmax) terms(b *Block) []torch.RankTerm { return b.softmaxTerm(1/l.Temperature, false) }
