package losses

import "roadmap/pkg/torch"

func init() {
	register("contrastive", "Dimensionality reduction by learning an invariant mapping (Hadsell et al., CVPR 2006), eq. 4, with hinges on cosine for squared distances", func() Loss {
		l := &Contrastive{Common: common(), PositiveMargin: 1, NegativeMargin: 0.5}
		return l
	})
}

// Contrastive pulls positives up to one score and pushes negatives below
// another, over all pairs of a batch. It is Hadsell et al. 2006, eq. 4, with
// the cosine for the distance, a hinge for its square on both sides, and the
// two sums as means:
//
//	L = mean [positive_margin − s]₊ over positive pairs  +  mean [s − negative_margin]₊ over negative pairs
//
// Each mean is over the pairs with a term above 10⁻⁶, and 0 if there are none.
type Contrastive struct {
	Common         `yaml:",inline"`
	PositiveMargin float64 `yaml:"positive_margin"` // score wanted of positives at least
	NegativeMargin float64 `yaml:"negative_margin"` // score wanted of negatives at most
}

// Validate implements Loss.
func (l *Contrastive) Validate() error {
	if err := finite("positive_margin", l.PositiveMargin, "negative_margin", l.NegativeMargin); err != nil {
		return err
	}
	return validateAll(&l.Common)
}

// Forward implements Loss.
func (l *Contrastive) Forward(b *Block) *torch.Tensor { return l.pairs().violations(b) }

// Counts implements Counter.
func (l *Contrastive) Counts() int { return 2 }

// Totals implements Counter.
func (l *Contrastive) Totals(b *Block) *torch.Tensor { return l.pairs().count(b) }

func (l *Contrastive) pairs() hinge { return hinge{l.PositiveMargin, l.NegativeMargin, 1e-6} }

func (l *Contrastive) pairLoss()           {}
func (l *Contrastive) temporaries(int) int { return 12 }

func (l *Contrastive) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{l.pairs().term(b, 1)}
}
