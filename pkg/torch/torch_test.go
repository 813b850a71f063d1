package torch_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
	"roadmap/pkg/torch/torchtest"
)

// net is a two-layer perceptron with Adam, the smallest thing that trains.
type net struct {
	params, m, v, steps []*torch.Tensor
}

func newNet(s *torch.Scope) *net {
	n := &net{}
	for _, shape := range [][]int64{{16, 8}, {16}, {1, 16}, {1}} {
		p := s.Randn(shape, torch.Float32, torch.CPU).MulScalarInPlace(0.3).RequireGrad(true)
		n.params = append(n.params, p)
		n.m = append(n.m, s.Zeros(shape, torch.Float32, torch.CPU))
		n.v = append(n.v, s.Zeros(shape, torch.Float32, torch.CPU))
		n.steps = append(n.steps, s.Zeros(nil, torch.Float32, torch.CPU))
	}
	return n
}

func (n *net) step(root *torch.Scope) (float64, error) {
	s := root.Child()
	defer s.Close()
	x := s.Randn([]int64{32, 8}, torch.Float32, torch.CPU)
	target := x.SumDim([]int64{1}, true)
	y := x.Linear(n.params[0], n.params[1]).ReLU().Linear(n.params[2], n.params[3])
	loss := y.Sub(target).Square().Mean()
	if err := loss.Backward(); err != nil {
		return 0, err
	}
	o := torch.AdamOptions{LR: 1e-2, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	if err := torch.AdamStep(n.params, n.m, n.v, nil, n.steps, o, nil, nil); err != nil {
		return 0, err
	}
	if err := torch.ZeroGrad(n.params); err != nil {
		return 0, err
	}
	return loss.Item()
}

func residentBytes(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("no /proc/self/statm on this system:", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func TestThousandStepsHoldMemoryConstant(t *testing.T) {
	root := torchtest.Scope(t)
	if err := torch.Seed(torch.CPU, 1); err != nil {
		t.Fatal(err)
	}
	n := newNet(root)
	var first, last float64
	run := func(steps int) {
		for range steps {
			loss, err := n.step(root)
			if err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = loss
			}
			last = loss
		}
	}
	run(200) // allocators and thread pools settle
	handles, bytes := torch.Live(), residentBytes(t)
	run(1000)
	if now := torch.Live(); now != handles {
		t.Errorf("%d handles before 1,000 steps, %d after", handles, now)
	}
	if grown := residentBytes(t) - bytes; grown > 8<<20 {
		t.Errorf("resident memory grew by %d bytes in 1,000 steps", grown)
	}
	if last > first/20 {
		t.Errorf("the loss went from %g to %g: it did not learn", first, last)
	}
}

func TestGoroutinesShareParameters(t *testing.T) {
	root := torchtest.Scope(t)
	w := torch.From(root, []float32{1, 2, 3, 4}, 2, 2)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 200 {
				s := root.Child()
				x := torch.From(s, []float32{float32(g), float32(i)}, 1, 2)
				y, err := x.MatMul(w).Float32s()
				if err != nil || y[0] != float32(g)+3*float32(i) || y[1] != 2*float32(g)+4*float32(i) {
					t.Errorf("goroutine %d step %d: %v, %v", g, i, y, err)
				}
				if i%50 == 0 { // an error stays with its goroutine
					if bad := w.Add(torch.From(s, []float32{1, 2, 3})); bad.Err() == nil {
						t.Error("a sum of [2, 2] and [3] was accepted")
					}
				}
				s.Close()
			}
		})
	}
	all.Wait()
	if err := root.Err(); err != nil {
		t.Errorf("the children's errors reached the parent: %v", err)
	}
}

