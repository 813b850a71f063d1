package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/rng"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

func floats(t *testing.T, x *torch.Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func near(a, b []float64, tolerance float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= tolerance })
}

// small is a network with every kind of layer.
func small(s *torch.Scope, seed uint64) (*nn.Params, nn.Sequential) {
	p := nn.NewParams(s, torch.CPU, seed)
	root := p.Root()
	net := nn.Sequential{
		nn.NewConv(root.At("stem"), nn.ConvShape{In: 2, Out: 4, Kernel: 3, Padding: 1}),
		nn.NewBatchNorm(root.At("stages", 0, "norm"), 4, 1, nn.FrozenNone),
		nn.Func((*torch.Tensor).ReLU),
		nn.Func(func(x *torch.Tensor) *torch.Tensor { return x.MeanDim([]int64{2, 3}, false) }),
		nn.NewLinear(root.At("fc"), 4, 3, true, nil),
		nn.NewLayerNorm(root.At("last"), 3, 1e-6),
	}
	return p, net
}

func images(s *torch.Scope, n int64) *torch.Tensor {
	r := rng.New(7)
	pixels := make([]float32, n*2*4*4)
	for i := range pixels {
		pixels[i] = r.Float32()
	}
	return torch.From(s, pixels, n, 2, 4, 4)
}

func TestStateHasPyTorchsNamesAndOrder(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	p, _ := small(s, 1)
	var names []string
	for _, n := range p.State() {
		names = append(names, n.Name)
	}
	want := strings.Fields(`stem.weight stem.bias
		stages.0.norm.weight stages.0.norm.bias stages.0.norm.running_mean stages.0.norm.running_var stages.0.norm.num_batches_tracked
		fc.weight fc.bias last.weight last.bias`)
	if !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
	if got := len(p.State().Parameters()); got != 8 {
		t.Errorf("%d parameters, want 8: the state without three buffers", got)
	}
}

func TestInitialValuesComeFromSeedAndName(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	weight := func(seed uint64, name string, others int) []float64 {
		p := nn.NewParams(s, torch.CPU, seed)
		for i := range others {
			nn.NewLinear(p.Root().At("other", i), 2, 2, true, nil)
		}
		nn.NewLinear(p.Root().At(name), 8, 4, true, nil)
		return floats(t, p.State()[2*others].Tensor)
	}
	first := weight(1, "fc", 0)
	if !slices.Equal(first, weight(1, "fc", 3)) {
		t.Error("layers made before change a weight")
	}
	if slices.Equal(first, weight(2, "fc", 0)) || slices.Equal(first, weight(1, "fd", 0)) {
		t.Error("another seed or name gives the same weight")
	}
}

// The distributions, by their moments over 100,000 draws: a standard deviation
// has a relative error of about 1/√(2·100000) = 0.2 %, allowed five of them.
func TestInits(t *testing.T) {
	for _, c := range []struct {
		name       string
		init       nn.Init
		std, bound float64
	}{
		{"FanIn(16)", nn.FanIn(16), 0.25 / math.Sqrt(3), 0.25}, // uniform in ±1/√16
		{"KaimingNormal(8)", nn.KaimingNormal(8), 0.5, math.Inf(1)},
		{"TruncatedNormal(0.02, 2)", nn.TruncatedNormal(0.02, 2), 0.02, 2},
		{"TruncatedNormal(1, 1)", nn.TruncatedNormal(1, 1), 0.5396, 1}, // √(1 - 2φ(1)/(2Φ(1)-1)), φ(1) = 0.24197, Φ(1) = 0.84134
	} {
		x := make([]float32, 100_000)
		c.init(rng.New(3), x)
		var sum, square, most float64
		for _, v := range x {
			sum += float64(v)
			square += float64(v) * float64(v)
			most = max(most, math.Abs(float64(v)))
		}
		n := float64(len(x))
		mean, std := sum/n, math.Sqrt(square/n)
		if math.Abs(mean) > 5*c.std/math.Sqrt(n) || math.Abs(std/c.std-1) > 0.011 || most > c.bound {
			t.Errorf("%s: mean %g, standard deviation %g, largest %g; want 0, %g, at most %g", c.name, mean, std, most, c.std, c.bound)
		}
	}
}

