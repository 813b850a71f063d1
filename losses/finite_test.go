package losses_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/losstest"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/torch"
)

// gradients evaluates a loss and its gradients by all of x, four rows of two
// dimensions in two classes; a proxy loss has two more rows for its proxies.
func gradients(t *testing.T, l *criterion.Config, x []float64, dtype torch.DType, plain bool) (value float64, all []float64, err error) {
	t.Helper()
	before := torch.Live()
	defer func() {
		if left := torch.Live() - before; left != 0 {
			t.Errorf("%d tensor handles are left", left)
		}
	}()
	s := torch.NewScope()
	defer s.Close()
	leaf := func(rows []float64) *torch.Tensor {
		return torch.From(s, rows, int64(len(rows)/2), 2).ToDType(dtype).RequireGrad(!losses.Traits(l.Loss).Metric)
	}
	in := score.Input{Query: leaf(x), QueryLabels: []int64{0, 0, 1, 1}, QueryName: "E.npy"}
	l.Plain = plain
	inputs := []*torch.Tensor{in.Query}
	if losses.Traits(l.Loss).Proxies {
		in.Gallery, in.GalleryLabels = leaf(x[:4]), []int64{0, 1}
		inputs = append(inputs, in.Gallery)
	}
	r, err := l.Evaluate(in)
	if err != nil {
		return 0, nil, err
	}
	if value, err = r.Value.Item(); err != nil || losses.Traits(l.Loss).Metric {
		return value, nil, err
	}
	if err := r.Value.Backward(); err != nil {
		return 0, nil, err
	}
	for _, leaf := range inputs {
		grad, err := leaf.Grad(s).Float64s()
		if err != nil {
			return 0, nil, err
		}
		all = append(all, grad...)
	}
	return value, all, nil
}

// Inner products beyond the dtype are refused by the row, for every loss: supap
// would call them 1 with gradient 0. The wider dtype holds them.
func TestScoresThatOverflow(t *testing.T) {
	x := []float64{1e-3, 0, 2e19, 1e19, 0, 3e19, 1e19, 1e19} // 5e38 is row 1 with itself, beyond float32
	for _, name := range losses.Names() {
		for _, plain := range []bool{false, true} {
			l := losstest.Build(t, name, map[string]any{"normalize": false})
			_, _, err := gradients(t, l, x, torch.Float32, plain)
			faulttest.Refused(t, err, "E.npy", "scores of row 1", "float32", "normalize=true")
			if _, _, err := gradients(t, losstest.Build(t, name, nil), x, torch.Float32, plain); name != "crossentropy" && err != nil {
				t.Errorf("%s: normalised: %v", name, err)
			}
			// multisimilarity may overflow in any dtype, and is refused then
			if _, _, err := gradients(t, l, x, torch.Float64, plain); err != nil && name != "multisimilarity" {
				t.Errorf("%s: float64: %v", name, err)
			}
		}
	}
}

// Given scores are looked at in the dtype in which they are used.
func TestGivenScoresThatOverflow(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	in := score.Input{Scores: torch.From(s, []float64{1, 2, 1e39, 0}, 2, 2), Relevance: torch.From(s, []bool{true, false, true, false}, 2, 2)}
	_, err := losstest.Build(t, "calibration", map[string]any{"dtype": "float32"}).Evaluate(in)
	faulttest.Refused(t, err, "scores", "row 1", "float32")
	if _, err := losstest.Build(t, "calibration", nil).Evaluate(in); err != nil {
		t.Error(err)
	}
}

// Finite scores whose terms overflow have a value, or a gradient, that is refused.
func TestResultsThatOverflow(t *testing.T) {
	heavy := losstest.Build(t, "roadmap_released", map[string]any{"supap_weight": 3e38, "calibration_weight": 3e38})
	_, _, err := gradients(t, heavy, []float64{1, 0, 0, 1, 1, 0, 0, 1}, torch.Float32, false) // 6e38
	faulttest.Refused(t, err, "E.npy", "the loss is", "float32")
	short := []float64{1e-42, 0, 1e-42, 2e-42, 0, 1e-42, 1e-42, 1e-42}
	_, _, err = gradients(t, losstest.Build(t, "smoothap", nil), short, torch.Float32, false)
	faulttest.Refused(t, err, "E.npy", "gradient of row 0", "float32")
}

