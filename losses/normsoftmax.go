package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("normsoftmax", "Classification is a strong baseline (Zhai and Wu, BMVC 2019), eq. 4", func() Loss {
		return &NormSoftmax{Temperature: 0.05}
	})
}

// NormSoftmax is the softmax cross-entropy of cosines with the proxies. Zhai
// and Wu 2019, eq. 4, for a query of class y:
//
//	L = −ln( e^{s_y/σ} / Σ_z e^{s_z/σ} )
//
// σ is the temperature. The loss is the mean over all queries.
type NormSoftmax struct {
	Temperature float64 `yaml:"temperature" in:"(0,inf)"` // σ, in units of score
}

// Forward implements Loss.
func (l *NormSoftmax) Forward(b *score.Block) *torch.Tensor { return softmax(b, 1/l.Temperature) }

// Traits says that the gallery is proxies.
func (l *NormSoftmax) Traits() score.Traits { return score.Traits{Proxies: true} }

// softmax is the block's share of the mean cross-entropy of the scores with
// proxies, times scale.
func softmax(b *score.Block, scale float64) *torch.Tensor {
	logits := torch.Cat([]*torch.Tensor{b.Positives, b.Negatives}, 1).MulScalar(scale) // the own proxy first
	return b.Mean(logits.LogSoftmax(1).Select(1, 0).Neg())
}
