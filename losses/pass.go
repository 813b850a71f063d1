package losses

import "roadmap/pkg/torch"

// pass is one evaluation of a loss: tiles of scores, each handed to the loss,
// each turned into gradients of the rows as soon as the loss has seen it.
type pass struct {
	loss Loss
	name string // of the queries, for errors

	query, gallery rows  // [M, d], [N, d]
	own            int64 // columns of the gallery, from the first, that are the queries
	square         bool  // all of them are, and nothing else is
	unit           bool  // rows have length 1
	huge           bool  // a score may be beyond the dtype
	twins          *twins
	lists          *relevance

	queries int   // M
	columns int64 // N
	dtype   torch.DType
	device  torch.Device
	ranked  int
	totals  []float64

	// held is all scores [M, N], where they fit into the budget; full says that
	// they have been computed. Gradients replace them tile by tile.
	held *torch.Tensor
	full bool

	intoQuery, intoGallery, intoScores bool
	queryGrad, galleryGrad             *torch.Tensor // dLoss/drow

	plain bool // no fused pass
}

// counts counts queries and positives; firstLone is the first query without.
func (p *pass) counts() (r Result, firstLone int) {
	r.Queries = p.queries
	for i := range p.queries {
		n := p.lists.count(i)
		r.Positives += n
		if n == 0 {
			if r.Lone == 0 {
				firstLone = i
			}
			r.Lone++
		}
	}
	p.ranked = r.Queries - r.Lone
	return r, firstLone
}

func (p *pass) wanted() bool { return p.intoQuery || p.intoGallery || p.intoScores }

// run computes the loss and its gradients with respect to the rows.
func (p *pass) run(scope *torch.Scope) (*torch.Tensor, error) {
	p.hold(scope)
	if err := p.count(scope); err != nil {
		return nil, err
	}
	switch {
	case p.together(): // written to, not added to
		p.queryGrad = p.query.unit.EmptyLike()
	case p.intoQuery:
		p.queryGrad = p.query.unit.ZerosLike()
	}
	if p.intoGallery {
		p.galleryGrad = p.gallery.unit.ZerosLike()
	}
	value := scope.Zeros(nil, torch.Float64, p.device)
	err := p.tiles(scope, func(t tile) error {
		if err := p.evaluate(t, value); err != nil {
			return err
		}
		return p.collect(t)
	})
	if err != nil {
		return nil, err
	}
	if p.together() {
		// Every row is query and gallery entry: dS Ĝ + dSᵀ Q̂ is one product.
		p.queryGrad.MMInto(p.held.AddTransposeInPlace(), p.query.unit)
	}
	return value.ToDType(p.dtype), nil
}

// hold makes room for all scores at once if that pays, which saves a product
// when the queries are the gallery and a second computation of the scores when
// the loss has to count first, and if they fit into half the budget.
func (p *pass) hold(scope *torch.Scope) {
	size := int64(p.queries) * p.columns * p.dtype.Bytes()
	if p.held == nil && (p.square || p.counter() != nil) && size <= int64(p.loss.Shared().Budget)/2 {
		p.held = scope.Empty([]int64{int64(p.queries), p.columns}, p.dtype, p.device)
	}
}

// together says that the gradients come from all tiles in one product.
func (p *pass) together() bool { return p.square && p.held != nil && p.intoQuery }

// collect adds what a tile, whose scores have become dLoss/dscores, gives to
// the gradients of the rows.
func (p *pass) collect(t tile) error {
	if !p.intoQuery && !p.intoGallery || p.together() {
		return nil
	}
	query := p.query.unit.Alias(t.scope).Narrow(0, int64(t.first), int64(t.n))
	if p.intoQuery {
		p.queryGrad.Narrow(0, int64(t.first), int64(t.n)).AddMMInPlace(t.scores, p.gallery.unit.Alias(t.scope))
	}
	switch {
	case p.own > 0 && p.intoQuery:
		p.queryGrad.AddMMInPlace(t.scores.Narrow(1, 0, p.own).T(), query)
	case p.intoGallery:
		p.galleryGrad.AddMMInPlace(t.scores.T(), query)
	}
	return nil
}

// count adds up the totals of a Counter.
func (p *pass) count(scope *torch.Scope) error {
	counter := p.counter()
	if counter == nil {
		return nil
	}
	p.totals = make([]float64, counter.Counts())
	fused := p.fused()
	return p.tiles(scope, func(t tile) error {
		if fused != nil {
			return p.countFused(t, fused)
		}
		return p.blocks(t, func(b *Block, _ int) error {
			host, err := counter.Totals(b).Float64s()
			p.addTotals(host)
			return err
		})
	})
}

// counter is the loss if it has to count, else nil.
func (p *pass) counter() Counter {
	if c, ok := p.loss.(Counter); ok && c.Counts() > 0 {
		return c
	}
	return nil
}

