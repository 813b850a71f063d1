// Package score runs losses that are functions of similarity scores, as
// package losses has them.
//
// A loss sees blocks of queries: for each query the scores of its positives and
// those of its negatives, cosine similarities of q queries and g gallery
// entries. Evaluate normalises the embeddings, computes the scores tile by
// tile, hands them to the loss in blocks, and turns the gradients with respect
// to the scores into gradients with respect to the embeddings at once. Neither a
// tensor of g³ elements nor, past the memory budget, the whole score matrix
// ever exists, and Backward has nothing left to compute but one multiplication.
//
// What losses over rankings are made of has a kernel for the CPU, and is a
// tensor operation elsewhere: sums of a step function ([Block.RankPlus],
// [Block.RankMinus]), histograms ([Block.HistogramPlus]) and ranks
// ([Block.Ranks]). All else is plain tensor operations on a block that fits
// into the processor's cache.
package score

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// A Formula returns, without dimensions, the share of a block of queries in a
// loss: the shares of all blocks add up to it. It is differentiable with
// respect to b.Positives and b.Negatives.
type Formula func(b *Block) *torch.Tensor

// Traits are what an evaluation must know of a loss beside its formula.
type Traits struct {
	Metric  bool // it has no gradient
	Pairs   bool // over pairs of two samples: a query is not its own partner, whatever option self says
	Proxies bool // the gallery is one learnt proxy a class, so that each query has exactly one positive
	Totals  bool // it takes ratios (see Block.Ratio), whose denominators are counted first
}

// Result is the value of a loss and what it was a mean of.
type Result struct {
	Value     *torch.Tensor // scalar, in the dtype of the scores; Backward passes the gradients on to the input
	Queries   int           // M
	Lone      int           // queries without a positive
	Positives int           // Σ |P_i|
}

// Evaluate evaluates a loss. The value is in the scope of in.Query (or
// in.Scores), and differentiable with respect to those tensors of the input
// that require a gradient; the gradients are computed here, beside the value.
// It runs in the dtype of the scores whatever Autocast says.
func Evaluate(f Formula, t Traits, o Options, in Input) (Result, error) {
	in = in.named()
	if err := in.check(t, o); err != nil {
		return Result{}, err
	}
	home := in.first().Scope()
	scope := home.Child()
	defer scope.Close()
	var r Result
	var err error
	torch.NoAutocast(in.first().Device(), func() {
		torch.NoGrad(func() { r, err = evaluate(scope, home, f, t, o, &in) })
	})
	if err == nil {
		err = scope.Err()
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

func evaluate(scope, home *torch.Scope, f Formula, t Traits, o Options, in *Input) (Result, error) {
	p, err := newPlan(scope, f, t, o, in)
	if err != nil {
		return Result{}, err
	}
	r, firstLone := p.counts()
	if r.Lone > 0 && o.Lone == "fail" {
		return Result{}, fault.Inputf("%d of %d queries have no positive (the first is row %d of %s); set lone=skip to leave them out", r.Lone, r.Queries, firstLone, in.QueryName)
	}
	state, err := p.run(scope)
	if err != nil {
		return Result{}, err
	}
	value := state.value.ToDType(p.dtype)
	inputs, grads := p.gradients(in, state)
	if err := in.checkResult(value, inputs, grads); err != nil {
		return Result{}, err
	}
	if len(inputs) > 0 {
		torch.EnableGrad(func() { value = value.WithGrad(inputs, grads) })
	}
	r.Value, err = value.KeepIn(home)
	return r, err
}
