package score

import (
	"math"
	"runtime"

	"roadmap/pkg/torch"
)

/*
#include "kernels.h"
*/
import "C"

// noEntry is the score of no entry.
var noEntry = math.Inf(-1)

// Block is a number of queries with the scores of their positives and negatives
// apart. Entries that are excluded for a query, such as itself, are in neither.
type Block struct {
	// Positives are the scores s_k of each query's positives k, in the order of
	// the gallery, [q, p]: p is the largest number of them, at least 1, and what
	// stands behind a query's last positive is -Inf.
	Positives *torch.Tensor
	// Negatives are the scores of the gallery, [q, g], -Inf for an entry that is
	// not a negative of the query.
	Negatives *torch.Tensor

	real    *torch.Tensor // what Real returns, once asked for
	columns *torch.Tensor // [q, p] int64: where in the gallery each positive stands, 0 behind the last
	counts  []int         // |P_i|
	misses  []int         // entries that are excluded

	queries, ranked int   // M, and M′ of them with a positive, over all blocks
	plain           bool  // tensor operations alone
	limit           int64 // bytes for a tensor [q, m, g] of tensor operations
	totals          *totals
}

// newBlock takes the scores [q, g] of the queries first, first+1, … apart.
func newBlock(scores *torch.Tensor, r *relevance, first int) *Block {
	s, q := scores.Scope(), int(scores.Size(0))
	b := &Block{counts: r.counts[first : first+q], misses: make([]int, q)}
	p := 1
	for i := range q {
		p = max(p, b.counts[i])
		b.misses[i] = len(r.excludedOf(first + i))
	}
	shape := []int64{int64(q), int64(p)}
	if !kernels(scores) {
		b.Positives, b.Negatives, b.columns = r.split(scores, first, shape)
		return b
	}
	b.Negatives, b.Positives = scores.EmptyLike(), s.Empty(shape, scores.DType(), torch.CPU)
	b.columns = s.Empty(shape, torch.Int64, torch.CPU)
	if ready(scores, b.Negatives, b.Positives, b.columns) {
		var pin runtime.Pinner
		defer pin.Unpin()
		done(scores, C.sc_split(how(scores), matrixOf(scores), r.lists().c(&pin), C.int64_t(first), matrixOf(b.Negatives), matrixOf(b.Positives), (*C.int64_t)(b.columns.Data())))
	}
	return b
}

// join writes the gradients of the block's positives and negatives into scores,
// from which they were taken apart.
func (b *Block) join(scores *torch.Tensor, r *relevance, first int, positives, negatives *torch.Tensor) {
	if !kernels(scores) {
		r.join(scores, first, b, positives, negatives)
		return
	}
	positives, negatives = positives.Contiguous(), negatives.Contiguous()
	if ready(scores, positives, negatives) {
		var pin runtime.Pinner
		defer pin.Unpin()
		done(scores, C.sc_join(how(scores), matrixOf(scores), r.lists().c(&pin), C.int64_t(first), matrixOf(negatives), matrixOf(positives)))
	}
}

// Mean is the block's share of the mean of values [q] over all M queries.
func (b *Block) Mean(values *torch.Tensor) *torch.Tensor {
	return b.weighted(values, func(int, int) float64 { return 1 / float64(b.queries) })
}

// MeanRanked is the block's share of the mean over the M′ queries that have a
// positive of values [q], or, of values [q, p], of their means over a query's
// positives. It is 0 if there are none.
func (b *Block) MeanRanked(values *torch.Tensor) *torch.Tensor {
	perPositive := values.Dims() == 2
	return b.weighted(values, func(_, positives int) float64 {
		switch {
		case positives == 0:
			return 0
		case perPositive:
			return 1 / (float64(b.ranked) * float64(positives))
		}
		return 1 / float64(b.ranked)
	})
}

// MeanAP is the block's share of the mean over the M′ queries that have a
// positive of 1 − 1/|P_i| Σ_{k∈P_i} precision(k), for precision [q, p].
func (b *Block) MeanAP(precision *torch.Tensor) *torch.Tensor {
	return b.MeanRanked(precision.RSubScalar(1))
}

