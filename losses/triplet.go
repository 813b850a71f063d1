package losses

import (
	"math"
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("triplet", "FaceNet (Schroff et al., CVPR 2015), eq. 3, on cosine", func() Loss {
		return &Triplet{Common: common(), Margin: 0.1, Mining: "all"}
	})
}

var minings = []string{"all", "semihard", "hard", "easy_positive_hardest_negative"}

// Triplet wants every positive above every negative by a margin. FaceNet
// (Schroff et al. 2015), eq. 3, with cosines for distances:
//
//	L = mean [s_an − s_ap + margin]₊ over the mined triplets with a term above 0
//
// It is 0 if there are none.
type Triplet struct {
	Common `yaml:",inline"`
	Margin float64 `yaml:"margin"` // in units of score
	// Mining of an anchor's triplets: "all"; "semihard", those with
	// 0 < s_ap − s_an < margin; "hard", its least similar positive and most
	// similar negative; "easy_positive_hardest_negative", the most similar of
	// each. The first in the order of the gallery on a tie.
	Mining string `yaml:"mining"`
}

// Validate implements Loss.
func (l *Triplet) Validate() error {
	if !slices.Contains(minings, l.Mining) {
		return fault.Inputf("mining is %q; give all, semihard, hard or easy_positive_hardest_negative", l.Mining)
	}
	if err := finite("margin", l.Margin); err != nil {
		return err
	}
	return validateAll(&l.Common)
}

// Forward implements Loss.
func (l *Triplet) Forward(b *Block) *torch.Tensor {
	term, mined := l.mine(b)
	return b.ratio(0, sumOver(term, mined))
}

// Counts implements Counter.
func (l *Triplet) Counts() int { return 1 }

// Totals implements Counter.
func (l *Triplet) Totals(b *Block) *torch.Tensor {
	_, mined := l.mine(b)
	return mined.Sum().ToDType(torch.Float64).Unsqueeze(0)
}

// mine returns the terms of triplets and which of them are mined and above 0.
func (l *Triplet) mine(b *Block) (term, mined *torch.Tensor) {
	p := b.Positives()
	if l.Mining == "hard" || l.Mining == "easy_positive_hardest_negative" {
		return l.one(b, p)
	}
	gap := b.Scores.Unsqueeze(1).Sub(p.Scores.Unsqueeze(2)) // [q, p, g] s_an − s_ap
	term = gap.AddScalar(l.Margin)
	mined = term.GtScalar(0).And(p.Real.Unsqueeze(2)).And(b.Negative.Unsqueeze(1))
	if l.Mining == "semihard" {
		mined = mined.And(gap.LtScalar(0)) // term > 0 is s_ap − s_an < margin
	}
	return term, mined
}

// one mines one triplet an anchor: [q, 1].
func (l *Triplet) one(b *Block, p *Positives) (term, mined *torch.Tensor) {
	pick := func(s, mask *torch.Tensor, least bool) *torch.Tensor {
		masked := mask.Where(s.Detach(), zero(s).AddScalar(math.Inf(map[bool]int{true: 1, false: -1}[least])))
		var at *torch.Tensor
		if least {
			_, at = masked.MinDim(1, true)
		} else {
			_, at = masked.MaxDim(1, true)
		}
		return s.Gather(1, at)
	}
	positive := pick(p.Scores, p.Real, l.Mining == "hard")
	negative := pick(b.Scores, b.Negative, false)
	term = negative.Sub(positive).AddScalar(l.Margin)
	both := p.Real.AnyDim(1, true).And(b.Negative.AnyDim(1, true))
	return term, term.GtScalar(0).And(both)
}

func (l *Triplet) pairLoss() {}

func (l *Triplet) terms(b *Block) []torch.RankTerm {
	mining := float64(slices.Index(minings, l.Mining))
	return []torch.RankTerm{{Kind: torch.RankTriplet, Weight: 1, P: []float64{l.Margin, mining, b.per(0)}}}
}
