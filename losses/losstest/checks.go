package losstest

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func finiteDifferences(t *testing.T, s subject) {
	if s.name == "ap" || strings.HasPrefix(s.name, "blackbox") {
		t.Skip("the gradient is not that of the value, by definition")
	}
	p := clusters(t, s, 24)
	l := s.make(t)
	want := run(t, l, p)
	slope := func(at []float64, i int) float64 {
		x, length := at[i], 0.0
		for _, v := range at[i/p.d*p.d : (i/p.d+1)*p.d] {
			length += v * v
		}
		h := 1e-6 * math.Sqrt(length) // so small a step crosses no kink of a piecewise loss at these points
		at[i] = x + h
		up := run(t, l, p).value
		at[i] = x - h
		down := run(t, l, p).value
		at[i] = x
		return (up - down) / (2 * h)
	}
	compare := func(what string, at, grad []float64) {
		largest := 1e-3
		for _, g := range grad {
			largest = max(largest, math.Abs(g))
		}
		for i := 0; i < len(at); i += 5 {
			if got := slope(at, i); math.Abs(got-grad[i]) > 1e-6*largest {
				t.Errorf("%s: at %d = %g, finite difference %g", what, i, grad[i], got)
			}
		}
	}
	compare("gradient", p.query, want.grad)
	if p.gallery != nil {
		compare("gradient of the gallery", p.gallery, want.galleryGrad)
	}
}

func factor(t *testing.T, s subject) {
	p := clusters(t, s, 24)
	scope := torch.NewScope()
	defer scope.Close()
	in := p.input(scope)
	r, err := p.evaluate(s.make(t), in)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Value.RequiresGrad() {
		t.Skip("it has no gradient")
	}
	r.Value = r.Value.MulScalar(-3)
	got := result(t, scope, r, in.Query, in.Gallery)
	want := run(t, s.make(t), p)
	want.value *= -3
	for _, grad := range [][]float64{want.grad, want.galleryGrad} {
		for i := range grad {
			grad[i] *= -3
		}
	}
	near(t, got, want, 1e-14)
}

func permutation(t *testing.T, s subject) {
	p := clusters(t, s, 40)
	want := run(t, s.make(t), p)
	order := rand.New(rand.NewPCG(3, 4)).Perm(len(p.labels))
	q := p
	q.query, q.labels = make([]float64, 0, len(p.query)), nil
	moved := outcome{value: want.value, galleryGrad: want.galleryGrad}
	for _, i := range order {
		q.query = append(q.query, p.query[i*p.d:(i+1)*p.d]...)
		q.labels = append(q.labels, p.labels[i])
		if want.grad != nil {
			moved.grad = append(moved.grad, want.grad[i*p.d:(i+1)*p.d]...)
		}
	}
	near(t, run(t, s.make(t), q), moved, 1e-11)
}

func relabelling(t *testing.T, s subject) {
	p := clusters(t, s, 40)
	want := run(t, s.make(t), p)
	names := map[int64]int64{0: math.MaxInt64, 1: math.MinInt64, 2: math.MaxInt64 - 1, 3: -1, 4: 1 << 53, 5: 1<<53 + 1}
	rename := func(labels []int64) []int64 {
		out := slices.Clone(labels)
		for i, l := range labels {
			if to, renamed := names[l]; renamed {
				out[i] = to
			}
		}
		return out
	}
	p.labels, p.galleryLabels = rename(p.labels), rename(p.galleryLabels)
	equal(t, run(t, s.make(t), p), want)
}

func scale(t *testing.T, s subject) {
	if !s.make(t).Normalize {
		t.Skip("it takes inner products as they are")
	}
	p := clusters(t, s, 24)
	want := run(t, s.make(t), p)
	for _, by := range []float64{3.7, 1e-170, 1e170} { // squares of the last two vanish and overflow
		q := p
		q.query = slices.Clone(p.query)
		for i := range q.query {
			q.query[i] *= by
		}
		got := run(t, s.make(t), q)
		for i := range got.grad {
			got.grad[i] *= by
		}
		near(t, got, want, 1e-11)
	}
}