// MeanPositives is the block's share of the mean over all M queries of
// Σ_{k∈P_i} values_ik / |P_i|, for values [q, p]; a query without positives
// contributes 0.
func (b *Block) MeanPositives(values *torch.Tensor) *torch.Tensor {
	return b.weighted(values, func(_, positives int) float64 { return 1 / (float64(b.queries) * float64(positives)) })
}

// MeanNegatives is the block's share of the mean over all M queries of
// Σ_{j∈N_i} h(s_j) / |N_i|; a query without negatives contributes 0.
func (b *Block) MeanNegatives(h Step) *torch.Tensor {
	gallery := int(b.Negatives.Size(1))
	return b.weighted(b.SumNegatives(h), func(i, positives int) float64 {
		negatives := max(gallery-positives-b.misses[i], 1)
		return 1 / (float64(b.queries) * float64(negatives))
	})
}

// weighted is the sum of values [q], or of those of the positives in values
// [q, p], each times the weight of its query, which is given as its place in the
// block and its number of positives. It is linear, so its gradient is known: one
// operation to Backward.
func (b *Block) weighted(values *torch.Tensor, weight func(i, positives int) float64) *torch.Tensor {
	p, ofPositives := 1, values.Dims() == 2
	if ofPositives {
		p = int(values.Size(1))
	}
	weights := make([]float64, len(b.counts)*p)
	for i, n := range b.counts {
		if !ofPositives {
			weights[i] = weight(i, n)
			continue
		}
		for k := range n {
			weights[i*p+k] = weight(i, n)
		}
	}
	w := torch.From(values.Scope(), weights, values.Shape()...).To(values.Device(), values.DType())
	var sum *torch.Tensor
	torch.NoGrad(func() {
		terms := values.Mul(w)
		if ofPositives { // behind the last positive there may be anything
			terms = b.Real().Where(terms, zero(terms))
		}
		sum = terms.ToDType(torch.Float64).Sum()
	})
	return sum.WithGrad([]*torch.Tensor{values}, []*torch.Tensor{w})
}

// Real says where in [q, p] there is a positive, as Bool.
func (b *Block) Real() *torch.Tensor {
	if b.real == nil {
		b.real = b.Positives.Detach().GtScalar(noEntry)
	}
	return b.real
}

// SumPositives is Σ_{k∈P_i} values_ik of values [q, p]: [q].
func (b *Block) SumPositives(values *torch.Tensor) *torch.Tensor {
	return b.Real().Where(values, zero(values)).SumDim([]int64{1}, false)
}

// CountPositives is |P_i|, at least 1 so that it can divide: [q, 1] float64.
func (b *Block) CountPositives() *torch.Tensor {
	counts := make([]float64, len(b.counts))
	for i, n := range b.counts {
		counts[i] = float64(max(n, 1))
	}
	return torch.From(b.Positives.Scope(), counts, int64(len(counts)), 1).ToDevice(b.Positives.Device())
}

// Ratio is the block's share of Σ sum / Σ count over all blocks, 0 where no
// block counts anything: the mean over pairs that only the scores tell. Sums
// [q] are over a query's pairs, and count [q] is how many they are. A loss with
// ratios has the trait Totals, and takes the same ratios in the same order in
// every block.
func (b *Block) Ratio(sum, count *torch.Tensor) *torch.Tensor {
	return sum.ToDType(torch.Float64).Sum().DivScalar(b.totals.next(count))
}

// totals are the denominators of a loss's ratios, over all blocks.
type totals struct {
	counted bool // else they are being counted
	sums    []float64
	at      int // of the next ratio
	err     error
}

// next is the total of the next ratio, at least 1. While they are being counted
// it adds a block's count to it.
func (t *totals) next(count *torch.Tensor) float64 {
	if !t.counted {
		n, err := count.ToDType(torch.Float64).Sum().Item()
		if err != nil {
			t.err = err
		}
		if t.at == len(t.sums) {
			t.sums = append(t.sums, 0)
		}
		t.sums[t.at] += n
	}
	if t.at == len(t.sums) {
		t.err = errNotCounted
		return 1
	}
	t.at++
	return max(t.sums[t.at-1], 1)
}

// zero is a 0 of t's dtype and device that broadcasts.
func zero(t *torch.Tensor) *torch.Tensor { return t.Scope().Zeros(nil, t.DType(), t.Device()) }
