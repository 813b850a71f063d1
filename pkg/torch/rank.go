package torch

/*
// libtorch's parallel_for is a template over OpenMP: without it, it is a loop.
// The runtime is the one that libtorch brings and uses.
#cgo CXXFLAGS: -Wno-psabi -fopenmp
#cgo LDFLAGS: -l:libgomp.so.1
#include "rank.h"
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// rankLevel is the instruction set of the kernels: 0 the best that the
// processor has, 1 baseline, 2 AVX2, 3 AVX-512. Tests compare them.
var rankLevel C.int

func setRankLevel(level int) { rankLevel = C.int(level) }

// parallelKernels says whether the kernels were compiled to use libtorch's threads.
func parallelKernels() bool { return C.rt_parallel() != 0 }

func hasRankLevel(level int) bool { return C.rt_rank_has(C.int(level)) != 0 }

// RankKind is a loss that RankRows knows.
type RankKind int32

// The kinds, with the parameters of each in order; package losses defines the
// losses. Values and gradients are multiplied by the term's weight.
const (
	RankAP              RankKind = C.RT_RANK_AP              // none
	RankSmoothAP        RankKind = C.RT_RANK_SMOOTHAP        // tau
	RankSupAP           RankKind = C.RT_RANK_SUPAP           // tau, rho, delta, start, offset, 1 if 0 falls in the first branch
	RankRecall          RankKind = C.RT_RANK_RECALL          // tau, tau of ranks, 1 if released, lengths of short lists (at most 64)
	RankHistogram       RankKind = C.RT_RANK_HISTOGRAM       // bins per unit of score, number of centres, 1 if the outermost are flat
	RankBlackbox        RankKind = C.RT_RANK_BLACKBOX        // lambda, margin, form (0 AP, 1 log, 2 log log), 1/queries
	RankHingeQuery      RankKind = C.RT_RANK_HINGE_QUERY     // floor, ceiling
	RankHingePairs      RankKind = C.RT_RANK_HINGE_PAIRS     // floor, ceiling, least, factor of positives, of negatives; counts both
	RankTriplet         RankKind = C.RT_RANK_TRIPLET         // margin, mining (0 all, 1 semihard, 2 hard, 3 easy positive), factor; counts triplets
	RankMultiSimilarity RankKind = C.RT_RANK_MULTISIMILARITY // alpha, beta, base, epsilon
	RankSoftmax         RankKind = C.RT_RANK_SOFTMAX         // factor of the scores, 1 if the positive is not in the sum; of one positive
)

// RankTerm is a summand of a loss.
type RankTerm struct {
	Kind   RankKind
	Weight float64
	P      []float64
}

// RankSum is what a term adds up to over all rows: its value, and the counts
// of the kinds that count.
type RankSum struct {
	Value  float64
	Counts [2]float64
}

// RankLists say which columns a query's positives are. The positives are the
// members of the query's class without those that it never meets; all other
// columns that it meets are its negatives. Columns ascend in every list.
type RankLists struct {
	Members []int32 // of all classes
	ClassAt []int64 // class c has Members[ClassAt[c]:ClassAt[c+1]]
	ClassOf []int32 // of each query
	Never   []int32 // of all queries
	NeverAt []int64 // query i never meets Never[NeverAt[i]:NeverAt[i+1]]; nil: every query meets all columns
}

// RankRows evaluates the sum of terms on t [q, g], the scores of q queries from
// the one of index query on, in one pass over a contiguous float32 or float64
// matrix on the CPU, and with backward replaces the scores by the gradient, in
// which magnitudes below 2⁻¹⁰⁰ (float64: 2⁻⁹⁶⁰) are 0: subnormal numbers would
// make the products that follow many times slower.
// Scores are first limited to [-1, 1] if clamp. Rows are shared out among
// libtorch's threads; the result is the same for any number of them.
func (t *Tensor) RankRows(query int, lists *RankLists, terms []RankTerm, clamp, backward bool) ([]RankSum, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	flat := make([]C.rt_rank_term, len(terms))
	p := []float64{0} // never empty, so that it has an address
	for i, term := range terms {
		flat[i] = C.rt_rank_term{kind: C.int32_t(term.Kind), first: C.int32_t(len(p)), count: C.int32_t(len(term.P)), weight: C.double(term.Weight)}
		p = append(p, term.P...)
	}
	rows := int(t.Size(0))
	out := make([]float64, rows*len(terms)*C.RT_RANK_OUT+1)
	msg := C.rt_rank(t.h, cbool(clamp), cbool(backward), rankLevel, C.int64_t(query),
		int32s(lists.Members), int64s(lists.ClassAt), int32s(lists.ClassOf), int32s(lists.Never), int64s(lists.NeverAt),
		unsafe.SliceData(flat), C.int(len(flat)), (*C.double)(unsafe.SliceData(p)), (*C.double)(unsafe.SliceData(out)))
	if err := failure("RankRows", msg, t); err != nil {
		return nil, err
	}
	sums := make([]RankSum, len(terms))
	for row := range rows {
		for i := range sums {
			o := out[(row*len(terms)+i)*C.RT_RANK_OUT:]
			sums[i].Value += o[0]
			sums[i].Counts[0] += o[1]
			sums[i].Counts[1] += o[2]
		}
	}
	return sums, nil
}

func int32s(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(s)) }
func int64s(s []int64) *C.int64_t { return (*C.int64_t)(unsafe.SliceData(s)) }

// RowState says what is the matter with a row that was to be normalised.
type RowState uint8

// A row without direction, or with NaN or Inf in it, is left as memory was found.
const (
	RowGood      RowState = C.RT_ROW_GOOD
	RowZero      RowState = C.RT_ROW_ZERO
	RowNotFinite RowState = C.RT_ROW_NOT_FINITE
)

// NormalizeRows divides the rows of t [n, d], contiguous float32 or float64 on
// the CPU, by their Euclidean lengths [n, 1]. Equal rows have equal results to
// the bit wherever they stand, and no length within the range of the type is
// too small or too large.
func (t *Tensor) NormalizeRows() (unit, length *Tensor, states []RowState) {
	s, ok := join("NormalizeRows", t)
	if !ok {
		return s.dead(), s.dead(), nil
	}
	n := t.Size(0)
	unit, length = t.EmptyLike(), s.Empty([]int64{n, 1}, t.DType(), t.Device())
	states = make([]RowState, n)
	if t.Dims() != 2 || s.Err() != nil {
		s.fail(&OpError{Op: "NormalizeRows", Operands: []string{t.String()}, Message: "rows of a matrix are needed"})
		return s.dead(), s.dead(), nil
	}
	if msg := C.rt_normalize(t.h, unit.h, length.h, (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(states))), rankLevel); msg != nil {
		s.refuse("NormalizeRows", msg, t)
	}
	return unit, length, states
}

// NormalizeRowsBack turns t, the gradient of unit rows, into that of the rows
// they were made of, in place.
func (t *Tensor) NormalizeRowsBack(unit, length *Tensor) *Tensor {
	s, ok := join("NormalizeRowsBack", t, unit, length)
	if !ok {
		return t
	}
	if fmt.Sprint(t.Shape()) != fmt.Sprint(unit.Shape()) || length.Numel() != t.Size(0) || t.DType() != unit.DType() || t.DType() != length.DType() {
		s.fail(&OpError{Op: "NormalizeRowsBack", Operands: []string{t.String(), unit.String(), length.String()}, Message: "the shapes or dtypes do not belong together"})
		return t
	}
	if msg := C.rt_normalize_back(t.h, unit.h, length.h, rankLevel); msg != nil {
		s.refuse("NormalizeRowsBack", msg, t, unit, length)
	}
	return t
}

// HashRows returns a hash of the bytes of each row of t [n, d], contiguous
// float32 or float64. Equal hashes make equal rows likely, not certain.
func (t *Tensor) HashRows() ([]uint64, error) {
	host := t.ToDevice(CPU)
	if err := host.Err(); err != nil {
		return nil, err
	}
	hashes := make([]uint64, t.Size(0))
	return hashes, failure("HashRows", C.rt_hash(host.h, (*C.uint64_t)(unsafe.SliceData(hashes))), t)
}

// AddTransposeInPlace adds its transpose to the square matrix t.
func (t *Tensor) AddTransposeInPlace() *Tensor {
	s, ok := join("AddTransposeInPlace", t)
	if !ok {
		return t
	}
	if t.Device().IsCUDA() || !t.IsContiguous(false) {
		return t.CopyInPlace(t.Add(t.T()))
	}
	if msg := C.rt_add_transpose(t.h); msg != nil {
		s.refuse("AddTransposeInPlace", msg, t)
	}
	return t
}

// MMInto writes the product of the matrices a and b into t, of the right shape already.
func (t *Tensor) MMInto(a, b *Tensor) *Tensor {
	s, ok := join("MMInto", t, a, b)
	if !ok {
		return t
	}
	if msg := C.rt_mm_into(t.h, a.h, b.h); msg != nil {
		s.refuse("MMInto", msg, t, a, b)
	}
	return t
}
