package losses

import "roadmap/pkg/torch"

func init() {
	register("softbinap", "Learning with Average Precision (Revaud et al., ICCV 2019), eq. 6-9", func() Loss {
		return &SoftBinAP{Common: common(), Bins: 20}
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
	Common `yaml:",inline"`
	Bins   int `yaml:"bins"` // B
}

// Validate implements Loss.
func (l *SoftBinAP) Validate() error {
	if err := atLeastTwoBins(l.Bins); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss. Every score adds 1 to h in all, so Σ h⁺ = |P_i| and
// the sum is that of FastAP.
func (l *SoftBinAP) Forward(b *Block) *torch.Tensor {
	place := b.Scores.RSubScalar(1).MulScalar(l.perScore())
	last := float64(l.Bins - 1)
	inside := place.GtScalar(0).And(place.LtScalar(last)) // beyond, and at the corners, the derivative is 0
	return b.histogramAP(inside.Where(place, place.Detach().Clamp(0, last)), l.Bins)
}

// perScore is the number of bins that a difference of scores of 1 spans.
func (l *SoftBinAP) perScore() float64 { return float64(l.Bins-1) / 2 }

func (l *SoftBinAP) temporaries(int) int { return histogramTemporaries(l.Bins) }

func (l *SoftBinAP) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankHistogram, Weight: b.perRanked(), P: []float64{l.perScore(), float64(l.Bins), 1}}}
}