func (p *pass) addTotals(totals []float64) {
	for i, v := range totals {
		p.totals[i] += v
	}
}

// tile is the scores of n queries from first.
type tile struct {
	scope  *torch.Scope
	first  int
	n      int
	scores *torch.Tensor // [n, N] contiguous
}

const tileBytes = 64 << 20

// tileRows is the number of queries of a tile. It depends on nothing but the
// shape of the scores, so that any chunk and any budget see the same scores to
// the bit: a matrix product of other rows may round differently.
func (p *pass) tileRows() int {
	fit := tileBytes / (p.columns * p.dtype.Bytes())
	return int(min(max(fit/64*64, 64), 1024))
}

// tiles visits the scores tile by tile, and computes them unless they are held.
func (p *pass) tiles(scope *torch.Scope, visit func(tile) error) error {
	step := p.tileRows()
	for first := 0; first < p.queries; first += step {
		if err := p.tile(scope, first, min(step, p.queries-first), visit); err != nil {
			return err
		}
	}
	p.full = p.held != nil
	return nil
}

func (p *pass) tile(scope *torch.Scope, first, n int, visit func(tile) error) error {
	s := scope.Child()
	defer s.Close()
	t := tile{scope: s, first: first, n: n}
	if p.held != nil {
		t.scores = p.held.Alias(s).Narrow(0, int64(first), int64(n))
	} else {
		t.scores = s.Empty([]int64{int64(n), p.columns}, p.dtype, p.device)
	}
	if !p.full {
		if err := p.score(t); err != nil {
			return err
		}
	}
	if err := visit(t); err != nil {
		return err
	}
	return s.Err()
}

// score computes the scores of a tile.
func (p *pass) score(t tile) error {
	t.scores.MMInto(p.query.unit.Narrow(0, int64(t.first), int64(t.n)), p.gallery.unit.T())
	if p.unit && p.fused() == nil { // the fused pass does it by the way
		t.scores.ClampInPlace(-1, 1)
	}
	p.twins.settle(t.scores, t.first, p.unit)
	if p.huge {
		return p.checkScores(t)
	}
	return nil
}

// evaluate adds a tile's share of the loss to value and, if a gradient is
// wanted, replaces its scores by dLoss/dscores.
func (p *pass) evaluate(t tile, value *torch.Tensor) error {
	if fused := p.fused(); fused != nil {
		return p.evaluateFused(t, fused, value)
	}
	return p.blocks(t, func(b *Block, offset int) error {
		if !p.wanted() {
			value.AddInPlace(p.loss.Forward(b))
			return nil
		}
		torch.EnableGrad(func() {
			rows := b.Scores
			b.Scores = rows.Detach().RequireGrad(true)
			share := p.loss.Forward(b)
			if share.RequiresGrad() {
				rows.CopyInPlace(torch.Gradients(share, nil, []*torch.Tensor{b.Scores}, false, false)[0])
			} else {
				rows.ZeroInPlace()
			}
			value.AddInPlace(share.Detach())
		})
		return nil
	})
}

// blocks cuts a tile into blocks of queries. offset is a block's first row in
// the tile.
func (p *pass) blocks(t tile, visit func(b *Block, offset int) error) error {
	step := p.blockRows(t)
	for offset := 0; offset < t.n; offset += step {
		if err := p.block(t, offset, min(step, t.n-offset), visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) block(t tile, offset, n int, visit func(b *Block, offset int) error) error {
	s := t.scope.Child()
	defer s.Close()
	b := &Block{
		Scores:  t.scores.Alias(s).Narrow(0, int64(offset), int64(n)),
		Queries: p.queries, Ranked: p.ranked, Totals: p.totals,
		lists: p.lists, first: t.first + offset,
	}
	b.Positive, b.Negative = p.lists.masks(s, p.device, b.first, n)
	if err := visit(b, offset); err != nil {
		return err
	}
	return s.Err()
}

// sized is a Loss that knows how many score matrices of its block it holds at
// once, what autograd keeps included, with that many positives a query.
type sized interface{ temporaries(positives int) int }

// blockRows is the number of queries of a block: the chunk asked for, or what
// fits into half the budget. The rank losses of pairs and positives hold about
// ten tensors [q, p, g].
func (p *pass) blockRows(t tile) int {
	if chunk := int(p.loss.Shared().Chunk); chunk > 0 {
		return chunk
	}
	most := 1
	for i := range t.n {
		most = max(most, p.lists.count(t.first+i))
	}
	matrices := 10 * most
	if l, ok := p.loss.(sized); ok {
		matrices = l.temporaries(most)
	}
	query := int64(matrices) * p.columns * p.dtype.Bytes()
	return int(min(max(int64(p.loss.Shared().Budget)/2/query, 1), int64(t.n)))
}
