// Package samplertest is the conformance suite of samplers: what every one of
// them promises, checked over random datasets.
package samplertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
	"roadmap/sampler"
)

// Datasets is the number of random datasets of a suite.
const Datasets = 100

// Labels returns the labels of random dataset number i: 1 to 60 classes of 1
// to 12 images (2 to 12 in every second dataset), labels with gaps, some of
// them negative, in random order. Dataset 0 is the smallest: one image.
func Labels(i int) []int64 {
	if i == 0 {
		return []int64{-3}
	}
	random := rng.New(2021, uint64(i))
	fewest := 1 + i%2
	var labels []int64
	for c := range 1 + random.IntN(60) {
		for range fewest + random.IntN(13-fewest) {
			labels = append(labels, int64(c*c-100))
		}
	}
	random.Shuffle(len(labels), func(a, b int) { labels[a], labels[b] = labels[b], labels[a] })
	return labels
}

// Categories returns the categories of random dataset number i, whose labels
// are labels: of every class one of 1 to 6, or, in every third dataset, perhaps
// none.
func Categories(i int, labels []int64) []int64 {
	random := rng.New(2021, uint64(i), 1)
	most := 1 + random.IntN(6)
	of := map[int64]int64{}
	categories := make([]int64, len(labels))
	for row, label := range labels {
		if _, known := of[label]; !known {
			of[label] = int64(random.IntN(most))
			if i%3 == 0 && random.IntN(2) == 0 {
				of[label] = sampler.NoCategory
			}
		}
		categories[row] = of[label]
	}
	return categories
}

// Conform checks a sampler over all datasets. construct returns it configured
// for a dataset of the given labels; it may be called with random settings, so
// it gets a generator. A refusal must be an error of the input, and at least a
// fifth of the datasets must be accepted.
func Conform(t *testing.T, construct func(labels []int64, random *rand.Rand) sampler.Sampler) {
	t.Helper()
	accepted := 0
	for i := range Datasets {
		labels := Labels(i)
		categories := Categories(i, labels)
		s := construct(labels, rng.New(7, uint64(i)))
		name := fmt.Sprintf("dataset %d (%d images) %+v", i, len(labels), s)
		before, categoriesBefore := slices.Clone(labels), slices.Clone(categories)
		plan, err := s.Plan(labels, categories, uint64(i))
		if !slices.Equal(before, labels) || !slices.Equal(categoriesBefore, categories) {
			t.Fatalf("%s: Plan changed the labels or categories", name)
		}
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("%s: refused with an error that is not the input's: %v", name, err)
			}
			continue
		}
		accepted++
		again, err := s.Plan(labels, categories, uint64(i))
		if err != nil {
			t.Fatalf("%s: accepted, then refused: %v", name, err)
		}
		clear(labels) // a plan may not lean on the caller's slices
		clear(categories)
		check(t, name, plan, again, before)
	}
	if accepted < Datasets/5 {
		t.Errorf("only %d of %d datasets were accepted", accepted, Datasets)
	}
}

// check holds two plans of equal arguments against each other and the promises
// of Plan.
func check(t *testing.T, name string, plan, again sampler.Plan, labels []int64) {
	t.Helper()
	if plan.Why() == "" {
		t.Errorf("%s: it does not say why there are %d batches", name, plan.Batches())
	}
	const epochs = 3
	var inOrder [epochs][][]int
	for e := range epochs {
		inOrder[e] = plan.Epoch(e)
		if len(inOrder[e]) != plan.Batches() || plan.Batches() < 1 {
			t.Fatalf("%s: epoch %d has %d batches, Batches() is %d", name, e, len(inOrder[e]), plan.Batches())
		}
		for b, batch := range inOrder[e] {
			if len(batch) == 0 {
				t.Fatalf("%s: batch %d of epoch %d is empty", name, b, e)
			}
			for _, row := range batch {
				if row < 0 || row >= len(labels) {
					t.Fatalf("%s: batch %d of epoch %d names row %d of %d", name, b, e, row, len(labels))
				}
			}
		}
	}
	// The other plan goes backwards, from several goroutines, and spoils what
	// it gets: neither order nor company nor a careless caller may matter.
	var backwards [epochs][][]int
	var wait sync.WaitGroup
	for e := epochs - 1; e >= 0; e-- {
		wait.Go(func() {
			spoilt := again.Epoch(e)
			for _, batch := range spoilt {
				_ = append(batch, -1)
			}
			if !slices.EqualFunc(spoilt, inOrder[e], slices.Equal) {
				t.Errorf("%s: a batch of epoch %d grows into the next one", name, e)
			}
			for _, batch := range spoilt {
				clear(batch)
			}
			backwards[e] = again.Epoch(e)
		})
	}
	wait.Wait()
	for e := range epochs {
		if !slices.EqualFunc(inOrder[e], backwards[e], slices.Equal) {
			t.Fatalf("%s: epoch %d depends on more than labels, seed and epoch", name, e)
		}
	}
	resume(t, name, plan, again)
}

// resume walks two epochs, stops after every number of batches in turn, and
// goes on from the cursor with another plan: the batches must be those of an
// uninterrupted run.
func resume(t *testing.T, name string, plan, again sampler.Plan) {
	t.Helper()
	var whole [][]int
	for e := range 2 {
		whole = append(whole, plan.Epoch(e)...)
	}
	for done := range whole {
		epoch, batch := done/plan.Batches(), done%plan.Batches()
		rest := again.Epoch(epoch)[batch:]
		if epoch == 0 {
			rest = append(rest, again.Epoch(1)...)
		}
		if !slices.EqualFunc(whole[done:], rest, slices.Equal) {
			t.Fatalf("%s: resumed after %d batches, the run goes on differently", name, done)
		}
	}
}
