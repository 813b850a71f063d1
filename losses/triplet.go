package losses

import (
	"math"

	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("triplet", "FaceNet (Schroff et al., CVPR 2015), eq. 3, on cosine", func() Loss {
		return &Triplet{Margin: 0.1, Mining: "all"}
	})
}

// Triplet wants every positive above every negative by a margin. FaceNet
// (Schroff et al. 2015), eq. 3, with cosines for distances:
//
//	L = mean [s_an − s_ap + margin]₊ over the mined triplets with a term above 0
//
// It is 0 if there are none.
type Triplet struct {
	Margin float64 `yaml:"margin" in:"(-inf,inf)"` // in units of score
	// Mining of an anchor's triplets: "all"; "semihard", those with
	// 0 < s_ap − s_an < margin; "hard", its least similar positive and most
	// similar negative; "easy_positive_hardest_negative", the most similar of
	// each. The first in the order of the gallery on a tie.
	Mining string `yaml:"mining" in:"{all,semihard,hard,easy_positive_hardest_negative}"`
}

// Forward implements Loss.
func (l *Triplet) Forward(b *score.Block) *torch.Tensor {
	if l.Mining == "hard" || l.Mining == "easy_positive_hardest_negative" {
		return l.one(b)
	}
	term := score.Hinge{Margin: l.Margin, Below: l.Mining == "semihard"} // of s_an − s_ap
	return b.Ratio(b.SumPositives(b.RankMinus(term.Step())), b.SumPositives(b.RankMinus(term.Active())))
}

// one is Forward with one triplet an anchor.
func (l *Triplet) one(b *score.Block) *torch.Tensor {
	_, at := b.Positives.Detach().MaxDim(1, true)
	if l.Mining == "hard" {
		real := b.Real()
		none := real.Scope().Full(nil, math.Inf(1), b.Positives.DType(), real.Device())
		_, at = real.Where(b.Positives.Detach(), none).MinDim(1, true)
	}
	_, hardest := b.Negatives.Detach().MaxDim(1, true)
	positive, negative := b.Positives.Gather(1, at), b.Negatives.Gather(1, hardest) // [q, 1]
	both := positive.GtScalar(math.Inf(-1)).And(negative.GtScalar(math.Inf(-1)))
	term := negative.Sub(positive).AddScalar(l.Margin)
	active := term.GtScalar(0).And(both)
	return b.Ratio(sumOver(term, active), sumOver(active, active))
}

// Traits says that the loss is over pairs, and that triplets are counted.
func (l *Triplet) Traits() score.Traits { return score.Traits{Pairs: true, Totals: true} }
