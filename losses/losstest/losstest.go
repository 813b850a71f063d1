// Package losstest holds what every loss must do, whatever it computes. Run
// checks it for each loss of the registry, so a new loss is tested by being
// registered; its values are compared with the reference in package losses.
package losstest

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

// check is one property of a loss.
type check struct {
	name string
	test func(*testing.T, subject)
}

var checks = []check{
	{"gradient is that of finite differences", finiteDifferences},
	{"factor around the loss multiplies the gradient", factor},
	{"order of the batch changes nothing", permutation},
	{"names of the classes change nothing", relabelling},
	{"length of the embeddings changes nothing", scale},
	{"perfect ranking is the minimum", perfect},
	{"equal embeddings", equalRows},
	{"lone queries are counted and left out", lone},
	{"all queries lone", allLone},
	{"one class", oneClass},
	{"one row", oneRow},
	{"gallery of the same samples is the batch", sameGallery},
	{"scores in place of embeddings", scoreForm},
	{"chunk changes nothing", chunks},
	{"budget changes nothing", budgets},
	{"several tiles", tiles},
	{"kernels are the plain operations", kernels},
	{"number of threads changes nothing", threads},
	{"two runs are equal to the bit", repeat},
	{"inputs stay as they are", untouched},
	{"autocast changes nothing", autocast},
	{"half precision embeddings", halfPrecision},
	{"no gradient unless wanted", noGradient},
	{"GPU agrees with the CPU", gpu},
}

// Run checks the named losses, or all of them.
func Run(t *testing.T, names ...string) {
	if names == nil {
		names = losses.Names()
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks {
				t.Run(c.name, func(t *testing.T) {
					before := torch.Live()
					c.test(t, subject{name: name})
					if left := torch.Live() - before; left != 0 {
						t.Errorf("%d tensor handles are left", left)
					}
				})
			}
		})
	}
}

// subject is the loss under test.
type subject struct{ name string }

func (s subject) make(t *testing.T) *criterion.Config {
	t.Helper()
	return Build(t, s.name, nil)
}

func (s subject) proxies(t *testing.T) bool { return losses.Traits(s.make(t).Loss).Proxies }

