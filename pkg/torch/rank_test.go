package torch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Each instruction set that this processor has gives the same numbers, up to
// the rounding of fused multiply-adds.
func TestRankLevels(t *testing.T) {
	defer func() { rankLevel = 0 }()
	terms := []RankTerm{
		{RankAP, 1, nil},
		{RankSmoothAP, 0.5, []float64{0.1}},
		{RankSupAP, 2, []float64{0.1, 10, 0.2, 0.5, 1.4, 0}},
		{RankRecall, 1, []float64{0.1, 1, 1, 1, 2, 4}},
		{RankHistogram, 1, []float64{5, 11, 0}},
		{RankHistogram, 1, []float64{9.5, 20, 1}},
		{RankBlackbox, 1, []float64{4, 0.02, 0, 1}},
		{RankBlackbox, 1, []float64{4, 0.02, 2, 1}},
		{RankHingeQuery, 1, []float64{0.9, 0.1}},
		{RankHingePairs, 1, []float64{0.9, 0.1, 1e-6, 0.01, 0.02}},
		{RankTriplet, 1, []float64{0.1, 0, 0.01}},
		{RankTriplet, 1, []float64{0.1, 2, 0.01}},
		{RankMultiSimilarity, 1, []float64{2, 50, 0.5, 0.1}},
		{RankSoftmax, 1, []float64{20, 0}},
		{RankSoftmax, 1, []float64{3, 1}},
	}
	for _, columns := range []int{1, 15, 64, 333} {
		r := rand.New(rand.NewPCG(1, uint64(columns)))
		const rows = 9
		scores := make([]float64, rows*columns)
		for i := range scores {
			scores[i] = float64(r.IntN(2000))/1000 - 1
		}
		lists := &RankLists{ClassAt: []int64{0}, NeverAt: []int64{0}}
		for i := range rows {
			for j := range columns {
				if r.IntN(2+i) == 0 { // the first classes are large
					lists.Members = append(lists.Members, int32(j))
				}
			}
			lists.ClassAt = append(lists.ClassAt, int64(len(lists.Members)))
			lists.ClassOf = append(lists.ClassOf, int32(i))
			lists.Never = append(lists.Never, int32(i%columns))
			lists.NeverAt = append(lists.NeverAt, int64(len(lists.Never)))
		}
		for _, dtype := range []DType{Float32, Float64} {
			for i, term := range terms {
				want, wantGrad := rankAt(t, 1, scores, columns, dtype, lists, term)
				for level := 2; level <= 3; level++ {
					t.Run(fmt.Sprint(columns, dtype, i, level), func(t *testing.T) {
						if !hasRankLevel(level) {
							t.Skip("this processor does not have it")
						}
						got, grad := rankAt(t, level, scores, columns, dtype, lists, term)
						tol := 1e-12
						if dtype == Float32 {
							tol = 1e-5
						}
						if math.Abs(got.Value-want.Value) > tol*max(1, math.Abs(want.Value)) || got.Counts != want.Counts {
							t.Errorf("%+v, want %+v", got, want)
						}
						for j := range grad {
							if math.Abs(grad[j]-wantGrad[j]) > tol*max(1, math.Abs(wantGrad[j])) {
								t.Fatalf("gradient at %d = %.17g, want %.17g", j, grad[j], wantGrad[j])
							}
						}
					})
				}
			}
		}
	}
}

func rankAt(t *testing.T, level int, scores []float64, columns int, dtype DType, lists *RankLists, term RankTerm) (RankSum, []float64) {
	t.Helper()
	setRankLevel(level)
	s := NewScope()
	defer s.Close()
	x := From(s, scores, int64(len(scores)/columns), int64(columns)).ToDType(dtype).Clone()
	sums, err := x.RankRows(0, lists, []RankTerm{term}, false, true)
	if err != nil {
		t.Fatal(err)
	}
	grad, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return sums[0], grad
}

