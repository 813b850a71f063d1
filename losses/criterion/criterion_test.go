package criterion_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"roadmap/losses/criterion"
	"roadmap/losses/losstest"
	"roadmap/losses/score"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// step is a batch of a run.
type step struct {
	rows   []float32
	labels []int64
	ids    []int64
}

const stepDim = 6

// steps are n batches of six samples of three classes; samples recur.
func steps(n int) []step {
	r := rand.New(rand.NewPCG(3, 1))
	all := make([]step, n)
	for i := range all {
		for range 6 {
			id := int64(r.IntN(15))
			all[i].ids, all[i].labels = append(all[i].ids, id), append(all[i].labels, id%3)
			for k := range stepDim {
				all[i].rows = append(all[i].rows, float32(r.NormFloat64())+float32(id%3)*float32(k%2))
			}
		}
	}
	return all
}

func (s step) input(scope *torch.Scope) score.Input {
	q := torch.From(scope, s.rows, int64(len(s.labels)), stepDim).RequireGrad(true)
	return score.Input{Query: q, QueryLabels: s.labels, QueryIDs: s.ids}
}

func start(t *testing.T, s *torch.Scope, loss string, set map[string]any) *criterion.Criterion {
	t.Helper()
	c, err := criterion.Start(losstest.Build(t, loss, set), criterion.Setup{Params: nn.NewParams(s, torch.CPU, 1), Dim: stepDim, Batch: 6, Labels: []int64{0, 1, 2, 0, 1, 2, 0}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// evaluate runs one step forward and backward.
func evaluate(t *testing.T, c *criterion.Criterion, s step) (value float64, grad []float64) {
	t.Helper()
	scope := torch.NewScope()
	defer scope.Close()
	in := s.input(scope)
	r, err := c.Forward(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Value.Backward(); err != nil {
		t.Fatal(err)
	}
	if value, err = r.Value.Item(); err != nil {
		t.Fatal(err)
	}
	if grad, err = in.Query.Grad(scope).Float64s(); err != nil {
		t.Fatal(err)
	}
	return value, grad
}

// The memory is the gallery that the definition describes: batch and the last
// rows stored, own copies left out, no gradient into them; built here by hand.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		memory   map[string]any
		capacity int
		start    int
	}{
		{map[string]any{"batches": 2}, 12, 0},
		{map[string]any{"size": 4}, 4, 0}, // smaller than a batch
		{map[string]any{"size": "dataset", "combine": "sum"}, 7, 0},
		{map[string]any{"size": 20, "start_step": 2, "combine": "sum"}, 20, 2},
		{map[string]any{"size": 9, "start_step": 1}, 9, 1},
	} {
		for _, loss := range []string{"supap", "contrastive", "triplet"} {
			t.Run(fmt.Sprint(loss, c.memory), func(t *testing.T) {
				before := torch.Live()
				s := torch.NewScope()
				set := map[string]any{"memory": c.memory}
				if loss == "supap" {
					set["tau"] = 0.1
				}
				criterion := start(t, s, loss, set)
				delete(set, "memory")
				var stored step
				for i, batch := range steps(6) {
					value, grad := evaluate(t, criterion, batch)
					wantValue, wantGrad := byHand(t, losstest.Build(t, loss, set), batch, stored, c.memory["combine"] == "sum")
					if math.Abs(value-wantValue) > 1e-5 {
						t.Errorf("step %d: value %.9g, want %.9g", i, value, wantValue)
					}
					for j := range grad {
						if math.Abs(grad[j]-wantGrad[j]) > 1e-4 {
							t.Fatalf("step %d: gradient at %d %.9g, want %.9g", i, j, grad[j], wantGrad[j])
						}
					}
					if i >= c.start {
						stored.rows = append(stored.rows, batch.rows...)
						stored.labels, stored.ids = append(stored.labels, batch.labels...), append(stored.ids, batch.ids...)
						if over := len(stored.labels) - c.capacity; over > 0 {
							stored = step{stored.rows[over*stepDim:], stored.labels[over:], stored.ids[over:]}
						}
					}
				}
				s.Close()
				if left := torch.Live() - before; left != 0 {
					t.Errorf("%d tensor handles are left", left)
				}
			})
		}
	}
}

// byHand puts together what the memory has to compute out of plain
// evaluations with a gallery.
func byHand(t *testing.T, l *criterion.Config, batch, stored step, sum bool) (float64, []float64) {
	t.Helper()
	s := torch.NewScope()
	defer s.Close()
	in := batch.input(s)
	leaf := in.Query
	forward := func(in score.Input) *torch.Tensor {
		r, err := l.Evaluate(in)
		if err != nil {
			t.Fatal(err)
		}
		return r.Value
	}
	value := s.Scalar(0)
	// In the batch a sample may come twice: only the row itself is left out there.
	rowIDs := make([]int64, len(batch.ids))
	for i := range rowIDs {
		rowIDs[i] = int64(-1 - i)
	}
	switch {
	case len(stored.labels) == 0 || sum:
		in.QueryIDs = nil
		value = value.Add(forward(in))
		if len(stored.labels) == 0 {
			break
		}
		in.QueryIDs = batch.ids
		in.Gallery, in.GalleryLabels, in.GalleryIDs = torch.From(s, stored.rows, int64(len(stored.labels)), stepDim), stored.labels, stored.ids
		value = value.Add(forward(in))
	default:
		// One query at a time, so that each can leave out its own rows.
		gallery := torch.Cat([]*torch.Tensor{leaf, torch.From(s, stored.rows, int64(len(stored.labels)), stepDim)}, 0)
		labels := slices.Concat(batch.labels, stored.labels)
		unit := gallery.Div(gallery.Norm(2, []int64{1}, true))
		scores := unit.Narrow(0, 0, int64(len(batch.labels))).MatMul(unit.T())
		own := slices.Concat(rowIDs, stored.ids)
		value = onRows(t, s, l, scores, batch, labels, own, rowIDs)
	}
	if err := value.Backward(); err != nil {
		t.Fatal(err)
	}
	v, err := value.Item()
	if err != nil {
		t.Fatal(err)
	}
	g, err := leaf.Grad(s).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v, g
}

// onRows evaluates a loss on scores of which each query leaves out its own
// columns, row by row with the columns that are left.
func onRows(t *testing.T, s *torch.Scope, l *criterion.Config, scores *torch.Tensor, batch step, labels, own, rowIDs []int64) *torch.Tensor {
	t.Helper()
	total, weights := s.Scalar(0), 0.0
	kind := fmt.Sprintf("%T", l.Loss)
	var pull, push, pulled, pushed = s.Scalar(0), s.Scalar(0), 0.0, 0.0
	for i := range batch.labels {
		var columns []int64
		var relevance []bool
		for j := range labels {
			if own[j] != rowIDs[i] && own[j] != batch.ids[i] {
				columns, relevance = append(columns, int64(j)), append(relevance, labels[j] == batch.labels[i])
			}
		}
		row := scores.Narrow(0, int64(i), 1).IndexSelect(1, torch.From(s, columns))
		switch kind {
		case "*losses.SupAP":
			r, err := l.Evaluate(score.Input{Scores: row, Relevance: torch.From(s, relevance, 1, int64(len(columns)))})
			if err != nil {
				t.Fatal(err)
			}
			if r.Lone == 0 {
				total, weights = total.Add(r.Value), weights+1
			}
		case "*losses.Contrastive":
			for j, relevant := range relevance {
				x := row.Select(1, int64(j)).SubScalar(0.5)
				if relevant {
					x = row.Select(1, int64(j)).RSubScalar(1)
				}
				if over(t, x) {
					if relevant {
						pull, pulled = pull.Add(x.Sum()), pulled+1
					} else {
						push, pushed = push.Add(x.Sum()), pushed+1
					}
				}
			}
		default: // triplets
			for j, positive := range relevance {
				for k, other := range relevance {
					if x := row.Select(1, int64(k)).Sub(row.Select(1, int64(j))).AddScalar(0.1); positive && !other && over(t, x) {
						total, weights = total.Add(x.Sum()), weights+1
					}
				}
			}
		}
	}
	if kind == "*losses.Contrastive" {
		return pull.DivScalar(max(pulled, 1)).Add(push.DivScalar(max(pushed, 1)))
	}
	return total.DivScalar(max(weights, 1))
}

func over(t *testing.T, x *torch.Tensor) bool {
	t.Helper()
	v, err := x.Item()
	if err != nil {
		t.Fatal(err)
	}
	return v > 1e-6
}

// A run that is saved and loaded goes on exactly.
func TestMemoryIsSaved(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	set := map[string]any{"memory": map[string]any{"size": 10}}
	all := steps(5)
	first := start(t, s, "supap", set)
	for _, b := range all[:3] {
		evaluate(t, first, b)
	}
	snapshot, err := first.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := tensorio.WriteSafetensors(&file, snapshot, nil); err != nil {
		t.Fatal(err)
	}
	second := start(t, s, "supap", set)
	if err := second.State().Load(nn.Stored(snapshot)); err != nil {
		t.Fatal(err)
	}
	for i, b := range all[3:] {
		wantValue, wantGrad := evaluate(t, first, b)
		value, grad := evaluate(t, second, b)
		if value != wantValue || !slices.Equal(grad, wantGrad) {
			t.Errorf("step %d after loading: value %.9g, want %.9g", i, value, wantValue)
		}
	}
}

// Proxies are parameters: gradients reach them, and a few steps along these
// lower the loss.
func TestProxiesLearn(t *testing.T) {
	for _, loss := range []string{"proxynca", "proxynca++", "normsoftmax", "crossentropy"} {
		s := torch.NewScope()
		c := start(t, s, loss, nil)
		params := c.State().Parameters()
		if len(params) != 1 || params[0].Name != "proxies" || !slices.Equal(params[0].Tensor.Shape(), []int64{3, stepDim}) {
			t.Fatalf("%s: parameters %v", loss, params)
		}
		batch := steps(1)[0]
		before, _ := evaluate(t, c, batch)
		for range 20 {
			grad := params[0].Tensor.Grad(s)
			torch.NoGrad(func() { params[0].Tensor.SubInPlace(grad.MulScalar(0.05)) })
			if err := torch.ZeroGrad(params.Tensors()); err != nil {
				t.Fatal(err)
			}
			evaluate(t, c, batch)
		}
		if after, _ := evaluate(t, c, batch); !(after < before) {
			t.Errorf("%s: %g after 20 steps, %g before", loss, after, before)
		}
		s.Close()
	}
}

func TestCriterionRefuses(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	setup := criterion.Setup{Params: nn.NewParams(s, torch.CPU, 1), Dim: stepDim, Batch: 6, Labels: []int64{0, 1}}
	for loss, says := range map[string]string{"ap": "metric", "proxynca": "memory"} {
		_, err := criterion.Start(losstest.Build(t, loss, map[string]any{"memory": map[string]any{"size": 3}}), setup)
		faulttest.Refused(t, err, says)
	}
	c := start(t, s, "supap", map[string]any{"memory": map[string]any{"size": 3}})
	in := steps(1)[0].input(s)
	in.QueryIDs = nil
	_, err := c.Forward(in)
	faulttest.Refused(t, err, "memory", "ids")
	_, err = losstest.Build(t, "supap", map[string]any{"memory": map[string]any{"size": 3}}).Evaluate(steps(1)[0].input(s))
	faulttest.Refused(t, err, "memory", "training run")
}

// lone: fail is about the batch; that a class is not in the memory yet is no
// mistake.
func TestLoneInMemory(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	c := start(t, s, "supap", map[string]any{"lone": "fail", "memory": map[string]any{"size": 4, "combine": "sum"}})
	batch := func(first int64, labels ...int64) score.Input {
		rows := make([]float64, len(labels)*stepDim)
		for i := range rows {
			rows[i] = float64((i*7)%5) + 1
		}
		ids := make([]int64, len(labels))
		for i := range ids {
			ids[i] = first + int64(i)
		}
		return score.Input{Query: torch.From(s, rows, int64(len(labels)), stepDim), QueryLabels: labels, QueryIDs: ids}
	}
	for i, labels := range [][]int64{{0, 0, 1, 1}, {2, 2, 0, 0}} {
		if _, err := c.Forward(batch(int64(10*i), labels...)); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	_, err := c.Forward(batch(20, 0, 0, 1, 2))
	faulttest.Refused(t, err, "2 of 4 queries have no positive", "row 2")
}
