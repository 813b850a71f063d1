package score

import (
	"errors"

	"roadmap/pkg/torch"
)

// state is what an evaluation has computed so far: tiles of scores, each handed
// to the loss, each turned into gradients of the rows as soon as the loss has
// seen it.
type state struct {
	plan  *plan
	value *torch.Tensor // float64

	// held is all scores [M, N], where they are kept; full says that they have
	// been computed. Gradients replace them tile by tile.
	held *torch.Tensor
	full bool

	totals                 totals
	queryGrad, galleryGrad *torch.Tensor // dLoss/drow
}

// run computes the loss and its gradients with respect to the rows.
func (p *plan) run(scope *torch.Scope) (*state, error) {
	s := &state{plan: p, value: scope.Zeros(nil, torch.Float64, p.device), held: p.given, full: p.given != nil}
	if s.held == nil && p.hold() {
		s.held = scope.Empty([]int64{int64(p.queries), p.columns}, p.dtype, p.device)
	}
	if err := s.count(scope); err != nil {
		return nil, err
	}
	switch {
	case s.together(): // written to, not added to
		s.queryGrad = p.query.Unit.EmptyLike()
	case p.intoQuery:
		s.queryGrad = p.query.Unit.ZerosLike()
	}
	if p.intoGallery {
		s.galleryGrad = p.gallery.Unit.ZerosLike()
	}
	err := s.tiles(scope, func(t tile) error {
		if err := s.blocks(t, s.evaluate); err != nil {
			return err
		}
		return s.collect(t)
	})
	if err != nil {
		return nil, err
	}
	if s.together() {
		// Every row is query and gallery entry: dS Ĝ + dSᵀ Q̂ is one product.
		addTranspose(s.held)
		s.queryGrad.MMInto(s.held, p.query.Unit)
	}
	return s, nil
}

// together says that the gradients come from all tiles in one product.
func (s *state) together() bool { return s.plan.square && s.held != nil && s.plan.intoQuery }

// gradients pairs the tensors of the input that want a gradient with it.
func (p *plan) gradients(in *Input, s *state) (inputs, grads []*torch.Tensor) {
	if p.intoScores {
		return []*torch.Tensor{in.Scores}, []*torch.Tensor{s.held.Reshape(in.Scores.Shape()...)}
	}
	if p.intoQuery {
		inputs, grads = append(inputs, in.Query), append(grads, p.query.back(s.queryGrad))
	}
	if p.intoGallery {
		inputs, grads = append(inputs, in.Gallery), append(grads, p.gallery.back(s.galleryGrad))
	}
	return inputs, grads
}

// collect adds what a tile, whose scores have become dLoss/dscores, gives to
// the gradients of the rows.
func (s *state) collect(t tile) error {
	p := s.plan
	if !p.intoQuery && !p.intoGallery || s.together() {
		return nil
	}
	query := p.query.Unit.Alias(t.scope).Narrow(0, int64(t.first), int64(t.n))
	if p.intoQuery {
		s.queryGrad.Narrow(0, int64(t.first), int64(t.n)).AddMMInPlace(t.scores, p.gallery.Unit.Alias(t.scope))
	}
	switch {
	case p.own > 0 && p.intoQuery:
		s.queryGrad.AddMMInPlace(t.scores.Narrow(1, 0, p.own).T(), query)
	case p.intoGallery:
		s.galleryGrad.AddMMInPlace(t.scores.T(), query)
	}
	return nil
}

var errNotCounted = errors.New("a loss takes a ratio without having the trait Totals, or more of them than were counted")

// count adds up the denominators of a loss with ratios. Those of a single block
// are known when it takes them.
func (s *state) count(scope *torch.Scope) error {
	p := s.plan
	if p.queries <= min(p.blockRows(), p.tileRows()) {
		return nil
	}
	defer func() { s.totals.counted = true }()
	if !p.traits.Totals {
		return nil
	}
	return s.tiles(scope, func(t tile) error {
		return s.blocks(t, func(b *Block, _ *torch.Tensor, _ int) error {
			p.formula(b)
			return s.totals.err
		})
	})
}

// tile is the scores of n queries from first.
type tile struct {
	scope  *torch.Scope
	first  int
	n      int
	scores *torch.Tensor // [n, N] contiguous
}

// tiles visits the scores tile by tile, and computes them unless they are held.
func (s *state) tiles(scope *torch.Scope, visit func(tile) error) error {
	step := s.plan.tileRows()
	for first := 0; first < s.plan.queries; first += step {
		if err := s.tile(scope, first, min(step, s.plan.queries-first), visit); err != nil {
			return err
		}
	}
	s.full = s.held != nil
	return nil
}

func (s *state) tile(scope *torch.Scope, first, n int, visit func(tile) error) error {
	child := scope.Child()
	defer child.Close()
	t := tile{scope: child, first: first, n: n}
	if s.held != nil {
		t.scores = s.held.Alias(child).Narrow(0, int64(first), int64(n))
	} else {
		t.scores = child.Empty([]int64{int64(n), s.plan.columns}, s.plan.dtype, s.plan.device)
	}
	if !s.full {
		if err := s.plan.score(t); err != nil {
			return err
		}
	}
	if err := visit(t); err != nil {
		return err
	}
	return child.Err()
}

// score computes the scores of a tile.
func (p *plan) score(t tile) error {
	t.scores.MMInto(p.query.Unit.Narrow(0, int64(t.first), int64(t.n)), p.gallery.Unit.T())
	if p.options.Normalize {
		t.scores.ClampInPlace(-1, 1)
	}
	p.twins.settle(t.scores, t.first, p.options.Normalize)
	if p.huge {
		return p.checkScores(t)
	}
	return nil
}

// blocks cuts a tile into blocks of queries. rows are the block's scores in the
// tile, first its first query.
func (s *state) blocks(t tile, visit func(b *Block, rows *torch.Tensor, first int) error) error {
	step := s.plan.blockRows()
	for offset := 0; offset < t.n; offset += step {
		if err := s.block(t, offset, min(step, t.n-offset), visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) block(t tile, offset, n int, visit func(b *Block, rows *torch.Tensor, first int) error) error {
	child := t.scope.Child()
	defer child.Close()
	rows := t.scores.Alias(child).Narrow(0, int64(offset), int64(n))
	b := newBlock(rows, s.plan.relevance, t.first+offset)
	b.queries, b.ranked, b.plain, b.totals = s.plan.queries, s.plan.ranked, s.plan.options.Plain, &s.totals
	b.limit = int64(s.plan.options.Budget) / 8
	s.totals.at = 0
	if err := visit(b, rows, t.first+offset); err != nil {
		return err
	}
	return child.Err()
}

// evaluate adds a block's share of the loss to the value and, if a gradient is
// wanted, replaces its scores by dLoss/dscores.
func (s *state) evaluate(b *Block, rows *torch.Tensor, first int) error {
	if !s.plan.wanted() {
		s.value.AddInPlace(s.plan.formula(b))
		return s.totals.err
	}
	torch.EnableGrad(func() {
		b.Positives.RequireGrad(true)
		b.Negatives.RequireGrad(true)
		share := s.plan.formula(b)
		torch.NoGrad(func() {
			s.value.AddInPlace(share.Detach())
			if !share.RequiresGrad() {
				rows.ZeroInPlace()
				return
			}
			by := torch.Gradients(share, nil, []*torch.Tensor{b.Positives, b.Negatives}, false, false)
			b.join(rows, s.plan.relevance, first, by[0], by[1])
		})
	})
	return s.totals.err
}