func TestErrorsNameOperationAndOperands(t *testing.T) {
	root := torchtest.Scope(t)
	a := torch.From(root, make([]float32, 6), 2, 3)
	b := torch.From(root, make([]float64, 8), 4, 2)
	labels := torch.From(root, []int64{1, 2})
	for _, c := range []struct {
		name string
		do   func(x *torch.Tensor) *torch.Tensor
		want []string
	}{
		{"shape", func(x *torch.Tensor) *torch.Tensor { return x.MatMul(x) }, []string{"MatMul(", "float32 [2, 3] cpu", "cannot be multiplied"}},
		{"dtype", func(x *torch.Tensor) *torch.Tensor { return x.T().MatMul(b.T()) }, []string{"MatMul(", "float32 [3, 2] cpu", "float64 [2, 4] cpu", "dtype"}},
		{"not a float", func(x *torch.Tensor) *torch.Tensor { return labels.Alias(x.Scope()).Mean() }, []string{"Mean(", "int64 [2] cpu"}},
		{"dimension", func(x *torch.Tensor) *torch.Tensor { return x.Select(5, 0) }, []string{"Select(", "Dimension out of range"}},
		{"index", func(x *torch.Tensor) *torch.Tensor { return x.IndexSelect(0, labels.AddScalar(40)) }, []string{"IndexSelect(", "index out of range"}},
		{"device", func(x *torch.Tensor) *torch.Tensor { return x.ToDevice(torch.CUDA(63)) }, []string{"cuda:63", "--device cpu"}},
		{"nil operand", func(x *torch.Tensor) *torch.Tensor { return x.Add(nil) }, []string{"Add", "nil"}},
		{"no tensors", func(x *torch.Tensor) *torch.Tensor { return torch.Cat(nil, 0) }, []string{"Cat", "empty"}},
		{"From", func(x *torch.Tensor) *torch.Tensor { return torch.From(x.Scope(), []float32{1, 2}, 3) }, []string{"From", "2 elements do not fill shape [3]"}},
		{"negative", func(x *torch.Tensor) *torch.Tensor { return torch.From(x.Scope(), []float32{}, -1) }, []string{"negative size"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := root.Child()
			defer s.Close()
			err := c.do(a.Alias(s)).Err()
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestFirstErrorSticks(t *testing.T) {
	root := torchtest.Scope(t)
	s := root.Child()
	a := torch.From(s, []float32{1, 2, 3})
	bad := a.Reshape(7)
	after := a.AddScalar(1).MatMul(bad).Sum()
	_, readErr := a.Float32s()
	_, keepErr := after.Keep()
	for name, err := range map[string]error{"Scope.Err": s.Err(), "Backward": after.Backward(), "read": readErr, "Keep": keepErr, "Err": bad.Err()} {
		var op *torch.OpError
		if !errors.As(err, &op) || op.Op != "Reshape" {
			t.Errorf("%s returned %v, want the first error, of Reshape", name, err)
		}
	}
	if n := after.Shape(); n != nil {
		t.Errorf("a dead tensor has shape %v", n)
	}
	s.Close()
	if err := root.Err(); err != nil {
		t.Errorf("an error that was handed out went on to the parent: %v", err)
	}

	quiet := root.Child()
	torch.From(quiet, []float32{1, 2, 3}).Reshape(7)
	quiet.Close()
	if root.Err() == nil {
		t.Error("an error nobody asked for was lost when its scope closed")
	}
}

func TestOutOfMemoryIsAnError(t *testing.T) {
	s := torchtest.Scope(t).Child()
	defer s.Close()
	_, err := s.Ones([]int64{1 << 25, 1 << 25}, torch.Float32, torch.CPU).Item()
	if !errors.Is(err, torch.ErrOutOfMemory) {
		t.Fatalf("got %v, want out of memory", err)
	}
	if !strings.Contains(err.Error(), "Ones") {
		t.Errorf("%q does not name the operation", err)
	}
}

func TestClosedScope(t *testing.T) {
	torchtest.NoLeak(t)
	s := torch.NewScope()
	a := torch.From(s, []float32{1})
	s.Close()
	s.Close()
	if _, err := a.Float32s(); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("reading after Close: %v", err)
	}
	if err := a.Add(a).Err(); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("adding after Close: %v", err)
	}
	if err := torch.From(s, []float32{1}).Err(); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("making a tensor after Close: %v", err)
	}
}

func TestResultsLandInInnermostScope(t *testing.T) {
	root := torchtest.Scope(t)
	w := torch.From(root, []float32{2})
	step := root.Child()
	y := torch.From(step, []float32{3}).Mul(w)
	z := w.Mul(torch.From(step, []float32{5}))
	if y.Scope() != step || z.Scope() != step {
		t.Error("a product of a parameter and a batch did not land in the step")
	}
	kept, err := y.Keep()
	if err != nil {
		t.Fatal(err)
	}
	step.Close()
	torchtest.Equal(t, kept, []float64{6}, 0)
	if _, err := z.Item(); err == nil {
		t.Error("a tensor survived its scope")
	}
	if n := root.Len(); n != 2 {
		t.Errorf("the root holds %d tensors, want w and y", n)
	}
}

func TestAutogradAgainstFiniteDifferences(t *testing.T) {
	s := torchtest.Scope(t)
	if err := torch.Seed(torch.CPU, 3); err != nil {
		t.Fatal(err)
	}
	x := s.Randn([]int64{3, 4}, torch.Float64, torch.CPU)
	w := s.Randn([]int64{5, 4}, torch.Float64, torch.CPU)
	image := s.Randn([]int64{2, 2, 5, 5}, torch.Float64, torch.CPU)
	kernel := s.Randn([]int64{3, 2, 3, 3}, torch.Float64, torch.CPU)
	for name, f := range map[string]func(in []*torch.Tensor) *torch.Tensor{
		"linear, sigmoid": func(in []*torch.Tensor) *torch.Tensor { return in[0].Linear(in[1], nil).Sigmoid().Sum() },
		"log-sum-exp": func(in []*torch.Tensor) *torch.Tensor {
			return in[0].MatMul(in[1].T()).LogSumExp([]int64{1}, false).Square().Mean()
		},
		"norms": func(in []*torch.Tensor) *torch.Tensor {
			return in[0].Div(in[0].Norm(2, []int64{1}, true)).MatMul(in[1].T()).Exp().Mean()
		},
	} {
		t.Run(name, func(t *testing.T) { torchtest.GradCheck(t, f, 1e-7, x, w) })
	}
	t.Run("convolution", func(t *testing.T) {
		torchtest.GradCheck(t, func(in []*torch.Tensor) *torch.Tensor {
			return in[0].Conv2d(in[1], nil, []int64{1, 1}, []int64{1, 1}, []int64{1, 1}, 1).Tanh().Mean()
		}, 1e-7, image, kernel)
	})
}

func TestWithGradPassesKnownGradients(t *testing.T) {
	s := torchtest.Scope(t)
	x := torch.From(s, []float64{1, 2, 3}).RequireGrad(true)
	y := torch.From(s, []float64{5}).RequireGrad(true)
	value := torch.From(s, []float64{7}, []int64{}...).Reshape()
	gx := torch.From(s, []float64{10, 20, 30})
	// (value · 2 + Σx)': WithGrad's gradient times 2, plus ones; nothing for y.
	if err := value.WithGrad([]*torch.Tensor{x, y}, []*torch.Tensor{gx, nil}).MulScalar(2).Add(x.Sum()).Backward(); err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, x.Grad(s), []float64{2*10 + 1, 2*20 + 1, 2*30 + 1}, 0)
	if g := y.Grad(s); g != nil {
		t.Errorf("y received a gradient: %v", g)
	}
	torchtest.Equal(t, gx, []float64{10, 20, 30}, 0)
}

