package score

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"roadmap/pkg/torch"
	"roadmap/pkg/torch/torchtest"
)

// TestMain runs the tests on the first thread.
func TestMain(m *testing.M) { torchtest.Main(m) }

// formulas are every primitive with a gradient to all of its inputs.
var formulas = map[string]Formula{
	"heaviside": func(b *Block) *torch.Tensor {
		return b.MeanRanked(b.RankPlus(Heaviside()).Add(b.RankMinus(Heaviside())))
	},
	"sigmoid": func(b *Block) *torch.Tensor {
		return b.MeanRanked(b.RankPlus(Sigmoid(0.1)).Mul(b.RankMinus(Sigmoid(0.2))))
	},
	"upper bound": func(b *Block) *torch.Tensor {
		return b.MeanRanked(b.RankMinus(UpperBound{Tau: 0.1, Rho: 10, Delta: 0.2, Start: 0.5, Offset: 1.4}.Step()))
	},
	"hinge":        func(b *Block) *torch.Tensor { return b.MeanRanked(b.RankMinus(Hinge{Margin: 0.1}.Step()).Log1p()) },
	"hinge below":  func(b *Block) *torch.Tensor { return b.MeanRanked(b.RankMinus(Hinge{Margin: 0.3, Below: true}.Step())) },
	"active":       func(b *Block) *torch.Tensor { return b.MeanRanked(b.RankPlus(Hinge{Margin: 0.3, Least: 0.1}.Active())) },
	"negatives":    func(b *Block) *torch.Tensor { return b.MeanNegatives(Hinge{Margin: -0.2}.Step()) },
	"histogram":    func(b *Block) *torch.Tensor { return histogramSquares(b, Bins{PerScore: 5, Count: 11}) },
	"histogram up": func(b *Block) *torch.Tensor { return histogramSquares(b, Bins{PerScore: 9.5, Count: 20, Flat: true}) },
	"ranks": func(b *Block) *torch.Tensor {
		rank, plus := b.Ranks(Blackbox{Lambda: 4, Margin: 0.02})
		return b.MeanAP(plus.Div(rank))
	},
}

func histogramSquares(b *Block, bins Bins) *torch.Tensor {
	return b.Mean(b.HistogramPlus(bins).Mul(b.HistogramMinus(bins)).SumDim([]int64{1}, false))
}

// random is scores [rows, columns] of few distinct values, for ties, with
// relevance that differs from row to row: the first rows have many positives. No
// score is at a corner of the histograms, where rounding decides.
func random(rows, columns int) (scores []float64, relevance []bool) {
	r := rand.New(rand.NewPCG(1, uint64(columns)))
	for i := range rows {
		for range columns {
			scores, relevance = append(scores, float64(r.IntN(200))/100-0.9963), append(relevance, r.IntN(2+i) == 0)
		}
	}
	return scores, relevance
}

// evaluateAt is a formula's value and gradient on random scores.
func evaluateAt(t *testing.T, f Formula, o Options, dtype torch.DType, rows, columns int) (value float64, grad []float64) {
	t.Helper()
	s := torch.NewScope()
	defer s.Close()
	scores, relevance := random(rows, columns)
	shape := []int64{int64(rows), int64(columns)}
	leaf := torch.From(s, scores, shape...).ToDType(dtype).RequireGrad(true)
	r, err := Evaluate(f, Traits{}, o, Input{Scores: leaf, Relevance: torch.From(s, relevance, shape...)})
	if err != nil {
		t.Fatal(err)
	}
	if value, err = r.Value.Item(); err != nil {
		t.Fatal(err)
	}
	if err := r.Value.Backward(); err != nil {
		t.Fatal(err)
	}
	if grad, err = leaf.Grad(s).Float64s(); err != nil {
		t.Fatal(err)
	}
	return value, grad
}

func near(t *testing.T, value float64, grad []float64, wantValue float64, wantGrad []float64, tol float64) {
	t.Helper()
	if !(math.Abs(value-wantValue) <= tol*max(1, math.Abs(wantValue))) {
		t.Errorf("value %.17g, want %.17g", value, wantValue)
	}
	largest := 1e-3
	for _, g := range wantGrad {
		largest = max(largest, math.Abs(g))
	}
	for i, g := range grad {
		if !(math.Abs(g-wantGrad[i]) <= tol*largest) {
			t.Fatalf("gradient at %d is %.17g, want %.17g", i, g, wantGrad[i])
		}
	}
}

