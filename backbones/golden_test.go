package backbones_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/backbones/backbonetest"
	"roadmap/pkg/config"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// tolerances are relative, for sums in whatever order.
var tolerances = map[torch.DType]float64{torch.Float32: 1e-5, torch.Float64: 1e-9}

// TestGolden compares embeddings, gradients and running statistics with those
// of torchvision and timm. testdata/reference.py says how they were made.
func TestGolden(t *testing.T) {
	file, err := tensorio.Open("testdata/golden.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cases := 0
	for _, key := range file.Names() {
		if name, ok := strings.CutSuffix(key, "/embeddings"); ok {
			t.Run(name, func(t *testing.T) { compare(t, file, name, name+"/") })
			cases++
		}
	}
	if cases < 11 {
		t.Errorf("%d cases in the file, 11 were made", cases)
	}
}

// compare runs one case, "name/size/images/mode/pool/layer_norm/dim/dtype".
func compare(t *testing.T, file *tensorio.File, name, prefix string) {
	part := strings.Split(name, "/")
	layerNorm := part[5] == "1"
	section, err := config.Assign(part[0], "size="+part[1], "pool="+part[4], fmt.Sprint("layer_norm=", layerNorm), "dim="+part[6])
	if err != nil {
		t.Fatal(err)
	}
	backbone, err := config.Build(backbones.Registry, section)
	if err != nil {
		t.Fatal(err)
	}
	before := torch.Live()
	root := torch.NewScope()
	model, err := backbone.Build(root, torch.CPU, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := backbonetest.Fill(model.State()); err != nil {
		t.Fatal(err)
	}
	dtype, err := torch.ParseDType(part[7])
	if err != nil {
		t.Fatal(err)
	}
	tolerance := tolerances[dtype]
	if err := model.State().To(dtype, strings.HasPrefix(part[0], "resnet")); err != nil {
		t.Fatal(err)
	}
	images, err := strconv.ParseInt(part[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s := root.Child()
	x := backbonetest.Tensor(s, torch.CPU, "images", 2, int64(model.Input().Channels), images, images).ToDType(dtype)
	y := model.Forward(x, part[3] == "train")
	if err := y.Mul(backbonetest.Tensor(s, torch.CPU, "loss", 2, int64(model.Dim())).ToDType(dtype)).Sum().Backward(); err != nil {
		t.Fatal(err)
	}

	want := float64s(t, file, prefix+"embeddings")
	got, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if d := distance(got, want); d > tolerance {
		t.Errorf("embeddings: relative distance %.2g", d)
	}
	checks, state := float64s(t, file, prefix+"tensors"), model.State()
	if len(checks) != 2*len(state) {
		t.Fatalf("the state has %d tensors, the reference %d", len(state), len(checks)/2)
	}
	// A gradient that is zero by rights (a bias before a batch norm) is rounding
	// alone: distances are relative to a thousandth of the largest norm at least.
	worst, floor := 0.0, 0.0
	for i := range state {
		floor = max(floor, 1e-3*checks[2*i+1])
	}
	for i, n := range state {
		dot, norm := check(t, s, n)
		wantDot, wantNorm := checks[2*i], checks[2*i+1]
		d := max(math.Abs(dot-wantDot), math.Abs(norm-wantNorm)) / max(wantNorm, floor)
		if worst = max(worst, d); d > tolerance {
			t.Errorf("%s: dot product %.9g, norm %.9g; want %.9g, %.9g", n.Name, dot, norm, wantDot, wantNorm)
		}
	}
	t.Logf("relative distance: embeddings %.2g, gradients and statistics at most %.2g", distance(got, want), worst)
	s.Close()
	root.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles left", left)
	}
}

// check sums a parameter's gradient, or a buffer, up.
func check(t *testing.T, s *torch.Scope, n nn.Named) (dot, norm float64) {
	t.Helper()
	from := n.Tensor
	if n.Parameter {
		if from = n.Tensor.Grad(s); from == nil {
			t.Fatalf("%s has no gradient", n.Name)
		}
	}
	values, err := from.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return backbonetest.Check(n.Name, values)
}

func float64s(t *testing.T, file *tensorio.File, name string) []float64 {
	t.Helper()
	stored, err := file.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	values, err := stored.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// distance is ‖a - b‖ / ‖b‖.
func distance(a, b []float64) float64 {
	var difference, norm float64
	for i := range b {
		difference += (a[i] - b[i]) * (a[i] - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(difference / norm)
}