func TestBackwardFromAndGradients(t *testing.T) {
	s := torchtest.Scope(t)
	x := torch.From(s, []float64{1, 2, 3}).RequireGrad(true)
	unused := torch.From(s, []float64{4}).RequireGrad(true)
	y := x.Square()
	seed := torch.From(s, []float64{1, 10, 100})
	g := torch.Gradients(y, seed, []*torch.Tensor{x, unused}, true, false)
	torchtest.Equal(t, g[0], []float64{2 * 1, 2 * 2 * 10, 2 * 3 * 100}, 0)
	torchtest.Equal(t, g[1], []float64{0}, 0)
	if x.Grad(s) != nil {
		t.Error("Gradients filled the leaf's own gradient")
	}
	if err := y.BackwardFrom(seed, false, false); err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, x.Grad(s), []float64{2, 40, 600}, 0)
}

func TestSeedsReproduce(t *testing.T) {
	s := torchtest.Scope(t)
	torchtest.EachDevice(t, func(t *testing.T, d torch.Device) {
		draw := func() []float32 {
			v, err := s.Randn([]int64{100}, torch.Float32, d).Float32s()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		seed := func(n uint64) {
			if err := torch.Seed(d, n); err != nil {
				t.Fatal(err)
			}
		}
		seed(7)
		draw()
		state, err := torch.GeneratorState(d)
		if err != nil {
			t.Fatal(err)
		}
		a := draw()
		if err := torch.SetGeneratorState(d, state); err != nil {
			t.Fatal(err)
		}
		b := draw()
		seed(7)
		draw()
		c := draw()
		seed(8)
		draw()
		other := draw()
		same := 0
		for i := range a {
			if a[i] != b[i] || a[i] != c[i] {
				t.Fatalf("number %d: %g, from the state %g, from the seed %g", i, a[i], b[i], c[i])
			}
			if a[i] == other[i] {
				same++
			}
		}
		if same > 5 {
			t.Errorf("another seed gave %d of 100 equal numbers", same)
		}
	})
	if err := torch.SetGeneratorState(torch.CPU, []byte("short")); err == nil {
		t.Error("a broken generator state was accepted")
	}
}

// Each mode alone: a thread that one of them holds would hide that another
// holds none. A goroutine that waits gives its thread, unless it holds it, to
// the one that it waits for.
func TestModesStayOnTheirGoroutine(t *testing.T) {
	s := torchtest.Scope(t)
	w := torch.From(s, []float32{1, 2, 3, 4}, 2, 2).RequireGrad(true)
	product := func() (grad bool, dtype torch.DType) {
		c := torch.NewScope()
		defer c.Close()
		y := w.Alias(c).MatMul(w)
		return y.RequiresGrad(), y.DType()
	}
	autocast := func(dtype torch.DType) func(func()) {
		return func(f func()) { torch.Autocast(torch.CPU, dtype, f) }
	}
	for _, m := range []struct {
		name  string
		enter func(func())
		grad  bool
		dtype torch.DType
	}{
		{"NoGrad", torch.NoGrad, false, torch.Float32},
		{"Autocast to bfloat16", autocast(torch.BFloat16), true, torch.BFloat16},
		{"Autocast to float16", autocast(torch.Float16), true, torch.Float16},
	} {
		t.Run(m.name, func(t *testing.T) {
			for range 20 {
				inside, outside := make(chan bool), make(chan bool)
				go func() {
					<-inside
					if grad, dtype := product(); !grad || dtype != torch.Float32 {
						t.Errorf("it leaked into another goroutine: requires grad %v, %s", grad, dtype)
					}
					outside <- true
				}()
				m.enter(func() {
					inside <- true
					<-outside
					if grad, dtype := product(); grad != m.grad || dtype != m.dtype {
						t.Errorf("inside: requires grad %v, %s", grad, dtype)
					}
				})
				if grad, dtype := product(); !grad || dtype != torch.Float32 {
					t.Fatalf("after: requires grad %v, %s", grad, dtype)
				}
			}
		})
	}
}

func TestModesNest(t *testing.T) {
	s := torchtest.Scope(t)
	w := torch.From(s, []float32{1, 2, 3, 4}, 2, 2).RequireGrad(true)
	torch.NoGrad(func() {
		torch.Autocast(torch.CPU, torch.BFloat16, func() {
			torch.NoAutocast(torch.CPU, func() {
				if y := w.MatMul(w); y.DType() != torch.Float32 {
					t.Errorf("NoAutocast gave %s", y.DType())
				}
			})
			torch.EnableGrad(func() {
				if y := w.MatMul(w); !y.RequiresGrad() {
					t.Error("EnableGrad did not")
				}
			})
			if y := w.MatMul(w); y.RequiresGrad() || y.DType() != torch.BFloat16 {
				t.Errorf("after the inner modes: requires grad %v, %s", y.RequiresGrad(), y.DType())
			}
		})
	})
	func() {
		defer func() { _ = recover() }()
		torch.NoGrad(func() { panic("out of the function") })
	}()
	if y := w.Mul(w); !y.RequiresGrad() {
		t.Error("a panic left NoGrad on")
	}
}

func TestAdamStepByHand(t *testing.T) {
	s := torchtest.Scope(t)
	p := torch.From(s, []float64{1, -2}).RequireGrad(true)
	idle := torch.From(s, []float64{9}).RequireGrad(true)
	params := []*torch.Tensor{p, idle}
	zeros := func() []*torch.Tensor { return []*torch.Tensor{p.Detach().ZerosLike(), idle.Detach().ZerosLike()} }
	m, v := zeros(), zeros()
	steps := []*torch.Tensor{s.Zeros(nil, torch.Float32, torch.CPU), s.Zeros(nil, torch.Float32, torch.CPU)}
	const lr, b1, b2, eps, wd = 0.1, 0.9, 0.99, 1e-8, 0.5
	x, g := []float64{1, -2}, []float64{3, 4}
	mh, vh := []float64{0, 0}, []float64{0, 0}
	for step := 1; step <= 3; step++ {
		if err := p.SetGrad(torch.From(s, g)); err != nil {
			t.Fatal(err)
		}
		o := torch.AdamOptions{LR: lr, Beta1: b1, Beta2: b2, Eps: eps, WeightDecay: wd, Decoupled: true}
		if err := torch.AdamStep(params, m, v, nil, steps, o, nil, nil); err != nil {
			t.Fatal(err)
		}
		for i := range x {
			x[i] -= lr * wd * x[i]
			mh[i] = b1*mh[i] + (1-b1)*g[i]
			vh[i] = b2*vh[i] + (1-b2)*g[i]*g[i]
			x[i] -= lr * (mh[i] / (1 - math.Pow(b1, float64(step)))) / (math.Sqrt(vh[i]/(1-math.Pow(b2, float64(step)))) + eps)
		}
		torchtest.Equal(t, p, x, 1e-12)
	}
	torchtest.Equal(t, idle, []float64{9}, 0)
	torchtest.Equal(t, steps[0], []float64{3}, 0)
	torchtest.Equal(t, steps[1], []float64{0}, 0)
	if err := torch.AdamStep(params, m[:1], v, nil, steps, torch.AdamOptions{}, nil, nil); err == nil {
		t.Error("a list of moments of another length was accepted")
	}
}

func TestSGDStepByHand(t *testing.T) {
	s := torchtest.Scope(t)
	p := torch.From(s, []float64{1}).RequireGrad(true)
	buffer := []*torch.Tensor{s.Zeros([]int64{1}, torch.Float64, torch.CPU)}
	x, b := 1.0, 0.0
	for step := range 3 {
		if err := p.SetGrad(torch.From(s, []float64{2})); err != nil {
			t.Fatal(err)
		}
		o := torch.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, First: step == 0}
		if err := torch.SGDStep([]*torch.Tensor{p}, buffer, o, nil, nil); err != nil {
			t.Fatal(err)
		}
		g := 2 + 0.01*x
		b = 0.9*b + g
		x -= 0.1 * b
		torchtest.Equal(t, p, []float64{x}, 1e-12)
	}
}

