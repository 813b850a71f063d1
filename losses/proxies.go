package losses

import "roadmap/pkg/torch"

// proxyLoss marks the losses that compare queries with proxies, one learnt
// embedding a class: their gallery is the proxies, and each query has exactly
// one positive among them.
type proxyLoss interface{ usesProxies() }

// UsesProxies says whether the gallery of l is one learnt proxy a class.
func UsesProxies(l Loss) bool {
	_, yes := l.(proxyLoss)
	return yes
}

// softmax is the block's share of the mean cross-entropy of logits [q, g].
func (b *Block) softmax(logits *torch.Tensor) *torch.Tensor {
	return b.Mean(logits.LogSoftmax(1).Gather(1, b.Positives().Index).Squeeze(1).Neg())
}

// softmaxTerm is the mean cross-entropy for the fused pass, of the scores times
// factor; apart leaves the positive out of the sum.
func (b *Block) softmaxTerm(factor float64, apart bool) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankSoftmax, Weight: 1 / float64(b.Queries), P: []float64{factor, flag(apart)}}}
}