func perfect(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("it ranks no batch")
	}
	p := clusters(t, s, 24)
	random := run(t, s.make(t), p).value
	for i, label := range p.labels { // every class at a vertex of its own, all of one class together
		for k := range p.d {
			p.query[i*p.d+k] = 0
		}
		p.query[i*p.d+int(label)] = 1
	}
	got := run(t, s.make(t), p)
	allFinite(t, got)
	switch {
	case s.name == "ap" && got.value != 0:
		t.Errorf("ap of a perfect ranking = %g, want 0", got.value)
	case got.value > random:
		t.Errorf("a perfect ranking has %g, a random one %g", got.value, random)
	}
}

// equalRows: every score ties with every other, and rows stand at places where
// a matrix product may round them differently.
func equalRows(t *testing.T, s subject) {
	for _, dtype := range []torch.DType{torch.Float64, torch.Float32} {
		p := clusters(t, s, 45)
		p.dtype = dtype
		for i := range p.labels {
			copy(p.query[i*p.d:(i+1)*p.d], p.query[:p.d])
		}
		got := run(t, s.make(t), p)
		allFinite(t, got)
		if s.name == "ap" { // all tie: rank+ is 3 or |P|, rank- all negatives
			var want float64
			for _, l := range p.labels {
				positives := -1.0
				for _, m := range p.labels {
					if l == m {
						positives++
					}
				}
				if positives > 0 { // the 45th is alone in its class
					want += 1 - positives/float64(len(p.labels)-1)
				}
			}
			want /= 44
			if math.Abs(got.value-want) > 1e-6 {
				t.Errorf("ap of all ties = %.9g, want %.9g", got.value, want)
			}
		}
	}
}

func lone(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("every query has its proxy")
	}
	p := clusters(t, s, 24)
	p.labels[5], p.labels[17] = 1000, 1001
	l := s.make(t)
	l.Self = "exclude"
	got := run(t, l, p)
	allFinite(t, got)
	if got.queries != 24 || got.lone != 2 || got.pairs != 24*3-2*3-2*3 {
		t.Errorf("queries, lone, positives = %d, %d, %d", got.queries, got.lone, got.pairs)
	}
	l.Lone = "fail"
	if _, err := forward(t, l, p); err == nil || !strings.Contains(err.Error(), "row 5") {
		t.Errorf("lone=fail: %v does not name row 5", err)
	}
	if !s.rank() {
		return
	}
	// The mean is over the other queries: as queries of their own they give the same.
	q := p
	q.query, q.labels, q.ids = nil, nil, nil
	for i, label := range p.labels {
		p.galleryIDs = append(p.galleryIDs, int64(i))
		if label < 1000 {
			q.query = append(q.query, p.query[i*p.d:(i+1)*p.d]...)
			q.labels, q.ids = append(q.labels, label), append(q.ids, int64(i))
		}
	}
	q.gallery, q.galleryLabels, q.galleryIDs = p.query, p.labels, p.galleryIDs
	l.Lone = "skip"
	if same := run(t, l, q); math.Abs(same.value-got.value) > 1e-12 {
		t.Errorf("value = %.17g, that of the other queries %.17g", got.value, same.value)
	}
}

func allLone(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("every query has its proxy")
	}
	p := clusters(t, s, 24)
	for i := range p.labels {
		p.labels[i] = int64(i)
	}
	l := s.make(t)
	l.Self = "exclude"
	got := run(t, l, p)
	allFinite(t, got)
	if got.lone != 24 {
		t.Errorf("lone = %d, want 24", got.lone)
	}
	if s.rank() && (got.value != 0 || slices.ContainsFunc(got.grad, func(g float64) bool { return g != 0 })) {
		t.Errorf("value %g, gradient %v, want zeros", got.value, got.grad)
	}
	if strings.Contains(s.name, "calibration") && got.value == 0 {
		t.Error("the negative part is lost")
	}
}

func oneClass(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("there is a proxy for each class")
	}
	p := clusters(t, s, 24)
	clear(p.labels)
	got := run(t, s.make(t), p)
	allFinite(t, got)
	if s.name == "ap" && got.value != 0 {
		t.Errorf("ap without negatives = %g, want 0", got.value)
	}
}

func oneRow(t *testing.T, s subject) {
	p := clusters(t, s, 1)
	got := run(t, s.make(t), p)
	allFinite(t, got)
	if s.rank() && got.value != 0 {
		t.Errorf("value = %g, want 0", got.value)
	}
}

