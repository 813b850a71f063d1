package losses

import (
	"errors"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Result is the value of a loss and what it was a mean of.
type Result struct {
	Value     *torch.Tensor // scalar, in the dtype of the scores; Backward passes the gradients on to Query and Gallery
	Queries   int           // M
	Lone      int           // queries without a positive
	Positives int           // Σ |P_i|
}

// Forward evaluates a loss. The value is in the scope of in.Query, and
// differentiable with respect to those embeddings that require a gradient; the
// gradients are computed here, beside the value. It runs in the dtype of the
// scores whatever Autocast says.
func Forward(l Loss, in Input) (Result, error) {
	if err := l.Validate(); err != nil {
		return Result{}, err
	}
	if err := in.check(); err != nil {
		return Result{}, err
	}
	scope := in.Query.Scope().Child()
	defer scope.Close()
	var r Result
	var err error
	torch.NoAutocast(in.Query.Device(), func() {
		torch.NoGrad(func() { r, err = forward(scope, l, in) })
	})
	if err == nil {
		err = scope.Err()
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

func forward(scope *torch.Scope, l Loss, in Input) (Result, error) {
	c := l.Shared()
	dtype := c.work(in.Query.DType())
	query, err := prepare(in.Query.Alias(scope), dtype, c.Normalize, "query embeddings")
	if err != nil {
		return Result{}, err
	}
	gallery := query
	if in.Gallery != nil {
		if gallery, err = prepare(in.Gallery.Alias(scope), dtype, c.Normalize, "gallery embeddings"); err != nil {
			return Result{}, err
		}
	}
	equal, err := findTwins(query.unit, gallery.unit)
	if err != nil {
		return Result{}, err
	}
	p := &pass{
		loss: l, query: query.unit, gallery: gallery.unit, unit: c.Normalize, twins: equal,
		lists:     in.relevance(c.Self),
		intoQuery: in.Query.RequiresGrad(), intoGallery: in.Gallery != nil && in.Gallery.RequiresGrad(),
	}
	r := p.counts()
	if r.Lone > 0 && c.Lone == "fail" {
		return Result{}, fault.Inputf("%d of %d queries have no positive (the first is row %d); set lone=skip to leave them out", r.Lone, r.Queries, p.firstLone)
	}
	value, err := p.run(scope)
	if err != nil {
		return Result{}, err
	}
	inputs, grads := []*torch.Tensor{}, []*torch.Tensor{}
	if p.intoQuery {
		inputs, grads = append(inputs, in.Query), append(grads, query.back(p.queryGrad))
	}
	if p.intoGallery {
		inputs, grads = append(inputs, in.Gallery), append(grads, gallery.back(p.galleryGrad))
	}
	if len(inputs) > 0 {
		torch.EnableGrad(func() { value = value.WithGrad(inputs, grads) })
	}
	r.Value, err = value.KeepIn(in.Query.Scope())
	return r, err
}

// pass is one evaluation: tiles of scores, each handed to the loss in blocks.
type pass struct {
	loss           Loss
	query, gallery *torch.Tensor // [M, d], [N, d] in the dtype of the scores; one tensor when the queries are the gallery
	unit           bool          // rows have length 1
	twins          *twins
	lists          *relevance

	queries, ranked, firstLone int
	totals                     []float64

	intoQuery, intoGallery bool
	queryGrad, galleryGrad *torch.Tensor // dLoss/d rows of query and gallery
}

// counts fills in the numbers of queries.
func (p *pass) counts() Result {
	r := Result{Queries: int(p.query.Size(0))}
	for i := range r.Queries {
		n := p.lists.count(i)
		r.Positives += n
		if n == 0 {
			if r.Lone == 0 {
				p.firstLone = i
			}
			r.Lone++
		}
	}
	p.queries, p.ranked = r.Queries, r.Queries-r.Lone
	return r
}

// run computes the loss and its gradients with respect to the rows.
func (p *pass) run(scope *torch.Scope) (*torch.Tensor, error) {
	if counter, ok := p.loss.(Counter); ok {
		if err := p.count(scope, counter); err != nil {
			return nil, err
		}
	}
	value := scope.Zeros(nil, torch.Float64, p.query.Device())
	square := p.query == p.gallery
	if p.intoQuery {
		p.queryGrad = p.query.ZerosLike()
	}
	switch {
	case square && p.intoQuery:
		p.galleryGrad = p.queryGrad // every row plays both parts
	case p.intoGallery:
		p.galleryGrad = p.gallery.ZerosLike()
	}
	err := p.tiles(scope, func(t tile) error {
		grad, err := p.block(t, value)
		if err != nil || grad == nil {
			return err
		}
		if p.intoQuery {
			p.queryGrad.Narrow(0, int64(t.first), int64(t.n)).AddMMInPlace(grad, p.gallery.Alias(t.scope))
		}
		if p.galleryGrad != nil {
			p.galleryGrad.AddMMInPlace(grad.T(), t.query)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return value.ToDType(p.query.DType()), nil
}

// count adds up the totals of a Counter.
func (p *pass) count(scope *torch.Scope, counter Counter) error {
	return p.tiles(scope, func(t tile) error {
		return p.blocks(t, func(b *Block, _ int) error {
			totals := counter.Totals(b)
			if totals == nil {
				return errEnough
			}
			host, err := totals.Float64s()
			if err != nil {
				return err
			}
			if p.totals == nil {
				p.totals = make([]float64, len(host))
			}
			for i, v := range host {
				p.totals[i] += v
			}
			return nil
		})
	})
}

// errEnough ends a pass over tiles early.
var errEnough = errors.New("nothing to count")

// tile is the scores of n queries from first.
type tile struct {
	scope  *torch.Scope
	first  int
	n      int
	query  *torch.Tensor // [n, d]
	scores *torch.Tensor // [n, N]
}

const tileBytes = 64 << 20

// tileRows is the number of queries of a tile. It depends on nothing but the
// shape of the scores, so that any chunk sees the same scores to the bit: a
// matrix product of other rows may round differently.
func (p *pass) tileRows() int {
	fit := tileBytes / (p.gallery.Size(0) * p.gallery.DType().Bytes())
	return int(min(max(fit/64*64, 64), 1024))
}

// tiles computes the scores tile by tile.
func (p *pass) tiles(scope *torch.Scope, visit func(tile) error) error {
	rows := p.tileRows()
	for first := 0; first < p.queries; first += rows {
		if err := p.tile(scope, first, min(rows, p.queries-first), visit); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) tile(scope *torch.Scope, first, n int, visit func(tile) error) error {
	s := scope.Child()
	defer s.Close()
	query := p.query.Alias(s).Narrow(0, int64(first), int64(n))
	scores := query.MatMul(p.gallery.T())
	if p.unit {
		scores.ClampInPlace(-1, 1)
	}
	p.twins.settle(scores, first, p.unit)
	if err := visit(tile{s, first, n, query, scores}); err != nil {
		return err
	}
	return s.Err()
}

// block runs the loss over a tile, adds to value and returns dLoss/dscores
// [n, N], nil if nobody wants it.
func (p *pass) block(t tile, value *torch.Tensor) (*torch.Tensor, error) {
	wanted := p.intoQuery || p.intoGallery
	var grad *torch.Tensor
	if wanted {
		grad = t.scores.ZerosLike()
	}
	err := p.blocks(t, func(b *Block, offset int) error {
		if !wanted {
			value.AddInPlace(p.loss.Forward(b))
			return b.Scores.Scope().Err()
		}
		var ds *torch.Tensor
		torch.EnableGrad(func() {
			b.Scores = b.Scores.Detach().RequireGrad(true)
			share := p.loss.Forward(b)
			ds = torch.Gradients(share, nil, []*torch.Tensor{b.Scores}, false, false)[0]
			value.AddInPlace(share.Detach())
		})
		grad.Narrow(0, int64(offset), b.Scores.Size(0)).CopyInPlace(ds)
		return b.Scores.Scope().Err()
	})
	return grad, err
}

// blocks cuts a tile into blocks of queries. offset is a block's first row in
// the tile.
func (p *pass) blocks(t tile, visit func(b *Block, offset int) error) error {
	rows := p.blockRows(t)
	for offset := 0; offset < t.n; offset += rows {
		if err := p.oneBlock(t, offset, min(rows, t.n-offset), visit); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) oneBlock(t tile, offset, n int, visit func(b *Block, offset int) error) error {
	s := t.scope.Child()
	defer s.Close()
	b := &Block{
		Scores:  t.scores.Alias(s).Narrow(0, int64(offset), int64(n)),
		Queries: p.queries, Ranked: p.ranked, Totals: p.totals,
		lists: p.lists, first: t.first + offset,
	}
	b.Positive, b.Negative = p.lists.masks(s, t.scores.Device(), b.first, n)
	if err := visit(b, offset); err != nil {
		return err
	}
	return s.Err()
}

// temporaries is about how many tensors [q, p, g] a rank loss holds at once,
// those that autograd keeps included.
const temporaries = 10

// blockRows is the number of queries of a block: the chunk asked for, or what
// fits into the budget.
func (p *pass) blockRows(t tile) int {
	if chunk := int(p.loss.Shared().Chunk); chunk > 0 {
		return chunk
	}
	most := 1
	for i := range t.n {
		most = max(most, p.lists.count(t.first+i))
	}
	query := int64(temporaries*most) * p.gallery.Size(0) * p.gallery.DType().Bytes()
	return int(min(max(int64(p.loss.Shared().Budget)/query, 1), int64(t.n)))
}