// Build makes a loss from its name and settings as a recipe does.
func Build(t testing.TB, name string, set map[string]any) *criterion.Config {
	t.Helper()
	var assignments []string
	for key, value := range set {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		assignments = append(assignments, fmt.Sprintf("%s=%s", key, text))
	}
	slices.Sort(assignments)
	section, err := config.Assign(name, assignments...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := config.Build(criterion.Registry, section)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// rank says whether the loss is a mean over ranked queries of something that is
// 0 or at its least when all positives come first.
func (s subject) rank() bool {
	return slices.Contains([]string{"ap", "smoothap", "supap", "fastap", "softbinap", "recallk", "blackboxap", "blackboxrecall"}, s.name)
}

// problem is embeddings with labels, in Go's memory.
type problem struct {
	d                      int
	query, gallery         []float64
	labels, galleryLabels  []int64
	ids, galleryIDs        []int64
	dtype                  torch.DType // of the embeddings; Uint8, the zero value, is float64
	device                 torch.Device
	plain, noQueryGradient bool
}

// clusters is n samples of classes of size 4 around well separated centres, in
// shuffled order, rows of different lengths. Proxy losses get a proxy a class.
func clusters(t *testing.T, s subject, n int) problem {
	const d = 12
	r := rand.New(rand.NewPCG(11, uint64(n)))
	normal := func() float64 { return r.NormFloat64() }
	classes := (n + 3) / 4
	centres := make([]float64, classes*d)
	for i := range centres {
		centres[i] = normal()
	}
	p := problem{d: d, query: make([]float64, n*d), labels: make([]int64, n)}
	for i, at := range r.Perm(n) {
		class := at / 4
		p.labels[i] = int64(class)
		length := math.Exp(normal())
		for k := range d {
			p.query[i*d+k] = length * (centres[class*d+k] + 0.8*normal())
		}
	}
	if s.proxies(t) {
		p.gallery = make([]float64, len(centres))
		for i, c := range centres {
			p.gallery[i] = c + 0.3*normal()
		}
		for c := range classes {
			p.galleryLabels = append(p.galleryLabels, int64(c))
		}
	}
	return p
}

// outcome is a loss and its gradients, in Go's memory.
type outcome struct {
	value                float64
	grad, galleryGrad    []float64
	queries, lone, pairs int
	dtype                torch.DType
}

// input puts a problem into tensors.
func (p problem) input(s *torch.Scope) score.Input {
	dtype := p.dtype
	if dtype == torch.Uint8 {
		dtype = torch.Float64
	}
	in := score.Input{QueryLabels: p.labels, GalleryLabels: p.galleryLabels, QueryIDs: p.ids, GalleryIDs: p.galleryIDs}
	in.Query = torch.From(s, p.query, int64(len(p.labels)), int64(p.d)).To(p.device, dtype).RequireGrad(!p.noQueryGradient)
	if p.gallery != nil {
		in.Gallery = torch.From(s, p.gallery, int64(len(p.galleryLabels)), int64(p.d)).To(p.device, dtype).RequireGrad(true)
	}
	return in
}

// evaluate evaluates a loss as the problem says.
func (p problem) evaluate(l *criterion.Config, in score.Input) (score.Result, error) {
	o := l.Options
	o.Plain = p.plain
	return losses.Evaluate(l.Loss, o, in)
}

// run evaluates a loss forward and backward.
func run(t *testing.T, l *criterion.Config, p problem) outcome {
	t.Helper()
	s := torch.NewScope()
	defer s.Close()
	in := p.input(s)
	r, err := p.evaluate(l, in)
	if err != nil {
		t.Fatal(err)
	}
	return result(t, s, r, in.Query, in.Gallery)
}

func result(t *testing.T, s *torch.Scope, r score.Result, query, gallery *torch.Tensor) outcome {
	t.Helper()
	o := outcome{queries: r.Queries, lone: r.Lone, pairs: r.Positives, dtype: r.Value.DType()}
	var err error
	if o.value, err = r.Value.Item(); err != nil {
		t.Fatal(err)
	}
	if !r.Value.RequiresGrad() {
		return o
	}
	if err := r.Value.Backward(); err != nil {
		t.Fatal(err)
	}
	o.grad = read(t, query.Grad(s))
	if gallery != nil {
		o.galleryGrad = read(t, gallery.Grad(s))
	}
	return o
}

func read(t *testing.T, x *torch.Tensor) []float64 {
	t.Helper()
	if x == nil {
		return nil
	}
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// near compares two outcomes: values to tol, gradients to tol of the largest
// element, or of 1e-3 where all are smaller.
func near(t *testing.T, got, want outcome, tol float64) {
	t.Helper()
	if !(math.Abs(got.value-want.value) <= tol*max(1, math.Abs(want.value))) {
		t.Errorf("value = %.17g, want %.17g", got.value, want.value)
	}
	nearAll(t, "gradient", got.grad, want.grad, tol)
	nearAll(t, "gradient of the gallery", got.galleryGrad, want.galleryGrad, tol)
}

func nearAll(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
		return
	}
	largest := 1e-3
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= tol*largest) {
			t.Errorf("%s: at %d = %.17g, want %.17g (largest %.3g)", what, i, got[i], w, largest)
			return
		}
	}
}

// equal compares two outcomes to the bit.
func equal(t *testing.T, got, want outcome) {
	t.Helper()
	if got.value != want.value || !slices.Equal(got.grad, want.grad) || !slices.Equal(got.galleryGrad, want.galleryGrad) {
		t.Errorf("the results differ: value %.17g, want %.17g", got.value, want.value)
	}
}

// allFinite refuses NaN and Inf.
func allFinite(t *testing.T, o outcome) {
	t.Helper()
	for _, v := range slices.Concat([]float64{o.value}, o.grad, o.galleryGrad) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("value %g, gradients %v: not finite", o.value, o.grad)
		}
	}
}
