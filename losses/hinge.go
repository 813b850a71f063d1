package losses

import "roadmap/pkg/torch"

// hinge is the sum of two means: of [floor − s]₊ over the positive pairs for
// which it is above least, and of [s − ceiling]₊ over the negative ones.
type hinge struct{ floor, ceiling, least float64 }

func (h hinge) terms(b *Block) (pull, push *torch.Tensor) {
	return b.Scores.RSubScalar(h.floor).ReLU(), b.Scores.SubScalar(h.ceiling).ReLU()
}

// violations is the block's share of the sum of the two means.
func (h hinge) violations(b *Block) *torch.Tensor {
	pull, push := h.terms(b)
	return b.ratio(0, sumOver(pull, b.Positive.And(pull.GtScalar(h.least)))).
		Add(b.ratio(1, sumOver(push, b.Negative.And(push.GtScalar(h.least)))))
}

// count is the number of pairs of each mean, [2].
func (h hinge) count(b *Block) *torch.Tensor {
	pull, push := h.terms(b)
	return torch.Stack([]*torch.Tensor{
		countOver(pull.GtScalar(h.least), b.Positive),
		countOver(push.GtScalar(h.least), b.Negative),
	}, 0)
}

func (h hinge) term(b *Block, weight float64) torch.RankTerm {
	return torch.RankTerm{Kind: torch.RankHingePairs, Weight: weight, P: []float64{h.floor, h.ceiling, h.least, b.per(0), b.per(1)}}
}