// The gradient of a gallery is looked at under its own name.
func TestGalleryGradientThatOverflows(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	in := score.Input{Query: torch.From(s, []float32{1, 0.5, 0, 1}, 2, 2), QueryLabels: []int64{0, 1}, GalleryName: "G.npy"}
	in.Gallery, in.GalleryLabels = torch.From(s, []float32{1, 0, 0, 1e-42}, 2, 2).RequireGrad(true), []int64{0, 1}
	_, err := losstest.Build(t, "calibration", map[string]any{"beta": 0}).Evaluate(in)
	faulttest.Refused(t, err, "G.npy: the gradient of row 1", "float32")
}

// Scores as large as float32 holds give numbers or are refused, and nothing
// worse: they are sorted, and places in histograms.
func TestLargestScores(t *testing.T) {
	x := []float64{1.3e19, -1.3e19, 1.3e19, 1.3e19, -1.3e19, 1, 1, 2}
	for _, name := range losses.Names() {
		for _, plain := range []bool{false, true} {
			value, grad, err := gradients(t, losstest.Build(t, name, map[string]any{"normalize": false}), x, torch.Float32, plain)
			if err != nil && !fault.IsInput(err) {
				t.Errorf("%s: %v", name, err)
			}
			for _, number := range append(grad, value) {
				if math.IsNaN(number) || math.IsInf(number, 0) {
					t.Errorf("%s (plain %v): value %g, gradient %g", name, plain, value, grad)
					break
				}
			}
		}
	}
}

// Whatever number a parameter is given, it is refused by name, or the value and
// the gradients are numbers.
func TestExtremeParameters(t *testing.T) {
	x := []float64{1, 0, 1, 0.2, 1, 0, 0.3, 1} // rows 0 and 2 tie
	for _, name := range losses.Names() {
		pairs, err := config.Pairs(losstest.Build(t, name, nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			if _, err := strconv.ParseFloat(p.Value, 64); err != nil {
				continue
			}
			for _, v := range []float64{1e-320, 1e-39, 1.2e-38, 1e-20, 1e20, 3e38, 1e39, 1e300, -1e-39, -3e38, -1e39} {
				section, err := config.Assign(name, fmt.Sprintf("%s=%g", p.Key, v))
				if err != nil {
					t.Fatal(err)
				}
				l, err := config.Build(criterion.Registry, section)
				if err != nil {
					faulttest.Refused(t, err, p.Key)
					continue
				}
				for _, dtype := range []torch.DType{torch.Float32, torch.Float64} {
					for _, plain := range []bool{false, true} {
						value, grad, err := gradients(t, l, x, dtype, plain)
						switch {
						case fault.IsInput(err):
							continue
						case err != nil:
							t.Fatal(err)
						}
						for _, number := range append(grad, value) {
							if math.IsNaN(number) || math.IsInf(number, 0) {
								t.Fatalf("%s %s=%g %s: value %g, gradient %g", name, p.Key, v, dtype, value, grad)
							}
						}
					}
				}
			}
		}
	}
	for _, c := range []struct{ loss, set string }{
		{"smoothap", "tau"}, {"supap", "tau"}, {"roadmap", "tau"}, {"recallk", "tau"}, {"recallk", "tau_rank"}, {"normsoftmax", "temperature"},
		{"proxynca++", "temperature"}, {"crossentropy", "temperature"}, {"proxynca", "scale"}, {"multisimilarity", "alpha"}, {"blackboxap", "lambda"},
	} {
		for _, v := range []string{"1e-39", "1e39"} {
			section, err := config.Assign(c.loss, c.set+"="+v)
			if err != nil {
				t.Fatal(err)
			}
			_, err = config.Build(criterion.Registry, section)
			faulttest.Refused(t, err, c.set, v[:3], "1.18e-38")
		}
	}
}

// Where no pair is mined the loss is 0, however large the exponent of one that
// is not.
func TestMultiSimilarityMinesNothing(t *testing.T) {
	l := losstest.Build(t, "multisimilarity", map[string]any{"alpha": 1e3, "beta": 1e3, "base": -5.0, "epsilon": 0.1})
	for _, base := range []float64{-5, 5} {
		l.Loss.(*losses.MultiSimilarity).Base = base
		for _, plain := range []bool{false, true} {
			value, grad, err := gradients(t, l, []float64{1, 0, 1, 0.01, -1, 0, -1, 0.01}, torch.Float64, plain)
			if err != nil || value != 0 || slices.ContainsFunc(grad, func(g float64) bool { return g != 0 }) {
				t.Errorf("base %g, plain %v: value %g, gradient %g, error %v; want zeros", base, plain, value, grad, err)
			}
		}
	}
}
