package losses

import "roadmap/pkg/torch"

// Block is a number of queries with everything that a loss may ask of them.
// Entries that a query never meets, such as itself, are in neither mask.
type Block struct {
	Scores   *torch.Tensor // [q, g]
	Positive *torch.Tensor // [q, g] Bool: j ∈ P_i
	Negative *torch.Tensor // [q, g] Bool: j ∈ N_i

	Queries int // M, over all blocks
	Ranked  int // M′, those of them with a positive

	Totals []float64 // what Counter counted, over all blocks

	lists     *relevance
	first     int // query of row 0
	positives *Positives
}

// Positives are the positives of each query side by side, padded to the
// largest number p of them, at least 1.
type Positives struct {
	Index  *torch.Tensor // [q, p] int64 columns, ascending; 0 where padded
	Scores *torch.Tensor // [q, p] scores, gathered; anything where padded
	Real   *torch.Tensor // [q, p] Bool: not padding
	Count  *torch.Tensor // [q] |P_i|, at least 1, so that it can divide
}

// Positives returns the positives of the block's queries.
func (b *Block) Positives() *Positives {
	if b.positives == nil {
		index, real, count := b.lists.positives(b.Scores, b.first)
		b.positives = &Positives{Index: index, Scores: b.Scores.Gather(1, index), Real: real, Count: count}
	}
	return b.positives
}

// Mean is the block's share of the mean of values [q] over all M queries.
func (b *Block) Mean(values *torch.Tensor) *torch.Tensor {
	return values.Sum().DivScalar(float64(b.Queries))
}

// MeanRanked is the block's share of the mean of values [q] over the M′
// queries that have a positive; values of the others must be 0. It is 0 if
// there are none.
func (b *Block) MeanRanked(values *torch.Tensor) *torch.Tensor {
	return values.Sum().DivScalar(float64(max(b.Ranked, 1)))
}

// mean is Σ_{k∈P_i} values_ik / |P_i| of values [q, p], 0 for a lone query: [q].
func (p *Positives) mean(values *torch.Tensor) *torch.Tensor {
	return p.Real.Where(values, zero(values)).SumDim([]int64{1}, false).Div(p.Count)
}

// rank is rank⁺(k) = 1 + Σ_{j∈P_i\{k}} H(s_j − s_k), without gradient: [q, p].
func (p *Positives) rank() *torch.Tensor {
	s := p.Scores.Detach()
	above := s.Unsqueeze(1).Ge(s.Unsqueeze(2)).And(p.Real.Unsqueeze(1))   // [q, p (of k), p (of j)]
	return above.ToDType(s.DType()).SumDim([]int64{2}, false).ClampMin(1) // k itself is its own 1
}

// present is 1 for a query that has a positive and 0 for a lone one: [q].
func (p *Positives) present() *torch.Tensor {
	return p.Real.AnyDim(1, false).ToDType(p.Scores.DType())
}

// ratio is a block's share of a sum over all blocks divided by the total of
// that index; 0 where the total is 0.
func (b *Block) ratio(total int, sum *torch.Tensor) *torch.Tensor {
	return sum.DivScalar(max(b.Totals[total], 1))
}

// sumOver is the sum of values [q, g] over mask [q, g].
func sumOver(values, mask *torch.Tensor) *torch.Tensor {
	return mask.Where(values, zero(values)).Sum()
}

// countOver is the number of pairs of mask [q, g] for which the condition holds, as float64.
func countOver(condition, mask *torch.Tensor) *torch.Tensor {
	return condition.And(mask).Sum().ToDType(torch.Float64)
}

// zero is a 0 of t's dtype and device that broadcasts.
func zero(t *torch.Tensor) *torch.Tensor {
	return t.Scope().Zeros(nil, t.DType(), t.Device())
}

// meanOver is the mean of values [q, g] over mask [q, g] for each query, 0
// where the mask is empty: [q].
func meanOver(values, mask *torch.Tensor) *torch.Tensor {
	m := mask.ToDType(values.DType())
	sum := mask.Where(values, zero(values)).SumDim([]int64{1}, false)
	return sum.Div(m.SumDim([]int64{1}, false).ClampMin(1))
}
