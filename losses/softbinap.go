package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("softbinap", "Learning with Average Precision (Revaud et al., ICCV 2019), eq. 6-9", func() Loss {
		return &SoftBinAP{Bins: 20}
	})
}

// SoftBinAP is AP over a histogram of the scores, the listwise loss of Revaud
// et al. 2019. For query i with B bins, centres c_b from 1 down to −1 and width
// 2/(B−1):
//
//	h_b = Σ max(0, 1 − |s − c_b| / width)    h⁺ over P_i, h over P_i ∪ N_i
//	prec_b = Σ_{b'≤b} h⁺_b' / Σ_{b'≤b} h_b'    rec_b = h⁺_b / Σ h⁺
//	L_i = 1 − Σ_b prec_b rec_b
//
// The outermost bins stay flat beyond their centres; prec_b is 0 where no score
// has come yet. The loss is the mean of L_i over the queries that have a
// positive.
type SoftBinAP struct {
	Bins int `yaml:"bins" in:"[2,65536]"` // B
}

// Forward implements Loss. Every score adds 1 to h in all, so Σ h⁺ = |P_i| and
// the sum is that of FastAP.
func (l *SoftBinAP) Forward(b *score.Block) *torch.Tensor {
	return histogramAP(b, score.Bins{PerScore: float64(l.Bins-1) / 2, Count: l.Bins, Flat: true})
}