// Every primitive has the same value and gradient by its kernel, in each
// instruction set that this processor has, and by tensor operations.
func TestKernelsArePlainOperations(t *testing.T) {
	defer setKernelLevel(0)
	for name, f := range formulas {
		for _, columns := range []int{1, 15, 64, 333} {
			for _, c := range []struct {
				dtype torch.DType
				tol   float64
			}{{torch.Float64, 1e-12}, {torch.Float32, 2e-5}} {
				plain := Defaults()
				plain.Plain = true
				want, wantGrad := evaluateAt(t, f, plain, c.dtype, 9, columns)
				for level := 1; level <= 3; level++ {
					t.Run(fmt.Sprint(name, columns, c.dtype, level), func(t *testing.T) {
						if !hasKernelLevel(level) {
							t.Skip("this processor does not have the instructions")
						}
						setKernelLevel(level)
						value, grad := evaluateAt(t, f, Defaults(), c.dtype, 9, columns)
						near(t, value, grad, want, wantGrad, c.tol)
					})
				}
			}
		}
	}
}

// A budget that holds the differences to few thresholds at once changes nothing.
func TestPlainPartsArePlain(t *testing.T) {
	for name, f := range formulas {
		o := Defaults()
		o.Plain = true
		want, wantGrad := evaluateAt(t, f, o, torch.Float64, 40, 700)
		o.Budget = 1 << 20
		value, grad := evaluateAt(t, f, o, torch.Float64, 40, 700)
		t.Run(name, func(t *testing.T) { near(t, value, grad, want, wantGrad, 1e-12) })
	}
}

// Rows of many positives are ranked by sorting, rows of few by comparing: the
// same ranks.
func TestRanksOfManyPositives(t *testing.T) {
	f := formulas["ranks"]
	plain := Defaults()
	plain.Plain = true
	scores, relevance := random(3, 200)
	count := 0
	for _, relevant := range relevance[:200] {
		if relevant {
			count++
		}
	}
	if count <= 32 {
		t.Fatalf("the first row has %d positives of %d; these are few", count, len(scores)/3)
	}
	want, wantGrad := evaluateAt(t, f, plain, torch.Float64, 3, 200)
	value, grad := evaluateAt(t, f, Defaults(), torch.Float64, 3, 200)
	near(t, value, grad, want, wantGrad, 1e-12)
}

// What is excluded has no gradient, whatever stands there: one positive at 0.5,
// one negative at 0.25, two excluded entries.
func TestExcludedEntriesHaveNoGradient(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	scores := torch.From(s, []float64{7, 0.5, 0.25, -8}, 1, 4)
	r := &relevance{gallery: 4, class: []int32{0}, members: [][]int32{{0, 1}}}
	r.exclude(0, 0, 3)
	r.count()
	b := newBlock(scores, r, 0)
	b.queries, b.ranked = 1, 1
	torch.EnableGrad(func() {
		b.Positives.RequireGrad(true)
		b.Negatives.RequireGrad(true)
		minus := b.RankMinus(Sigmoid(0.1))
		loss := b.MeanAP(minus.AddScalar(1).Reciprocal())
		by := torch.Gradients(loss, nil, []*torch.Tensor{b.Positives, b.Negatives}, false, false)
		b.join(scores, r, 0, by[0], by[1])
	})
	got, err := scores.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	sigma := 1 / (1 + math.Exp(2.5)) // of 0.25 − 0.5 at τ = 0.1; the loss is 1 − 1/(1 + σ)
	slope := sigma * (1 - sigma) / 0.1 / ((1 + sigma) * (1 + sigma))
	for i, want := range []float64{0, -slope, slope, 0} {
		if math.Abs(got[i]-want) > 1e-15 {
			t.Errorf("gradient %v, want [0 %g %g 0]", got, -slope, slope)
			break
		}
	}
}

// Gradients that would be subnormal numbers are 0.
func TestTinyGradientsAreZero(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	leaf := torch.From(s, []float32{0.9, -0.9}, 1, 2).RequireGrad(true)
	r, err := Evaluate(func(b *Block) *torch.Tensor { return b.MeanRanked(b.RankMinus(Sigmoid(0.02))) }, Traits{}, Defaults(),
		Input{Scores: leaf, Relevance: torch.From(s, []bool{true, false}, 1, 2)}) // e^-90 is about 1e-39
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Value.Backward(); err != nil {
		t.Fatal(err)
	}
	grad, err := leaf.Grad(s).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if grad[0] != 0 || grad[1] != 0 {
		t.Errorf("gradient %g, want zeros", grad)
	}
}

// A ratio without the trait is a mistake that is told, once there are several blocks.
func TestRatioWithoutItsTrait(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	o := Defaults()
	o.Chunk = 1
	scores, relevance := random(3, 5)
	in := Input{Scores: torch.From(s, scores, 3, 5), Relevance: torch.From(s, relevance, 3, 5)}
	ratio := func(b *Block) *torch.Tensor {
		h := Hinge{Margin: 1}
		return b.Ratio(b.SumNegatives(h.Step()), b.SumNegatives(h.Active()))
	}
	if _, err := Evaluate(ratio, Traits{}, o, in); err == nil {
		t.Error("a ratio over several blocks was taken without being counted")
	}
	if _, err := Evaluate(ratio, Traits{Totals: true}, o, in); err != nil {
		t.Error(err)
	}
}
