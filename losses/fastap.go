package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("fastap", "FastAP (Cakir et al., CVPR 2019), eq. 14", func() Loss {
		return &FastAP{Common: common(), Bins: 10}
	})
}

// FastAP is AP over a histogram of the squared distances z = 2 − 2s. FastAP
// (Cakir et al. 2019), eq. 14, for query i with L bins, centres
// c_l = 4l/L for l = 0 … L and width 4/L:
//
//	h_l = Σ max(0, 1 − |z − c_l| / width)    h⁺ over P_i, h over P_i ∪ N_i
//	L_i = 1 − 1/|P_i| Σ_l H⁺_l h⁺_l / H_l    H the running sums of h
//
// Terms with H_l = 0 are 0. The loss is the mean of L_i over the queries that
// have a positive.
type FastAP struct {
	Common `yaml:",inline"`
	Bins   int `yaml:"bins"` // L; there are L+1 centres
}

// Validate implements Loss.
func (l *FastAP) Validate() error {
	if err := atLeastTwoBins(l.Bins); err != nil {
		return err
	}
	return l.Common.Validate()
}

// Forward implements Loss.
func (l *FastAP) Forward(b *Block) *torch.Tensor {
	return b.histogramAP(b.Scores.RSubScalar(1).MulScalar(l.perScore()), l.Bins+1)
}

// perScore is the number of bins that a difference of scores of 1 spans.
func (l *FastAP) perScore() float64 { return float64(l.Bins) / 2 }

func (l *FastAP) temporaries(int) int { return histogramTemporaries(l.Bins + 1) }

func atLeastTwoBins(bins int) error {
	if bins < 2 || bins > 1<<16 {
		return fault.Inputf("bins is %d; give at least 2 and at most %d", bins, 1<<16)
	}
	return nil
}

// histogramAP is the loss over soft histograms: place [q, g] is where a score
// falls, in widths of a bin from the first of the centres 0 … n−1.
func (b *Block) histogramAP(place *torch.Tensor, n int) *torch.Tensor {
	none := zero(place)
	sum := func(weight, mask *torch.Tensor) *torch.Tensor {
		return mask.Where(weight, none).SumDim([]int64{1}, false)
	}
	both := b.Positive.Or(b.Negative)
	var all, positive *torch.Tensor // [q] running sums H and H⁺
	var ap *torch.Tensor
	for bin := range n {
		weight := place.SubScalar(float64(bin)).Abs().RSubScalar(1).ReLU() // [q, g] triangle
		h, hPlus := sum(weight, both), sum(weight, b.Positive)
		if bin == 0 {
			all, positive = h, hPlus
		} else {
			all, positive = all.Add(h), positive.Add(hPlus)
		}
		term := positive.Mul(hPlus).Div(all.GtScalar(0).Where(all, all.OnesLike()))
		if bin == 0 {
			ap = term
		} else {
			ap = ap.Add(term)
		}
	}
	p := b.Positives()
	return b.MeanRanked(p.present().Sub(ap.Div(p.Count)))
}

// histogramTemporaries is what histogramAP keeps for autograd.
func histogramTemporaries(n int) int { return 6 * n }

func (l *FastAP) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankHistogram, Weight: b.perRanked(), P: []float64{l.perScore(), float64(l.Bins + 1), 0}}}
}
