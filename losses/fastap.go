package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("fastap", "FastAP (Cakir et al., CVPR 2019), eq. 14", func() Loss {
		return &FastAP{Bins: 10}
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
	Bins int `yaml:"bins" in:"[2,65536]"` // L; there are L+1 centres
}

// Forward implements Loss.
func (l *FastAP) Forward(b *score.Block) *torch.Tensor {
	return histogramAP(b, score.Bins{PerScore: float64(l.Bins) / 2, Count: l.Bins + 1})
}

// histogramAP is the block's share of the mean of 1 − 1/|P_i| Σ_l H⁺_l h⁺_l / H_l.
func histogramAP(b *score.Block, bins score.Bins) *torch.Tensor {
	plus, minus := b.HistogramPlus(bins), b.HistogramMinus(bins) // [q, bins]
	runningPlus := plus.Cumsum(1)
	running := plus.Add(minus).Cumsum(1).ClampMin(1e-100)                                      // a term with H_l = 0 is 0
	ap := runningPlus.Mul(plus).Div(running).Div(b.CountPositives()).SumDim([]int64{1}, false) // [q]
	return b.MeanRanked(ap.RSubScalar(1))
}
