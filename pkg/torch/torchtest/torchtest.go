// Package torchtest helps tests of packages over libtorch: leaks, devices,
// closeness and finite differences.
package torchtest

import (
	"math"
	"testing"

	"roadmap/pkg/torch"
)

// NoLeak fails the test if it ends with more (or fewer) live handles than it began with.
func NoLeak(t testing.TB) {
	t.Helper()
	before := torch.Live()
	t.Cleanup(func() {
		if after := torch.Live(); after != before {
			t.Errorf("%d tensor handles before the test, %d after it", before, after)
		}
	})
}

// Scope returns a scope that closes with the test, which must then leave no handle.
func Scope(t testing.TB) *torch.Scope {
	t.Helper()
	NoLeak(t)
	s := torch.NewScope()
	t.Cleanup(s.Close)
	return s
}

// EachDevice runs the test on the CPU and on the first GPU, if there is one.
func EachDevice(t *testing.T, test func(t *testing.T, d torch.Device)) {
	t.Helper()
	gpus, _ := torch.CUDADevices()
	for _, d := range append([]torch.Device{torch.CPU}, gpus[:min(1, len(gpus))]...) {
		t.Run(d.String(), func(t *testing.T) { test(t, d) })
	}
}

// Equal fails the test where got and want differ by more than
// tolerance · max(1, |want|). NaN equals nothing.
func Equal(t testing.TB, got *torch.Tensor, want []float64, tolerance float64) {
	t.Helper()
	have, err := got.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if len(have) != len(want) {
		t.Fatalf("got %d elements, want %d", len(have), len(want))
	}
	for i := range want {
		if !(math.Abs(have[i]-want[i]) <= tolerance*math.Max(1, math.Abs(want[i]))) {
			t.Errorf("element %d: got %v, want %v (tolerance %g)", i, have[i], want[i], tolerance)
		}
	}
}

// GradCheck compares the gradients of f, a function to one element, with central
// differences in float64. inputs are values; f receives them as leaves.
func GradCheck(t testing.TB, f func(in []*torch.Tensor) *torch.Tensor, tolerance float64, inputs ...*torch.Tensor) {
	t.Helper()
	const h = 1e-6
	s := inputs[0].Scope().Child()
	defer s.Close()
	var leaves []*torch.Tensor
	values := make([][]float64, len(inputs))
	for i, in := range inputs {
		v, err := in.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		values[i] = v
		leaves = append(leaves, torch.From(s, v, in.Shape()...).RequireGrad(true))
	}
	if err := f(leaves).Backward(); err != nil {
		t.Fatal(err)
	}
	at := func() float64 {
		c := s.Child()
		defer c.Close()
		var in []*torch.Tensor
		for i := range values {
			in = append(in, torch.From(c, values[i], inputs[i].Shape()...))
		}
		y, err := f(in).Item()
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	for i, leaf := range leaves {
		g := leaf.Grad(s)
		if g == nil {
			t.Fatalf("input %d has no gradient", i)
		}
		analytic, err := g.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for j := range values[i] {
			x := values[i][j]
			values[i][j] = x + h
			up := at()
			values[i][j] = x - h
			down := at()
			values[i][j] = x
			numeric := (up - down) / (2 * h)
			if !(math.Abs(analytic[j]-numeric) <= tolerance*math.Max(1, math.Abs(numeric))) {
				t.Errorf("input %d element %d: gradient %v, central difference %v", i, j, analytic[j], numeric)
			}
		}
	}
}
