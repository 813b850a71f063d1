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

// tolerances are relative, for sums in whatever order. Under autocast sums are
// of 32 bits, between values rounded alike.
var tolerances = map[torch.DType]float64{torch.Float64: 1e-9, torch.Float32: 1e-5, torch.BFloat16: 1e-5, torch.Float16: 1e-5}

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
	options := []string{"size=" + part[1], "pool=" + part[4], fmt.Sprint("layer_norm=", part[5] == "1"), "dim=" + part[6]}
	resnet := strings.HasPrefix(part[0], "resnet")
	switch {
	case part[3] == "frozen" && !resnet:
		options = append(options, "frozen_positions=true")
	case part[3] == "frozen":
		options = append(options, "frozen_norm=statistics")
	case part[3] == "affine":
		options = append(options, "frozen_norm=affine")
	}
	section, err := config.Assign(part[0], options...)
	if err != nil {
		t.Fatal(err)
	}
	compareWith(t, section, file, part, prefix)
}

// compareWith runs a case with the network of a section.
func compareWith(t *testing.T, section config.Section, file *tensorio.File, part []string, prefix string) {
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
	state := model.State()
	if err := backbonetest.Fill(state); err != nil {
		t.Fatal(err)
	}
	dtype, err := torch.ParseDType(part[7])
	if err != nil {
		t.Fatal(err)
	}
	tolerance, weights := tolerances[dtype], dtype
	if dtype == torch.BFloat16 || dtype == torch.Float16 {
		weights = torch.Float32
	}
	if err := state.To(weights, strings.HasPrefix(part[0], "resnet")); err != nil {
		t.Fatal(err)
	}
	images, err := strconv.ParseInt(part[2], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	s := root.Child()
	x := backbonetest.Tensor(s, torch.CPU, "images", 2, int64(model.Input().Channels), images, images).ToDType(weights)
	var y *torch.Tensor
	forward := func() { y = model.Forward(x, part[3] != "eval") }
	if weights == dtype {
		forward()
	} else {
		torch.Autocast(torch.CPU, dtype, forward)
	}
	if err := y.Mul(backbonetest.Tensor(s, torch.CPU, "loss", 2, int64(model.Dim())).ToDType(weights)).Sum().Backward(); err != nil {
		t.Fatal(err)
	}

	want := float64s(t, file, prefix+"embeddings")
	got, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if d := distance(got, want); !(d <= tolerance) {
		t.Errorf("embeddings: relative distance %.2g", d)
	}
	worst, count := compareState(t, s, state, file, prefix, tolerance)
	t.Logf("relative distance: embeddings %.2g, %d gradients and statistics at most %.2g", distance(got, want), count, worst)
	s.Close()
	root.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles left", left)
	}
}

// compareState compares gradients and statistics: element by element where the
// file has them whole, else by two sums over each.
func compareState(t *testing.T, s *torch.Scope, state nn.State, file *tensorio.File, prefix string, tolerance float64) (worst float64, count int) {
	checks := float64s(t, file, prefix+"tensors")
	if len(checks) != 2*len(state) {
		t.Fatalf("the state has %d tensors, the reference %d", len(state), len(checks)/2)
	}
	// A gradient that is zero by rights (a bias before a batch norm) is rounding
	// alone: distances are relative to a thousandth of the largest norm at least.
	floor := 0.0
	for i := range state {
		floor = max(floor, 1e-3*checks[2*i+1])
	}
	for i, n := range state {
		values := gradient(t, s, n)
		if whole := prefix + "each/" + n.Name; file.Has(whole) {
			want := float64s(t, file, whole)
			d := apart(values, want) / max(length(want), floor)
			if worst = max(worst, d); !(d <= tolerance) {
				t.Errorf("%s: relative distance %.2g", n.Name, d)
			}
			continue
		}
		dot, norm := backbonetest.Check(n.Name, values)
		wantDot, wantNorm := checks[2*i], checks[2*i+1]
		d := max(math.Abs(dot-wantDot), math.Abs(norm-wantNorm)) / max(wantNorm, floor)
		if worst = max(worst, d); !(d <= tolerance) {
			t.Errorf("%s: dot product %.9g, norm %.9g; want %.9g, %.9g", n.Name, dot, norm, wantDot, wantNorm)
		}
	}
	return worst, len(state)
}

// gradient is that of a parameter that is trained, the value of another tensor.
func gradient(t *testing.T, s *torch.Scope, n nn.Named) []float64 {
	t.Helper()
	from := n.Tensor
	if n.Parameter && n.Tensor.RequiresGrad() {
		if from = n.Tensor.Grad(s); from == nil {
			t.Fatalf("%s has no gradient", n.Name)
		}
	}
	values, err := from.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func float64s(t *testing.T, file *tensorio.File, name string) []float64 {
	t.Helper()
	stored, err := file.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	if stored.DType == tensorio.Int64 { // a counter of batches
		whole, err := stored.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float64, len(whole))
		for i, v := range whole {
			values[i] = float64(v)
		}
		return values
	}
	values, err := stored.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// distance is ‖a - b‖ / ‖b‖.
func distance(a, b []float64) float64 { return apart(a, b) / length(b) }

// apart is ‖a - b‖, not a number where their lengths differ.
func apart(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	sum := 0.0
	for i := range b {
		sum += (a[i] - b[i]) * (a[i] - b[i])
	}
	return math.Sqrt(sum)
}

// length is ‖v‖.
func length(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}