// The gradient of entries that a query never meets is 0, whatever stood there.
func TestRankRowsLeavesNothingBehind(t *testing.T) {
	s := NewScope()
	defer s.Close()
	x := From(s, []float64{7, 0.5, 0.25, -8}, 1, 4)
	lists := &RankLists{Members: []int32{0, 1}, ClassAt: []int64{0, 2}, ClassOf: []int32{0}, Never: []int32{0, 3}, NeverAt: []int64{0, 2}}
	sums, err := x.RankRows(0, lists, []RankTerm{{RankSmoothAP, 1, []float64{0.1}}}, false, true)
	if err != nil {
		t.Fatal(err)
	}
	grad, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	// One positive at 0.5, one negative at 0.25: 1 − 1/(1 + σ(−2.5)).
	sigma := 1 / (1 + math.Exp(2.5))
	slope := sigma * (1 - sigma) / 0.1 / ((1 + sigma) * (1 + sigma))
	if math.Abs(sums[0].Value-(1-1/(1+sigma))) > 1e-15 {
		t.Errorf("value = %.17g", sums[0].Value)
	}
	for i, want := range []float64{0, -slope, slope, 0} {
		if math.Abs(grad[i]-want) > 1e-15 {
			t.Errorf("gradient = %v, want [0 %g %g 0]", grad, -slope, slope)
			break
		}
	}
}

// Gradients of pairs that are far apart are zeros, not subnormal numbers.
func TestRankRowsFlushes(t *testing.T) {
	s := NewScope()
	defer s.Close()
	x := From(s, []float32{1, -0.9, 0.1, 0.35, 0.65, 0.9}, 1, 6)
	lists := &RankLists{Members: []int32{0}, ClassAt: []int64{0, 1}, ClassOf: []int32{0}}
	if _, err := x.RankRows(0, lists, []RankTerm{{RankSmoothAP, 1e-3, []float64{0.01}}}, false, true); err != nil {
		t.Fatal(err)
	}
	grad, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range grad[1:] { // e^{(s−1)/τ}: 3e-83, 8e-40, 6e-29, 6e-16, 5e-5
		if small := math.Abs(float64(g)) < 0x1p-100; small && g != 0 || (i < 2) != (g == 0) {
			t.Errorf("gradient = %v", grad)
		}
	}
}

func TestRankRowsRefuses(t *testing.T) {
	s := NewScope()
	defer s.Close()
	lists := &RankLists{ClassAt: []int64{0, 0}, ClassOf: []int32{0}}
	for _, x := range []*Tensor{From(s, []int64{1, 2}, 1, 2), From(s, []float32{1, 2}), From(s, []float32{1, 2, 3, 4}, 2, 2).T()} {
		if _, err := x.RankRows(0, lists, nil, false, false); err == nil {
			t.Errorf("%s was taken", x)
		}
	}
}

func TestNormalizeRows(t *testing.T) {
	defer func() { rankLevel = 0 }()
	r := rand.New(rand.NewPCG(4, 4))
	for _, d := range []int{1, 5, 16, 37, 512} {
		const n = 5
		data := make([]float64, n*d)
		for i := range data {
			data[i] = (r.NormFloat64() + 0.1) * math.Pow(10, float64(i/d*70-140)) // squares vanish and overflow
		}
		for level := 1; level <= 3; level++ {
			if !hasRankLevel(level) {
				continue
			}
			setRankLevel(level)
			s := NewScope()
			x := From(s, data, n, int64(d)).RequireGrad(true)
			var unit, length *Tensor
			NoGrad(func() { unit, length, _ = x.NormalizeRows() })
			rows, err := unit.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				sum, want := 0.0, 0.0
				for k := range d {
					sum += rows[i*d+k] * rows[i*d+k]
					scaled := data[i*d+k] / math.Pow(10, float64(i*70-140))
					want += scaled * scaled
				}
				lengths, err := length.Float64s()
				if err != nil {
					t.Fatal(err)
				}
				if got := lengths[i] / math.Pow(10, float64(i*70-140)); math.Abs(sum-1) > 1e-13 || math.Abs(got/math.Sqrt(want)-1) > 1e-13 {
					t.Errorf("d %d, level %d, row %d: length² %.17g, length %.17g, want %.17g", d, level, i, sum, got, math.Sqrt(want))
				}
			}
			// Against autograd, on rows of ordinary length.
			y := From(s, data[:d], 1, int64(d)).DivScalar(math.Pow(10, -140)).Detach().RequireGrad(true)
			g := From(s, data[d:2*d], 1, int64(d)).DivScalar(math.Pow(10, -70))
			out := y.Div(y.Norm(2, []int64{1}, true))
			want, err := Gradients(out, g, []*Tensor{y}, false, false)[0].Float64s()
			if err != nil {
				t.Fatal(err)
			}
			var back *Tensor
			NoGrad(func() {
				u, l, _ := y.NormalizeRows()
				back = g.Clone().NormalizeRowsBack(u, l)
			})
			got, err := back.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for k := range want {
				if math.Abs(got[k]-want[k]) > 1e-12*max(1, math.Abs(want[k])) {
					t.Errorf("d %d, level %d: gradient %v, want %v", d, level, got, want)
					break
				}
			}
			s.Close()
		}
	}
}

