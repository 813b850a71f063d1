package losses

import "roadmap/pkg/torch"

// fusible is a Loss that the fused pass over rows of scores knows: on a CPU the
// value and the gradient of a row come out of one walk over it, while it is in
// the cache, instead of some twenty operations over tensors [q, p, g]. Forward
// remains for other devices, and to check the fused pass against.
type fusible interface {
	// terms returns the summands of the loss. b has the numbers of queries and,
	// once they have been counted, the totals; it has no scores.
	terms(b *Block) []torch.RankTerm
}

// fused returns the loss if the fused pass is to be used, else nil.
func (p *pass) fused() fusible {
	if l, ok := p.loss.(fusible); ok && !p.plain && !p.device.IsCUDA() {
		return l
	}
	return nil
}

func (p *pass) evaluateFused(t tile, l fusible, value *torch.Tensor) error {
	b := &Block{Queries: p.queries, Ranked: p.ranked, Totals: p.totals}
	sums, err := t.scores.RankRows(t.first, p.lists.flat(), l.terms(b), p.unit, p.wanted())
	if err != nil {
		return err
	}
	for _, s := range sums {
		value.AddScalarInPlace(s.Value)
	}
	return nil
}

// countFused adds up the counts of all terms, in order.
func (p *pass) countFused(t tile, l fusible) error {
	b := &Block{Queries: p.queries, Ranked: p.ranked, Totals: make([]float64, len(p.totals))}
	sums, err := t.scores.RankRows(t.first, p.lists.flat(), l.terms(b), p.unit, false)
	if err != nil {
		return err
	}
	for _, s := range sums {
		p.addTotals(s.Counts[:len(p.totals)])
	}
	return nil
}

// perRanked is 1/M′, or 0 when every query is lone.
func (b *Block) perRanked() float64 {
	if b.Ranked == 0 {
		return 0
	}
	return 1 / float64(b.Ranked)
}

// per is 1 over a total, at least 1.
func (b *Block) per(total int) float64 { return 1 / max(b.Totals[total], 1) }

// flag is 1 for true, as the fused pass takes it.
func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