func TestGradientNormClipUnscaleAndAverage(t *testing.T) {
	s := torchtest.Scope(t)
	a := torch.From(s, []float32{0}).RequireGrad(true)
	b := torch.From(s, []float32{0, 0}).RequireGrad(true)
	none := torch.From(s, []float32{0}).RequireGrad(true)
	params := []*torch.Tensor{a, b, none}
	set := func(x, y, z float32) {
		if err := errors.Join(a.SetGrad(torch.From(s, []float32{x})), b.SetGrad(torch.From(s, []float32{y, z}))); err != nil {
			t.Fatal(err)
		}
	}
	set(2, 3, 6)
	norm, err := torch.ClipGradNorm(params, 3.5)
	if err != nil || norm != 7 { // √(4 + 9 + 36)
		t.Fatalf("norm %v, %v; want 7", norm, err)
	}
	torchtest.Equal(t, b.Grad(s), []float64{1.5, 3}, 1e-6) // halved
	if norm, _ = torch.ClipGradNorm(params, 100); math.Abs(norm-3.5) > 1e-5 {
		t.Errorf("norm after clipping %v, want 3.5", norm)
	}
	found, inverse := torch.From(s, []float32{0}), torch.From(s, []float32{0.25})
	set(4, 8, 12)
	if err := torch.UnscaleGrads(params, found, inverse); err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, a.Grad(s), []float64{1}, 0)
	torchtest.Equal(t, found, []float64{0}, 0)
	set(float32(math.Inf(1)), 0, 0)
	if err := torch.UnscaleGrads(params, found, inverse); err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, found, []float64{1}, 0)
	mean, target := torch.From(s, []float32{0}), torch.From(s, []float32{10})
	if err := torch.LerpAll([]*torch.Tensor{mean}, []*torch.Tensor{target}, 0.1); err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, mean, []float64{1}, 1e-7)
	if err := torch.ZeroGrad(params); err != nil || a.Grad(s) != nil {
		t.Errorf("ZeroGrad: %v, gradient %v", err, a.Grad(s))
	}
}