func sameGallery(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("its gallery is the proxies")
	}
	p := clusters(t, s, 41)
	l := s.make(t)
	l.Self = "exclude"
	want := run(t, l, p)
	for i := range p.labels {
		p.ids = append(p.ids, int64(i)-7)
	}
	p.gallery, p.galleryLabels, p.galleryIDs = p.query, p.labels, p.ids
	got := run(t, l, p)
	for i := range got.grad { // each row plays both parts in the batch
		got.grad[i] += got.galleryGrad[i]
	}
	got.galleryGrad = nil
	near(t, got, want, 1e-11)
}

func scoreForm(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("it takes no scores")
	}
	p := clusters(t, s, 32)
	half := 16
	q := p
	q.query, q.labels = p.query[:half*p.d], p.labels[:half]
	q.gallery, q.galleryLabels = p.query[half*p.d:], p.labels[half:]
	want := run(t, s.make(t), q)

	scope := torch.NewScope()
	defer scope.Close()
	in := q.input(scope)
	unit := func(x *torch.Tensor) *torch.Tensor { return x.Div(x.Norm(2, []int64{1}, true)) }
	scores := unit(in.Query).MatMul(unit(in.Gallery).T())
	relevance := make([]bool, half*half)
	for i := range relevance {
		relevance[i] = q.labels[i/half] == q.galleryLabels[i%half]
	}
	r, err := p.evaluate(s.make(t), score.Input{Scores: scores, Relevance: torch.From(scope, relevance, int64(half), int64(half))})
	if err != nil {
		t.Fatal(err)
	}
	near(t, result(t, scope, r, in.Query, in.Gallery), want, 1e-11)
}

func chunks(t *testing.T, s subject) {
	for _, c := range []struct {
		dtype torch.DType
		tol   float64
	}{{torch.Float64, 1e-12}, {torch.Float32, 1e-6}} {
		for _, plain := range []bool{false, true} {
			p := clusters(t, s, 57)
			p.dtype, p.plain = c.dtype, plain
			want := run(t, s.make(t), p)
			for _, chunk := range []score.Chunk{1, 8, 56, 1000} {
				l := s.make(t)
				l.Chunk = chunk
				near(t, run(t, l, p), want, c.tol)
			}
		}
	}
}

func budgets(t *testing.T, s subject) {
	for _, plain := range []bool{false, true} {
		p := clusters(t, s, 280) // scores of 612 KiB: above half the smallest budget
		p.plain = plain
		want := run(t, s.make(t), p)
		l := s.make(t)
		l.Budget = 1 << 20
		near(t, run(t, l, p), want, 1e-12)
	}
}

// tiles: more queries than one tile of scores holds, with all scores at once
// and tile by tile.
func tiles(t *testing.T, s subject) {
	p := clusters(t, s, 1100)
	got := run(t, s.make(t), p)
	l := s.make(t)
	l.Budget = 1 << 20
	near(t, run(t, l, p), got, 1e-12)
	p.plain = true
	near(t, got, run(t, s.make(t), p), 1e-12)
}

func kernels(t *testing.T, s subject) {
	for _, c := range []struct {
		dtype torch.DType
		tol   float64
	}{{torch.Float64, 1e-12}, {torch.Float32, 5e-5}} {
		for _, n := range []int{1, 7, 16, 17, 203} { // around the width of a vector
			p := clusters(t, s, n)
			p.dtype = c.dtype
			got := run(t, s.make(t), p)
			p.plain = true
			near(t, got, run(t, s.make(t), p), c.tol)
		}
	}
}

// threads: rows are shared out among threads, and each is one thread's work.
// Scores are given, since a matrix product may add up differently.
func threads(t *testing.T, s subject) {
	if s.proxies(t) {
		t.Skip("it takes no scores")
	}
	before := torch.Threads()
	defer torch.SetThreads(before)
	r := rand.New(rand.NewPCG(5, 6))
	scores, relevance := make([]float32, 130*70), make([]bool, 130*70)
	for i := range scores {
		scores[i], relevance[i] = r.Float32(), r.IntN(5) == 0
	}
	at := func(n int) outcome {
		torch.SetThreads(n)
		scope := torch.NewScope()
		defer scope.Close()
		leaf := torch.From(scope, scores, 130, 70).RequireGrad(true)
		got, err := s.make(t).Evaluate(score.Input{Scores: leaf, Relevance: torch.From(scope, relevance, 130, 70)})
		if err != nil {
			t.Fatal(err)
		}
		return result(t, scope, got, leaf, nil)
	}
	want := at(1)
	for _, n := range []int{2, 3} {
		equal(t, at(n), want)
	}
}