// Channel values 1, 2, 3, 6: mean 3, biased variance (4+1+0+9)/4 = 3.5,
// unbiased 14/3. Running values move a tenth of the way from 0 and 1.
func TestBatchNormModes(t *testing.T) {
	for _, c := range []struct {
		name             string
		mode             nn.Mode
		frozen           nn.Frozen
		mean, vari       float64 // used to normalise
		runMean, runVar  float64 // afterwards
		batches, trained float64 // counted; parameters with a gradient
	}{
		{"train", nn.Train, nn.FrozenNone, 3, 3.5, 0.3, 0.9 + 0.1*14/3, 1, 2},
		{"replay", nn.Replay, nn.FrozenNone, 3, 3.5, 0, 1, 0, 2},
		{"eval", nn.Eval, nn.FrozenNone, 0, 1, 0, 1, 0, 2},
		{"frozen statistics", nn.Train, nn.FrozenStatistics, 0, 1, 0, 1, 0, 2},
		{"frozen affine", nn.Train, nn.FrozenAffine, 0, 1, 0, 1, 0, 0},
	} {
		s := torch.NewScope()
		p := nn.NewParams(s, torch.CPU, 1)
		l := nn.NewBatchNorm(p.Root(), 1, 2, c.frozen)
		y := floats(t, l.Forward(torch.From(s, []float32{1, 2, 3, 6}, 4, 1, 1, 1), c.mode))
		var want []float64
		for _, x := range []float64{1, 2, 3, 6} {
			want = append(want, 2*(x-c.mean)/math.Sqrt(c.vari+1e-5))
		}
		if !near(y, want, 1e-5) {
			t.Errorf("%s: %v, want %v", c.name, y, want)
		}
		state := p.State()
		got := []float64{floats(t, state[2].Tensor)[0], floats(t, state[3].Tensor)[0], floats(t, state[4].Tensor)[0], float64(len(state.Parameters()))}
		if !near(got, []float64{c.runMean, c.runVar, c.batches, c.trained}, 1e-6) {
			t.Errorf("%s: running mean, variance, batches, parameters %v; want %v", c.name, got, []float64{c.runMean, c.runVar, c.batches, c.trained})
		}
		s.Close()
	}
}

func TestSaveAndLoad(t *testing.T) {
	before := torch.Live()
	s := torch.NewScope()
	p, net := small(s, 1)
	x := images(s, 5)
	want := net.Forward(x, nn.Train) // moves the running statistics too
	again := floats(t, net.Forward(x, nn.Eval))
	saved, err := p.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	q, other := small(s, 2)
	live := torch.Live()
	if err := q.State().Load(nn.Stored(saved)); err != nil {
		t.Fatal(err)
	}
	if torch.Live() != live {
		t.Errorf("loading left %d handles", torch.Live()-live)
	}
	if got := floats(t, other.Forward(x, nn.Eval)); !slices.Equal(got, again) {
		t.Errorf("loaded network gives %v, want %v", got, again)
	}
	if want.Err() != nil {
		t.Error(want.Err())
	}
	s.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles outlive the scope", left)
	}
}

func TestLoadIsStrictAndChangesNothing(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	p, _ := small(s, 1)
	saved, err := p.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	saved = slices.DeleteFunc(saved, func(n tensorio.Named) bool { return n.Name == "fc.bias" || n.Name == "last.weight" })
	for i := range saved {
		switch saved[i].Name {
		case "fc.weight":
			saved[i].Tensor = tensorio.Of(make([]float32, 12), 4, 3)
		case "stem.bias":
			saved[i].Tensor = tensorio.Of(make([]int64, 4), 4)
		}
	}
	saved = append(saved, tensorio.Named{Name: "classifier.weight", Tensor: tensorio.Of([]float32{1})})

	q, _ := small(s, 2)
	untouched, err := q.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	err = q.State().Load(nn.Stored(saved))
	var miss *nn.MismatchError
	if !errors.As(err, &miss) || !fault.IsInput(err) {
		t.Fatalf("error %v, want an input error of type MismatchError", err)
	}
	if !slices.Equal(miss.Missing, []string{"fc.bias", "last.weight"}) || !slices.Equal(miss.Unexpected, []string{"classifier.weight"}) {
		t.Errorf("missing %v, unexpected %v", miss.Missing, miss.Unexpected)
	}
	shapes := []string{"stem.bias: int64 in the file, float32 in the network", "fc.weight: [4 3] in the file, [3 4] in the network"}
	if !slices.Equal(miss.Misshapen, shapes) {
		t.Errorf("misshapen %q, want %q", miss.Misshapen, shapes)
	}
	for _, name := range append(append(miss.Missing, miss.Unexpected...), shapes...) {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the message lacks %q:\n%v", name, err)
		}
	}
	if want := "the weights do not fit the network: 2 missing from the file (fc.bias, last.weight); 1 in the file"; !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the message is %q, want one line that begins with %q", err, want)
	}
	now, err := q.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := range now {
		if !slices.Equal(now[i].Data, untouched[i].Data) {
			t.Errorf("%s was changed", now[i].Name)
		}
	}
}

