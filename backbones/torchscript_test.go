package backbones_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/backbones/backbonetest"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/optim"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// script.pt is a convolution, a batch norm, a ReLU and a second convolution
// (testdata/reference.py, Tiny). Filled with the same weights it must do what
// our own layers do, in both modes, gradients and statistics included.
func TestScriptEqualsLayers(t *testing.T) {
	before := torch.Live()
	s := torch.NewScope()
	module := build(t, s, 1, "torchscript", "file=testdata/script.pt", "size=6", "pool=avg", "dim=0", "normalize=false")
	if module.Dim() != 5 {
		t.Fatalf("width %d, want 5", module.Dim())
	}
	p := nn.NewParams(s, torch.CPU, 1)
	layers := nn.Sequential{
		nn.NewConv(p.Root().At("conv"), nn.ConvShape{In: 3, Out: 4, Kernel: 3, Padding: 1}),
		nn.NewBatchNorm(p.Root().At("norm"), 4, 1, nn.FrozenNone),
		nn.Func((*torch.Tensor).ReLU),
		nn.NewConv(p.Root().At("last"), nn.ConvShape{In: 4, Out: 5, Kernel: 1}),
		nn.Func(func(x *torch.Tensor) *torch.Tensor { return x.MeanDim([]int64{2, 3}, false) }),
	}
	for _, state := range []nn.State{module.State(), p.State()} {
		if err := backbonetest.Fill(state); err != nil {
			t.Fatal(err)
		}
	}
	for _, train := range []bool{false, true} {
		step := s.Child()
		x := batch(step, module, 4)
		mode := nn.Eval
		if train {
			mode = nn.Train
		}
		got, want := module.Forward(x, train), layers.Forward(x, mode)
		for _, y := range []*torch.Tensor{got, want} {
			if err := y.Square().Sum().Backward(); err != nil {
				t.Fatal(err)
			}
		}
		if d := distance(floats(t, got), floats(t, want)); !(d <= 1e-6) {
			t.Errorf("train=%v: embeddings differ by %g", train, d)
		}
		theirs := map[string]nn.Named{}
		for _, n := range module.State() {
			theirs[n.Name] = n
		}
		for _, n := range p.State() {
			a, b := theirs[n.Name], n
			if a.Tensor == nil || a.Parameter != b.Parameter {
				t.Fatalf("the module has no %s, or as something else", n.Name)
			}
			x, y := a.Tensor, b.Tensor
			if n.Parameter {
				x, y = x.Grad(step), y.Grad(step)
			}
			u, v := floats(t, x), floats(t, y)
			for i := range v {
				if d := u[i] - v[i]; !(d <= 1e-4 && d >= -1e-4) {
					t.Errorf("train=%v: %s, element %d: %g, want %g", train, n.Name, i, u[i], v[i])
				}
			}
		}
		step.Close()
	}
	s.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles left", left)
	}
}

// Its weights are saved, and loaded into another instance.
func TestScriptWeights(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	options := []string{"file=testdata/script.pt", "size=6", "dim=2", "pool=max"}
	m := build(t, s, 1, "torchscript", options...)
	if err := backbonetest.Fill(m.State()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "w.pth")
	if err := m.Save(path, true, false); err != nil {
		t.Fatal(err)
	}
	other := build(t, s, 2, "torchscript", options...)
	if _, err := other.Load(backbones.Weights{File: path, Strict: true}); err != nil {
		t.Fatal(err)
	}
	if x := batch(s, m, 3); !slices.Equal(floats(t, m.Forward(x, false)), floats(t, other.Forward(x, false))) {
		t.Error("embeddings differ")
	}
}