func TestWrapSharesMemoryAndGivesItBack(t *testing.T) {
	torchtest.NoLeak(t)
	s := torch.NewScope()
	data := []float32{1, 2, 3, 4}
	x := torch.Wrap(s, data, 2, 2)
	data[3] = 40
	torchtest.Equal(t, x, []float64{1, 2, 3, 40}, 0)
	x.AddScalarInPlace(1)
	if data[0] != 2 {
		t.Errorf("a write to the tensor was not seen in the slice: %v", data)
	}
	released := 0
	buffer := make([]int64, 2)
	y := torch.WrapPointer(s, unsafe.Pointer(&buffer[0]), torch.Int64, 2, func() { released++ })
	outer := torch.NewScope()
	view := y.Alias(outer)
	s.Close()
	if released != 0 {
		t.Error("the buffer was given back while a view of it lives")
	}
	torchtest.Equal(t, view, []float64{0, 0}, 0)
	outer.Close()
	if released != 1 {
		t.Errorf("the buffer was given back %d times", released)
	}
	failed := torch.NewScope()
	torch.WrapPointer(failed, unsafe.Pointer(&buffer[0]), torch.Int64, 2, func() { released++ }, 3)
	if failed.Close(); released != 2 {
		t.Error("a buffer that did not fit its shape was not given back")
	}
	runtime.KeepAlive(buffer)
}