func TestNormalizeRowsStates(t *testing.T) {
	s := NewScope()
	defer s.Close()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := From(s, []float32{1, 2, 0, 0, nan, 1, -inf, 0, inf, -inf, 1e-45, 0}, 6, 2)
	unit, _, states := x.NormalizeRows()
	if want := []RowState{RowGood, RowZero, RowNotFinite, RowNotFinite, RowNotFinite, RowGood}; !slices.Equal(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	rows, err := unit.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	if rows[10] != 1 || rows[11] != 0 {
		t.Errorf("the smallest number has the direction %v, want [1 0]", rows[10:])
	}
}

// Without OpenMP at compile time parallel_for is silently a loop.
func TestKernelsAreParallel(t *testing.T) {
	if !parallelKernels() {
		t.Error("the kernels were compiled without OpenMP")
	}
}

// Equal rows have equal hashes, and a change of any one element shows.
func TestHashRows(t *testing.T) {
	s := NewScope()
	defer s.Close()
	for _, d := range []int{1, 7, 16, 33, 512} {
		data := make([]float32, 3*d)
		for k := range d {
			data[k], data[d+k] = float32(k)+1, float32(k)+1
			for i := range 2 {
				data[2*d+k] = data[i*d+k]
			}
		}
		for k := range d {
			data[2*d+k]++
			h, err := From(s, data, 3, int64(d)).HashRows()
			if err != nil {
				t.Fatal(err)
			}
			if h[0] != h[1] || h[0] == h[2] {
				t.Errorf("d %d, element %d: hashes %x", d, k, h)
			}
			data[2*d+k]--
		}
	}
}

func TestAddTranspose(t *testing.T) {
	s := NewScope()
	defer s.Close()
	for _, n := range []int64{1, 31, 32, 33, 100, 200} {
		for _, dtype := range []DType{Float32, Float64} {
			a := s.ArangeFrom(0, float64(n*n), 1, dtype, CPU).Reshape(n, n)
			want := a.Add(a.T())
			same := a.Clone().AddTransposeInPlace().Eq(want).All()
			if v, err := same.Item(); err != nil || v != 1 {
				t.Errorf("%s: %v, %v", a, v, err)
			}
		}
	}
}

func TestMMInto(t *testing.T) {
	s := NewScope()
	defer s.Close()
	a, b := From(s, []float32{1, 2, 3, 4}, 2, 2), From(s, []float32{5, 6}, 2, 1)
	got, err := s.Empty([]int64{2, 1}, Float32, CPU).MMInto(a, b).Float32s()
	if err != nil || got[0] != 17 || got[1] != 39 {
		t.Errorf("%v, %v; want [17 39]", got, err)
	}
	if s.Empty([]int64{2, 1}, Float32, CPU).MMInto(b, a); s.Err() == nil {
		t.Error("shapes that do not fit were taken")
	}
}
