package losses

import "roadmap/pkg/torch"

func init() {
	register("crossentropy", "Pattern recognition and machine learning (Bishop, 2006), eq. 4.108: softmax cross-entropy of a linear classifier", func() Loss {
		l := &CrossEntropy{Common: common(), Temperature: 1}
		l.Normalize = false
		return l
	})
}

// CrossEntropy is the softmax cross-entropy of a linear classifier without
// bias (Bishop 2006, eq. 4.108); the proxies are its weights and nothing is
// normalised. For a query x of class y:
//
//	L = −ln( e^{x·w_y/T} / Σ_z e^{x·w_z/T} )
//
// The loss is the mean over all queries.
type CrossEntropy struct {
	Common      `yaml:",inline"`
	Temperature float64 `yaml:"temperature"` // T, in units of the inner product
}

// Validate implements Loss.
func (l *CrossEntropy) Validate() error {
	if err := positive("temperature", l.Temperature); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *CrossEntropy) Forward(b *Block) *torch.Tensor {
	return b.softmax(b.Scores.DivScalar(l.Temperature))
}

func (l *CrossEntropy) usesProxies()        {}
func (l *CrossEntropy) temporaries(int) int { return 8 }

func (l *CrossEntropy) terms(b *Block) []torch.RankTerm { return b.softmaxTerm(1/l.Temperature, false) }