func TestHostReads(t *testing.T) {
	s := torchtest.Scope(t)
	x := torch.From(s, []float64{1.5, -2, 0, 7}, 2, 2)
	torchtest.Equal(t, x.T(), []float64{1.5, 0, -2, 7}, 0) // row order, whatever the strides
	if b, err := torch.Read[bool](x); err != nil || b[2] || !b[0] {
		t.Errorf("as bool: %v, %v", b, err)
	}
	if i, err := x.Int64s(); err != nil || i[0] != 1 || i[1] != -2 {
		t.Errorf("as int64: %v, %v", i, err)
	}
	raw, err := torch.From(s, []int16{258}).ReadBytes()
	if err != nil || len(raw) != 2 || raw[0] != 2 || raw[1] != 1 {
		t.Errorf("raw bytes %v, %v", raw, err)
	}
	back := torch.FromBytes(s, []byte{2, 1}, torch.Int16, 1)
	torchtest.Equal(t, back, []float64{258}, 0)
	if _, err := x.Item(); err == nil {
		t.Error("four elements were read as one")
	}
	many := torch.From(s, []float32{5}).Reshape(make1s(20)...)
	if n := many.Shape(); len(n) != 20 || many.Numel() != 1 || many.Size(19) != 1 {
		t.Errorf("twenty dimensions are %v", n)
	}
	odd := s.Child()
	defer odd.Close()
	if err := torch.FromBytes(odd, make([]byte, 11), torch.Float32, 2).Err(); err == nil || !strings.Contains(err.Error(), "11 bytes") {
		t.Errorf("11 bytes as float32: %v", err)
	}
	s2 := s.Child()
	defer s2.Close()
	if err := torch.ReadInto(x, make([]float32, 3)); err == nil {
		t.Error("four elements were read into three")
	}
	empty, err := torch.From(s, []float32{}, 0, 5).Float32s()
	if err != nil || len(empty) != 0 {
		t.Errorf("empty: %v, %v", empty, err)
	}
}

