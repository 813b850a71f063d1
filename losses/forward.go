package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Result is the value of a loss and what it was a mean of.
type Result struct {
	Value     *torch.Tensor // scalar, in the dtype of the scores; Backward passes the gradients on to the input
	Queries   int           // M
	Lone      int           // queries without a positive
	Positives int           // Σ |P_i|
}

// Forward evaluates a loss. The value is in the scope of in.Query (or
// in.Scores), and differentiable with respect to those tensors of the input
// that require a gradient; the gradients are computed here, beside the value.
// It runs in the dtype of the scores whatever Autocast says.
func Forward(l Loss, in Input) (Result, error) {
	if err := l.Validate(); err != nil {
		return Result{}, err
	}
	in = in.named()
	if err := in.check(l); err != nil {
		return Result{}, err
	}
	scope := in.home().Child()
	defer scope.Close()
	var r Result
	var err error
	torch.NoAutocast(in.device(), func() {
		torch.NoGrad(func() { r, err = in.forward(scope, l) })
	})
	if err == nil {
		err = scope.Err()
	}
	if err != nil {
		return Result{}, err
	}
	return r, nil
}

func (in *Input) forward(scope *torch.Scope, l Loss) (Result, error) {
	p, err := in.pass(scope, l)
	if err != nil {
		return Result{}, err
	}
	r, firstLone := p.counts()
	if r.Lone > 0 && l.Shared().Lone == "fail" && !in.loneMayBe {
		return Result{}, fault.Inputf("%d of %d queries have no positive (the first is row %d of %s); set lone=skip to leave them out", r.Lone, r.Queries, firstLone, in.QueryName)
	}
	value, err := p.run(scope)
	if err != nil {
		return Result{}, err
	}
	inputs, grads := p.grads(in)
	if err := in.checkResult(value, inputs, grads); err != nil {
		return Result{}, err
	}
	if len(inputs) > 0 {
		torch.EnableGrad(func() { value = value.WithGrad(inputs, grads) })
	}
	r.Value, err = value.KeepIn(in.home())
	return r, err
}

// pass prepares one evaluation.
func (in *Input) pass(scope *torch.Scope, l Loss) (*pass, error) {
	if in.Scores != nil {
		return in.passOfScores(scope, l)
	}
	c := l.Shared()
	dtype := c.work(in.Query.DType())
	query, err := prepare(in.Query.Alias(scope), dtype, c.Normalize, in.QueryName, in.Plain)
	if err != nil {
		return nil, err
	}
	gallery, own := query, query.unit.Size(0)
	switch {
	case in.Gallery != nil:
		own = 0
		if gallery, err = prepare(in.Gallery.Alias(scope), dtype, c.Normalize, in.GalleryName, in.Plain); err != nil {
			return nil, err
		}
	case in.memory != nil:
		gallery.unit = torch.Cat([]*torch.Tensor{query.unit, in.memory.rows.Alias(scope).ToDType(dtype)}, 0)
	}
	huge := false
	if !c.Normalize {
		if huge, err = mayOverflow(query.unit, gallery.unit); err != nil {
			return nil, err
		}
	}
	equal, err := findTwins(query.unit, gallery.unit, own > 0)
	if err != nil {
		return nil, err
	}
	lists, err := in.relevance(l)
	if err != nil {
		return nil, err
	}
	return &pass{
		loss: l, name: in.QueryName, query: query, gallery: gallery, own: own, unit: c.Normalize, huge: huge, twins: equal, lists: lists,
		queries: int(query.unit.Size(0)), columns: gallery.unit.Size(0), dtype: dtype, device: in.device(), square: query.unit == gallery.unit,
		intoQuery: wants(l, in.Query), intoGallery: wants(l, in.Gallery),
		plain: in.Plain,
	}, nil
}

// passOfScores prepares an evaluation on scores that are given.
func (in *Input) passOfScores(scope *torch.Scope, l Loss) (*pass, error) {
	dtype := l.Shared().work(in.Scores.DType())
	scores := in.Scores.Alias(scope).Detach().ToDType(dtype).Clone() // it becomes the gradient
	if err := checkRows(scores, in.QueryName); err != nil {
		return nil, err
	}
	lists, err := byMask(in.Relevance.Alias(scope), in.GalleryName)
	if err != nil {
		return nil, err
	}
	if l.Shared().Flatten {
		scores = scores.Reshape(1, -1)
		lists = lists.flatten()
	}
	return &pass{
		loss: l, lists: lists, twins: &twins{},
		queries: int(scores.Size(0)), columns: scores.Size(1), dtype: dtype, device: in.device(),
		held: scores.Contiguous(), full: true, intoScores: wants(l, in.Scores),
		plain: in.Plain,
	}, nil
}

// wants says whether a tensor of the input (or nil) wants a gradient that l has.
func wants(l Loss, t *torch.Tensor) bool { return t != nil && t.RequiresGrad() && Trainable(l) }

// grads pairs the tensors of the input that want a gradient with it.
func (p *pass) grads(in *Input) (inputs, grads []*torch.Tensor) {
	if p.intoScores {
		return []*torch.Tensor{in.Scores}, []*torch.Tensor{p.held.Reshape(in.Scores.Shape()...)}
	}
	if p.intoQuery {
		inputs, grads = append(inputs, in.Query), append(grads, p.query.back(p.queryGrad))
	}
	if p.intoGallery {
		inputs, grads = append(inputs, in.Gallery), append(grads, p.gallery.back(p.galleryGrad))
	}
	return inputs, grads
}
