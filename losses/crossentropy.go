package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("crossentropy", "Pattern recognition and machine learning (Bishop, 2006), eq. 4.108: softmax cross-entropy of a linear classifier", func() Loss {
		return &CrossEntropy{Temperature: 1}
	}, func(o *score.Options) { o.Normalize = false })
}

// CrossEntropy is the softmax cross-entropy of a linear classifier without
// bias (Bishop 2006, eq. 4.108); the proxies are its weights and nothing is
// normalised. For a query x of class y:
//
//	L = −ln( e^{x·w_y/T} / Σ_z e^{x·w_z/T} )
//
// The loss is the mean over all queries.
type CrossEntropy struct {
	Temperature float64 `yaml:"temperature" in:"(0,inf)"` // T, in units of the inner product
}

// Forward implements Loss.
func (l *CrossEntropy) Forward(b *score.Block) *torch.Tensor { return softmax(b, 1/l.Temperature) }

// Traits says that the gallery is proxies.
func (l *CrossEntropy) Traits() score.Traits { return score.Traits{Proxies: true} }