func TestScriptRefusals(t *testing.T) {
	dir := t.TempDir()
	whole, err := os.ReadFile("testdata/script.pt")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := torch.NewScope()
	defer s.Close()
	weights := filepath.Join(dir, "weights.pth")
	if err := build(t, s, 1, "convnet", small["convnet"]...).Save(weights, true, false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options []string
		want    string
	}{
		{nil, "name the TorchScript module"},
		{[]string{"file=" + filepath.Join(dir, "none.pt")}, "no such file"},
		{[]string{"file=" + at("empty.pt", nil)}, "not a TorchScript module"},
		{[]string{"file=" + at("half.pt", whole[:len(whole)/2])}, "not a TorchScript module"},
		{[]string{"file=" + weights}, "not a TorchScript module"},
		{[]string{"file=testdata/script.pt", "channels=1", "input=plain"}, "expected input[1, 1, 224, 224] to have 3 channels"},
		{[]string{"file=testdata/script.pt", "channels=1"}, "give plain"},
		{[]string{"file=testdata/script.pt", "pool=cls"}, "no class token"},
	} {
		before := torch.Live()
		inner := s.Child()
		section, err := config.Assign("torchscript", c.options...)
		if err != nil {
			t.Fatal(err)
		}
		backbone, err := config.Build(backbones.Registry, section)
		if err == nil {
			_, err = backbone.Build(inner, torch.CPU, 1)
		}
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want an input error with %q", c.options, err, c.want)
		}
		inner.Close()
		if torch.Live() != before {
			t.Errorf("%v: %d handles left", c.options, torch.Live()-before)
		}
	}
}

// awkward.pt (testdata/reference.py) has a "head" of its own, one weight under
// two names, and a batch norm that was traced in training.
var awkward = []string{"file=testdata/awkward.pt", "size=6", "dim=2", "normalize=false"}

// A tied weight is trained and averaged once, and stands in files under both
// names; a file may leave the second out.
func TestScriptTies(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "torchscript", awkward...)
	const first, second = "first.weight", "second.weight"
	var names []string
	for _, n := range m.Parameters() {
		names = append(names, n.Name)
	}
	if !slices.Contains(names, first) || slices.Contains(names, second) {
		t.Errorf("trained: %v; want %s and not %s", names, first, second)
	}
	average, err := optim.NewAverage(s, m.State(), 0.5)
	if err != nil {
		t.Fatal(err)
	}
	kept := snapshot(t, m)
	if err := backbonetest.Fill(m.State()); err != nil {
		t.Fatal(err)
	}
	filled := snapshot(t, m)
	for _, want := range [][]tensorio.Named{kept, filled} {
		if err := average.Swap(); err != nil {
			t.Fatal(err)
		}
		equal(t, snapshot(t, m), want, nil)
	}
	whole := write(t, filled, func(n string) string { return n })
	short := write(t, filled, func(n string) string {
		if n == second {
			return ""
		}
		return n
	})
	for _, path := range []string{whole, short} {
		other := build(t, s, 2, "torchscript", awkward...)
		if _, err := other.Load(backbones.Weights{File: path, Strict: true}); err != nil {
			t.Fatal(err)
		}
		equal(t, snapshot(t, other), filled, nil)
	}
}

// The module's head is not ours: a file that lacks it does not fit.
func TestScriptHeads(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "torchscript", awkward...)
	for name, want := range map[string]bool{"head.weight": false, "head.projection.weight": true, "first.weight": false} {
		if m.IsHead(name) != want {
			t.Errorf("IsHead(%s) is %v", name, !want)
		}
	}
	path := write(t, snapshot(t, m), func(n string) string {
		if n == "head.bias" || m.IsHead(n) {
			return ""
		}
		return n
	})
	if _, err := m.Load(backbones.Weights{File: path, Strict: true}); err == nil || !strings.Contains(err.Error(), "1 missing from the file (head.bias)") {
		t.Errorf("error %v", err)
	}
	for _, n := range m.Untrained() {
		if !m.IsHead(n.Name) {
			t.Errorf("%s came with the file, but counts as untrained", n.Name)
		}
	}
}

// Building, evaluating and embedding change no statistics, training does.
func TestScriptStatistics(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "torchscript", awkward...)
	mean := func() []float64 {
		state := m.State()
		i := slices.IndexFunc(state, func(n nn.Named) bool { return n.Name == "norm.running_mean" })
		return floats(t, state[i].Tensor)
	}
	begin := mean()
	x := batch(s, m, 4)
	floats(t, m.Forward(x, false))
	e, err := m.Embedder(s, torch.Float32)
	if err != nil {
		t.Fatal(err)
	}
	floats(t, e.Forward(x))
	if now := mean(); !slices.Equal(now, begin) {
		t.Errorf("running mean %v, at first %v", now, begin)
	}
	floats(t, m.Forward(x, true))
	if now := mean(); slices.Equal(now, begin) {
		t.Error("training leaves the running mean as it was")
	}
}