func make1s(n int) []int64 {
	ones := make([]int64, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// The fused kernels trust their operands' sizes: what does not fit must not reach them.
func TestOptimisersRefuseStateThatDoesNotFit(t *testing.T) {
	s := torchtest.Scope(t)
	p := torch.From(s, make([]float32, 1000)).RequireGrad(true)
	if err := p.SetGrad(torch.From(s, []float32{1, 2})); err == nil {
		t.Error("a gradient of two elements was set on a thousand")
	}
	if err := p.SetGrad(p.Detach().Clone()); err != nil {
		t.Fatal(err)
	}
	params, one := []*torch.Tensor{p}, []*torch.Tensor{torch.From(s, []float32{0})}
	m := []*torch.Tensor{p.Detach().ZerosLike()}
	o := torch.AdamOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}
	for name, err := range map[string]error{
		"first moment":  torch.AdamStep(params, one, m, nil, one, o, nil, nil),
		"second moment": torch.AdamStep(params, m, one, nil, one, o, nil, nil),
		"counter":       torch.AdamStep(params, m, m, nil, m, o, nil, nil),
		"momentum":      torch.SGDStep(params, one, torch.SGDOptions{LR: 1, Momentum: 0.9}, nil, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "optimiser state of size") {
			t.Errorf("%s of another size: %v", name, err)
		}
	}
	closed := torch.NewScope()
	flag := torch.From(closed, []float32{1})
	closed.Close()
	if err := torch.AdamStep(params, m, m, nil, one, o, nil, flag); !errors.Is(err, torch.ErrClosed) {
		t.Errorf("a flag from a closed scope: %v", err)
	}
	torchtest.Equal(t, p, make([]float64, 1000), 0)
}

func TestWholeNumbersKeepIntegerTensors(t *testing.T) {
	s := torchtest.Scope(t)
	x := torch.From(s, []int64{1, 1 << 60})
	if y := x.AddScalar(1); y.DType() != torch.Int64 {
		t.Errorf("int64 + 1 is %s", y.DType())
	}
	if v, _ := x.AddScalar(1).Int64s(); v[1] != 1<<60+1 {
		t.Errorf("2^60 + 1 = %d", v[1])
	}
	if y := x.AddScalar(0.5); y.DType() != torch.Float32 {
		t.Errorf("int64 + 0.5 is %s", y.DType())
	}
	if n, _ := x.EqScalar(1).Sum().Item(); n != 1 {
		t.Errorf("%g elements equal 1", n)
	}
	if y := x.EqScalar(1).Sum(); y.DType() != torch.Int64 {
		t.Errorf("a count of booleans is %s", y.DType())
	}
}

func TestLayoutsAndResize(t *testing.T) {
	s := torchtest.Scope(t)
	x := s.Randn([]int64{2, 3, 8, 8}, torch.Float32, torch.CPU)
	y := x.ChannelsLast()
	if !y.IsContiguous(true) || y.IsContiguous(false) {
		t.Error("ChannelsLast did not change the layout")
	}
	want, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	torchtest.Equal(t, y, want, 0)
	// Antialiased bilinear from 8x8 to 4x4 of a checkerboard of 2x2 cells keeps its mean.
	board := make([]uint8, 64)
	for i := range board {
		if (i%8/2+i/8/2)%2 == 0 {
			board[i] = 200
		}
	}
	small := torch.From(s, board, 1, 1, 8, 8).UpsampleBilinear2dAA([]int64{4, 4}, false)
	if small.DType() != torch.Uint8 {
		t.Errorf("uint8 was resized to %s", small.DType())
	}
	mean, err := small.ToDType(torch.Float32).Mean().Item()
	if err != nil || math.Abs(mean-100) > 1 {
		t.Errorf("mean %g, %v; want 100", mean, err)
	}
}

func TestIndexing(t *testing.T) {
	s := torchtest.Scope(t)
	x := torch.From(s, []float32{0, 1, 2, 3, 4, 5}, 2, 3)
	torchtest.Equal(t, x.Index(nil, torch.From(s, []int64{2, 0})), []float64{2, 0, 5, 3}, 0)
	torchtest.Equal(t, x.Slice(1, 0, 3, 2), []float64{0, 2, 3, 5}, 0)
	x.IndexPutInPlace(torch.From(s, []float32{10, 20}), true, torch.From(s, []int64{0, 0}), torch.From(s, []int64{1, 1}))
	torchtest.Equal(t, x, []float64{0, 31, 2, 3, 4, 5}, 0)
	values, indices := x.TopK(1, 1, true, true)
	torchtest.Equal(t, values, []float64{31, 5}, 0)
	torchtest.Equal(t, indices, []float64{1, 2}, 0)
}

func TestDevices(t *testing.T) {
	if d, err := torch.ParseDevice("cpu"); err != nil || d != torch.CPU || d.String() != "cpu" {
		t.Errorf("cpu: %v, %v", d, err)
	}
	if name := torch.CUDA(3).String(); name != "cuda:3" {
		t.Errorf("the fourth GPU is called %s", name)
	}
	for _, name := range []string{"gpu", "cuda:", "cuda:-1", "cuda:x"} {
		if _, err := torch.ParseDevice(name); !fault.IsInput(err) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if gpus, why := torch.CUDADevices(); len(gpus) == 0 {
		if why == "" {
			t.Error("no GPU and no reason")
		}
		_, err := torch.ParseDevice("cuda")
		if !fault.IsInput(err) || !strings.Contains(err.Error(), "--device cpu") {
			t.Errorf("cuda without a GPU: %v", err)
		}
		if d, err := torch.ParseDevice("auto"); err != nil || d != torch.CPU {
			t.Errorf("auto without a GPU: %v, %v", d, err)
		}
	} else if m, err := torch.Memory(gpus[0]); err != nil || m.Total <= 0 || m.Free <= 0 {
		t.Errorf("memory %+v, %v", m, err)
	}
	if err := torch.Synchronize(torch.CPU); err != nil {
		t.Error(err)
	}
}

func TestThreadsAndVersion(t *testing.T) {
	before := torch.Threads()
	defer torch.SetThreads(before)
	torch.SetThreads(1)
	if n := torch.Threads(); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
	torch.SetThreads(0) // no number: unchanged
	if n := torch.Threads(); n != 1 {
		t.Errorf("%d threads, want 1", n)
	}
	if v := torch.Version(); !strings.HasPrefix(v, "2.11.") {
		t.Errorf("libtorch %q, want 2.11", v)
	}
	if !strings.Contains(torch.BuildInfo(), "OpenMP") {
		t.Error("the build information does not mention its threads")
	}
}

func TestDTypeNames(t *testing.T) {
	for _, d := range []torch.DType{torch.Uint8, torch.Int64, torch.Float16, torch.BFloat16, torch.Float32, torch.Float64, torch.Bool} {
		if back, err := torch.ParseDType(d.String()); err != nil || back != d {
			t.Errorf("%s reads back as %v, %v", d, back, err)
		}
	}
	if _, err := torch.ParseDType("float8"); err == nil {
		t.Error("float8 was accepted")
	}
}

// The generated half must be what the generator writes from ops.txt.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	have, err := os.ReadFile("ops_generated.go")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("ops.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ops.txt"), list, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./internal/genops", dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(dir, "ops_generated.go"))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(want) {
		t.Error("ops_generated.go is not what ops.txt gives: run `go generate ./pkg/torch`")
	}
}

// One small operation, chained 100 times in a scope; testdata/bench_peers.py times
// the same in Python.
func BenchmarkSmallAdd(b *testing.B) {
	for _, grad := range []bool{false, true} {
		b.Run(map[bool]string{false: "nograd", true: "grad"}[grad], func(b *testing.B) {
			s := torch.NewScope()
			defer s.Close()
			x := torch.From(s, []float32{1, 2, 3, 4}).RequireGrad(grad)
			for b.Loop() {
				c := s.Child()
				y := x.Alias(c)
				for range 100 {
					y = y.Add(x)
				}
				c.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/add")
		})
	}
}
