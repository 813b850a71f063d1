package sampler_test

import (
	"fmt"
	"slices"

	"roadmap/sampler"
)

// Two classes a batch and two images of each, from three classes of two.
func ExampleBalanced() {
	s := &sampler.Balanced{Classes: 2, Samples: 2, Lone: "fail"}
	labels := []int64{7, 7, 8, 8, 9, 9}
	plan, err := s.Plan(labels, nil, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, batch := range plan.Epoch(0) {
		fmt.Println(at(labels, batch))
	}
	fmt.Println(plan.Batches(), "batch an epoch:", plan.Why())
	// Output:
	// [8 8 9 9]
	// 1 batch an epoch: 6 images of 3 classes, 2 × 2 a batch
}

// Every batch is half of one category and half of another; an epoch shows each
// pair of categories in turn.
func ExampleHard() {
	s := &sampler.Hard{Batch: 8, BatchesPerPair: 1, Samples: 2, Order: "pairs"}
	var labels, categories []int64
	for class := range int64(9) {
		labels = append(labels, class, class)
		categories = append(categories, class/3, class/3)
	}
	plan, err := s.Plan(labels, categories, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, batch := range plan.Epoch(0) {
		fmt.Println(at(categories, batch))
	}
	fmt.Println(plan.Why())
	// Output:
	// [0 0 0 0 2 2 2 2]
	// [1 1 1 1 2 2 2 2]
	// [0 0 0 0 1 1 1 1]
	// 3 pairs of 3 categories × 1 batches
}

// A run that stopped after 5 batches goes on with the sixth: the plan needs no
// state.
func ExamplePlan() {
	labels := make([]int64, 40)
	for row := range labels {
		labels[row] = int64(row / 4)
	}
	first, _ := (&sampler.Random{Size: 8}).Plan(labels, nil, 1)
	again, _ := (&sampler.Random{Size: 8}).Plan(labels, nil, 1)
	done := 7
	epoch, batch := done/first.Batches(), done%first.Batches()
	fmt.Println("epoch", epoch, "batch", batch, slices.Equal(first.Epoch(epoch)[batch], again.Epoch(epoch)[batch]))
	// Output: epoch 1 batch 2 true
}

// What an epoch of a sampler shows of a dataset.
func ExampleCover() {
	labels := []int64{1, 1, 1, 2, 2, 2, 3, 3}
	plan, err := (&sampler.Balanced{Classes: 2, Samples: 2, Lone: "fail"}).Plan(labels, nil, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := sampler.Cover(plan, labels, nil, 0)
	fmt.Println(c.Batches, "batches,", c.ImagesSeen, "of", c.Images, "images,", c.ClassesSeen, "of", c.Classes, "classes,", c.PositivesMean, "positives an image")
	// Output: 2 batches, 6 of 8 images, 3 of 3 classes, 1 positives an image
}

// at is the numbers of some rows.
func at(numbers []int64, rows []int) []int64 {
	var of []int64
	for _, row := range rows {
		of = append(of, numbers[row])
	}
	return of
}