// A float16 or bfloat16 file loads into a float32 network, each value widened.
func TestLoadConvertsFloats(t *testing.T) {
	for _, c := range []struct {
		dtype tensorio.DType
		bits  []byte // 1.5, little-endian
	}{{tensorio.Float16, []byte{0x00, 0x3e}}, {tensorio.BFloat16, []byte{0xc0, 0x3f}}} {
		s := torch.NewScope()
		p := nn.NewParams(s, torch.CPU, 1)
		p.Root().Param("w", nn.Zeros, 1)
		if err := p.State().Load(nn.Stored{{Name: "w", Tensor: tensorio.Tensor{DType: c.dtype, Shape: []int{1}, Data: c.bits}}}); err != nil {
			t.Fatal(err)
		}
		w := p.State()[0].Tensor
		if got := floats(t, w); got[0] != 1.5 || w.DType() != torch.Float32 || !w.RequiresGrad() {
			t.Errorf("%v: %v as %v, want 1.5 as float32 with a gradient", c.dtype, got, w.DType())
		}
		s.Close()
	}
}

func TestToConvertsInPlace(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	p, net := small(s, 1)
	want := floats(t, net.Forward(images(s, 3), nn.Eval))
	if err := p.State().To(torch.Float64, true); err != nil {
		t.Fatal(err)
	}
	y := net.Forward(images(s, 3).ToDType(torch.Float64), nn.Eval)
	if got := floats(t, y); y.DType() != torch.Float64 || !near(got, want, 1e-5) {
		t.Errorf("%v in %v, want %v in float64", got, y.DType(), want)
	}
	if err := y.Sum().Backward(); err != nil {
		t.Error(err)
	}
	if g := p.State()[0].Tensor.Grad(s); g == nil || g.DType() != torch.Float64 {
		t.Errorf("gradient %v, want one in float64", g)
	}
	if w := p.State()[0].Tensor; !w.IsContiguous(true) {
		t.Error("the convolution's weight is not laid out with channels last")
	}
}

func TestNamesMustBeFree(t *testing.T) {
	for _, names := range [][]string{{"w", "w"}, {"a.b"}} {
		s := torch.NewScope()
		p := nn.NewParams(s, torch.CPU, 1)
		for _, n := range names {
			p.Root().Param(n, nn.Zeros, 1)
		}
		if err := s.Err(); err == nil || !strings.Contains(err.Error(), "cannot name") {
			t.Errorf("names %q: error %v", names, err)
		}
		s.Close()
	}
	s := torch.NewScope()
	defer s.Close()
	nn.NewLinear(nn.NewParams(s, torch.CPU, 1).Root(), -1, 2, true, nil)
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "not positive") {
		t.Errorf("a negative width: error %v", err)
	}
}

// An error inside a network leaves the step's scope, not the network's.
func TestErrorsStayInTheStep(t *testing.T) {
	before := torch.Live()
	s := torch.NewScope()
	_, net := small(s, 1)
	step := s.Child()
	y := net.Forward(torch.From(step, []float32{1, 2}, 1, 2), nn.Eval)
	var op *torch.OpError
	if err := y.Err(); !errors.As(err, &op) || op.Op != "Conv2d" {
		t.Errorf("error %v, want one of Conv2d", err)
	}
	step.Close()
	if err := s.Err(); err != nil {
		t.Errorf("the network's scope failed: %v", err)
	}
	s.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles left", left)
	}
}
