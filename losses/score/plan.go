package score

import "roadmap/pkg/torch"

// plan is what an evaluation is to do; it does not change on the way.
type plan struct {
	formula Formula
	traits  Traits
	options Options
	name    string // of the queries, for errors

	query, gallery Rows          // [M, d], [N, d]
	given          *torch.Tensor // scores [M, N] in place of them
	own            int64         // columns of the gallery, from the first, that are the queries
	square         bool          // all of them are, and nothing else is
	huge           bool          // a score may be beyond the dtype
	twins          *twins
	relevance      *relevance

	queries int   // M
	ranked  int   // M′
	columns int64 // N
	dtype   torch.DType
	device  torch.Device

	intoQuery, intoGallery, intoScores bool // who wants a gradient
}

// newPlan prepares an evaluation.
func newPlan(scope *torch.Scope, f Formula, t Traits, o Options, in *Input) (*plan, error) {
	if in.Scores != nil {
		return planOfScores(scope, f, t, o, in)
	}
	dtype := o.Work(in.Query.DType())
	query, err := Normalize(in.Query.Alias(scope), dtype, o.Normalize, in.QueryName, o.Plain)
	if err != nil {
		return nil, err
	}
	gallery, own := query, query.Unit.Size(0)
	switch {
	case in.Gallery != nil:
		own = 0
		if gallery, err = Normalize(in.Gallery.Alias(scope), dtype, o.Normalize, in.GalleryName, o.Plain); err != nil {
			return nil, err
		}
	case in.Stored != nil:
		gallery.Unit = torch.Cat([]*torch.Tensor{query.Unit, in.Stored.Rows.Alias(scope).ToDType(dtype)}, 0)
	}
	huge := false
	if !o.Normalize {
		if huge, err = mayOverflow(query.Unit, gallery.Unit); err != nil {
			return nil, err
		}
	}
	equal, err := findTwins(query.Unit, gallery.Unit, own > 0)
	if err != nil {
		return nil, err
	}
	relevance, err := in.relevance(t, o)
	if err != nil {
		return nil, err
	}
	return &plan{
		formula: f, traits: t, options: o, name: in.QueryName,
		query: query, gallery: gallery, own: own, square: query.Unit == gallery.Unit, huge: huge, twins: equal, relevance: relevance,
		queries: int(query.Unit.Size(0)), columns: gallery.Unit.Size(0), dtype: dtype, device: in.Query.Device(),
		intoQuery: t.wants(in.Query), intoGallery: t.wants(in.Gallery),
	}, nil
}

// planOfScores prepares an evaluation on scores that are given.
func planOfScores(scope *torch.Scope, f Formula, t Traits, o Options, in *Input) (*plan, error) {
	dtype := o.Work(in.Scores.DType())
	scores := in.Scores.Alias(scope).Detach().ToDType(dtype).Clone() // it becomes the gradient
	if err := checkRows(scores, in.QueryName); err != nil {
		return nil, err
	}
	relevance, err := byMask(in.Relevance.Alias(scope), in.GalleryName)
	if err != nil {
		return nil, err
	}
	if o.Flatten {
		scores, relevance = scores.Reshape(1, -1), relevance.flatten()
	}
	return &plan{
		formula: f, traits: t, options: o, name: in.QueryName, given: scores.Contiguous(), twins: &twins{}, relevance: relevance,
		queries: int(scores.Size(0)), columns: scores.Size(1), dtype: dtype, device: in.Scores.Device(),
		intoScores: t.wants(in.Scores),
	}, nil
}

// wants says whether a tensor of the input (or nil) wants a gradient that the
// loss has.
func (t Traits) wants(x *torch.Tensor) bool { return x != nil && x.RequiresGrad() && !t.Metric }

func (p *plan) wanted() bool { return p.intoQuery || p.intoGallery || p.intoScores }

// counts counts queries and positives; firstLone is the first query without.
func (p *plan) counts() (r Result, firstLone int) {
	p.relevance.count()
	r.Queries = p.queries
	for i, n := range p.relevance.counts {
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

// hold says whether all scores are kept: where that pays, because it saves a
// product when the queries are the gallery and a second computation of the
// scores when the loss counts first, and where they fit into half the budget.
func (p *plan) hold() bool {
	size := int64(p.queries) * p.columns * p.dtype.Bytes()
	return (p.square || p.traits.Totals) && size <= int64(p.options.Budget)/2
}

const tileBytes = 64 << 20

// tileRows is the number of queries of a tile. It depends on nothing but the
// shape of the scores, so that any chunk and any budget see the same scores to
// the bit: a matrix product of other rows may round differently.
func (p *plan) tileRows() int {
	fit := tileBytes / (p.columns * p.dtype.Bytes())
	return int(min(max(fit/64*64, 64), 1024))
}

// blockBytes is what the scores of a block take on the CPU: a few blocks lie in
// the processor's cache together.
const blockBytes = 2 << 20

// matrices is how many tensors of the size of a block's scores the operations
// of a loss are taken to hold at once, what autograd keeps included.
const matrices = 16

// blockRows is the number of queries of a block: the chunk asked for, or what
// the cache holds, or on a GPU, where operations on few rows are slow to start,
// what the budget holds.
func (p *plan) blockRows() int {
	row := p.columns * p.dtype.Bytes()
	fit := int64(p.options.Budget) / 2 / (matrices * row)
	if !p.device.IsCUDA() {
		fit = min(fit, blockBytes/row)
	}
	if chunk := int(p.options.Chunk); chunk > 0 {
		return chunk
	}
	return int(max(fit, 1))
}
