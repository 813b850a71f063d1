package sampler_test

import (
	"testing"

	"roadmap/sampler"
)

// fixed is a plan with given batches.
type fixed [][]int

func (f fixed) Epoch(int) [][]int { return f }
func (f fixed) Batches() int      { return len(f) }
func (f fixed) Why() string       { return "given" }

// Every count of a small epoch, worked out by hand. Labels a a a b b c, of
// categories x x x y y and none.
func TestCoverByHand(t *testing.T) {
	labels := []int64{1, 1, 1, 2, 2, 3}
	categories := []int64{0, 0, 0, 1, 1, sampler.NoCategory}
	got := sampler.Cover(fixed{{0, 1, 2, 3}, {0, 0, 5}}, labels, categories, 4)
	want := sampler.Coverage{
		Epoch: 4, Batches: 2, Why: "given", Smallest: 3, Largest: 4, Short: 1,
		Images: 6, ImagesSeen: 5, // row 4 is in no batch
		Classes: 3, ClassesSeen: 3,
		Repeats: 2, // row 0 has three uses
		Copies:  1, // two of them in the second batch
		// a has 2 positives three times in the first batch and 1 twice in the
		// second; b and c none.
		PositivesMin: 0, PositivesMean: (3*2 + 0 + 2*1 + 0) / 7.0, PositivesMax: 2, Lone: 2,
		Categories: 2, Pairs: 1, PairsPossible: 1, Without: 1,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := sampler.Cover(fixed{{0, 1}}, labels, nil, 0); got.Categories != 0 || got.PairsPossible != 0 || got.PositivesMin != 1 {
		t.Errorf("%+v", got)
	}
}