func repeat(t *testing.T, s subject) {
	for _, plain := range []bool{false, true} {
		p := clusters(t, s, 130)
		p.dtype, p.plain = torch.Float32, plain
		want := run(t, s.make(t), p)
		for range 3 {
			equal(t, run(t, s.make(t), p), want)
		}
	}
}

func untouched(t *testing.T, s subject) {
	p := clusters(t, s, 24)
	for _, plain := range []bool{false, true} {
		p.plain = plain
		scope := torch.NewScope()
		in := p.input(scope)
		labels := slices.Clone(p.labels)
		r, err := p.evaluate(s.make(t), in)
		if err != nil {
			t.Fatal(err)
		}
		if r.Value.RequiresGrad() {
			if err := r.Value.Backward(); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(read(t, in.Query), p.query) || !slices.Equal(p.labels, labels) {
			t.Error("the queries or their labels have changed")
		}
		if in.Gallery != nil && !slices.Equal(read(t, in.Gallery), p.gallery) {
			t.Error("the gallery has changed")
		}
		scope.Close()
	}
}

func autocast(t *testing.T, s subject) {
	p := clusters(t, s, 40)
	p.dtype = torch.Float32
	for _, plain := range []bool{false, true} {
		p.plain = plain
		want := run(t, s.make(t), p)
		var got outcome
		torch.Autocast(torch.CPU, torch.BFloat16, func() { got = run(t, s.make(t), p) })
		if got.dtype != torch.Float32 {
			t.Errorf("the value is %s under autocast", got.dtype)
		}
		equal(t, got, want)
	}
}

func halfPrecision(t *testing.T, s subject) {
	for _, dtype := range []torch.DType{torch.BFloat16, torch.Float16} {
		p := clusters(t, s, 24)
		p.dtype = dtype
		got := run(t, s.make(t), p)
		if got.dtype != torch.Float32 {
			t.Errorf("%s embeddings give a %s loss, want float32", dtype, got.dtype)
		}
		// The same numbers as float32 embeddings give the same loss.
		scope := torch.NewScope()
		rounded := p.input(scope)
		p.query = read(t, rounded.Query)
		if p.gallery != nil {
			p.gallery = read(t, rounded.Gallery)
		}
		scope.Close()
		p.dtype = torch.Float32
		if want := run(t, s.make(t), p); got.value != want.value {
			t.Errorf("%s: value %.9g, want %.9g", dtype, got.value, want.value)
		}
	}
}

func noGradient(t *testing.T, s subject) {
	p := clusters(t, s, 24)
	want := run(t, s.make(t), p)
	p.noQueryGradient = true
	got := run(t, s.make(t), p)
	if got.value != want.value || got.grad != nil {
		t.Errorf("value %.17g, want %.17g; gradient %v, want none", got.value, want.value, got.grad)
	}
	nearAll(t, "gradient of the gallery", got.galleryGrad, want.galleryGrad, 1e-14)
}

func gpu(t *testing.T, s subject) {
	devices, why := torch.CUDADevices()
	if len(devices) == 0 {
		t.Skip(why)
	}
	for _, c := range []struct {
		dtype torch.DType
		tol   float64
	}{{torch.Float64, 1e-11}, {torch.Float32, 1e-4}} {
		for _, n := range []int{24, 203} {
			p := clusters(t, s, n)
			p.dtype = c.dtype
			want := run(t, s.make(t), p)
			p.device = devices[0]
			near(t, run(t, s.make(t), p), want, c.tol)
			l := s.make(t)
			l.Chunk = 9
			near(t, run(t, l, p), want, c.tol)
		}
	}
}

// forward is an evaluation without a gradient, for its error.
func forward(t *testing.T, l *criterion.Config, p problem) (float64, error) {
	t.Helper()
	s := torch.NewScope()
	defer s.Close()
	r, err := p.evaluate(l, p.input(s))
	if err != nil {
		return 0, err
	}
	return r.Value.Item()
}
