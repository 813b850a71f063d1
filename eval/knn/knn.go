// Package knn compares rows of embeddings with each other on the CPU, exactly:
// the kernels of nearest-neighbour search and of its evaluation. It is C++ over
// plain memory behind a Go face that hides it, and needs no libtorch.
//
// A [Scorer] says what the score of two rows is. Embeddings are put into [Rows];
// a run of them is a [Side] of a comparison, and a [Block] is the side that
// stays while others pass by. A [Worker] compares them tile by tile and keeps of
// a tile only what was asked for: how many items rank before wanted ones
// ([Worker.Count]), or the best k ([Worker.Search]).
//
// The score of two rows is their product (of rows scaled to length 1: the
// cosine) or minus their squared distance, in float32 with one fixed order of
// float32 fused multiply-adds. So it depends on the two rows alone: not on their
// places, the tile, the number of threads or the instructions that the processor
// has, and equal rows have equal scores.
//
// Where the processor multiplies tiles of 8-bit integers (AMX), a tile of scores
// is first computed with rows rounded to 16 bits. The exact score lies within a
// proven distance of that, which decides nearly all comparisons; the exact
// score decides the rest. What comes out is the same.
package knn

/*
#cgo CXXFLAGS: -std=c++17 -DGOTCH_COMPAT_H
#include "kernels.h"
*/
import "C"

import "fmt"

// ISA is an instruction set of the processor, each with those before it.
type ISA int

// The instruction sets; Any is the best that the machine has.
const (
	Any ISA = iota
	Baseline
	AVX2
	AVX512
	AMX // tiles of 8-bit integers
)

func (i ISA) String() string {
	if i < Baseline || i > AMX {
		return "any"
	}
	return [...]string{"baseline", "avx2", "avx512", "amx_int8"}[i-Baseline]
}

// Processor is the best instruction set of this machine.
func Processor() ISA { return ISA(C.knn_processor()) + Baseline }

// Options say what the score is and how it may be computed.
type Options struct {
	Dim   int  // floats a row
	L2    bool // the score is minus the squared distance instead of the cosine
	ISA   ISA  // the best to be used of those that the machine has
	Exact bool // float32 alone, no integers to screen with
}

// Scorer computes scores of pairs of rows.
type Scorer struct {
	plan C.knn_plan
	dim  int
}

// New returns a scorer.
func New(o Options) *Scorer {
	isa := o.ISA
	if isa == Any || isa > Processor() {
		isa = Processor()
	}
	s := &Scorer{dim: o.Dim}
	s.plan.width = C.int((o.Dim + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND)
	s.plan.l2 = cbool(o.L2)
	s.plan.isa = C.int(isa - Baseline)
	s.plan.screen = cbool(!o.Exact && isa >= AMX)
	return s
}

// Screens says whether tiles are computed in integers first.
func (s *Scorer) Screens() bool { return s.plan.screen != 0 }

// Extend makes it known that there are rows of a length (see [Rows.Fill]).
// All rows that are compared must have been made known before.
func (s *Scorer) Extend(longest float32) { s.plan.longest = max(s.plan.longest, C.float(longest)) }

// Longest is the length that no row known to the scorer exceeds.
func (s *Scorer) Longest() float32 { return float32(s.plan.longest) }

// Scores writes the exact scores of one side's rows with another's, [a, b].
func (s *Scorer) Scores(a, b Side, scores []float32) error {
	if a.Len()*b.Len() > len(scores) {
		return fmt.Errorf("Scorer.Scores: room for %d of %d x %d scores", len(scores), a.Len(), b.Len())
	}
	C.knn_exact(&s.plan, a.c.x, a.c.rows, b.c.x, b.c.rows, floats(scores))
	return nil
}

// Pair is the exact score of row i of a side and row j of another.
func (s *Scorer) Pair(a Side, i int, b Side, j int) float32 {
	var score C.float
	C.knn_exact(&s.plan, s.shift(a.c, i).x, 1, s.shift(b.c, j).x, 1, &score)
	return float32(score)
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
