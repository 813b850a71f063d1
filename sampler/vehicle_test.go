package sampler_test

import (
	"slices"
	"testing"

	"roadmap/sampler"
)

// Categories of 7 and 2 images, halves of 3: ⌈7/3⌉ + ⌈2/3⌉ = 3 + 1 batches.
func TestVehicleByHand(t *testing.T) {
	labels := []int64{0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5, 5}
	categories := slices.Concat(slices.Repeat([]int64{8}, 7), slices.Repeat([]int64{9}, 2), slices.Repeat([]int64{sampler.NoCategory}, 6))
	p := planned(t, &sampler.Vehicle{Batch: 6}, labels, categories)
	if want := (7+2)/3 + (2+2)/3; p.Batches() != want {
		t.Fatalf("%d batches, want %d", p.Batches(), want)
	}
	seen := map[int]bool{}
	short := 0
	for _, batch := range p.Epoch(0) {
		group := categories[batch[0]]
		size := 3
		if group == 9 {
			size = 2
			short++
		}
		if len(batch) != size+3 {
			t.Fatalf("batch %v of category %d, want %d images", batch, group, size+3)
		}
		here := map[int]bool{}
		for i, row := range batch {
			if want := map[bool]int64{true: group, false: sampler.NoCategory}[i < size]; categories[row] != want {
				t.Errorf("place %d of %v has category %d, want %d", i, batch, categories[row], want)
			}
			if here[row] {
				t.Errorf("row %d twice in %v", row, batch)
			}
			here[row], seen[row] = true, true
		}
	}
	for row, category := range categories {
		if category != sampler.NoCategory && !seen[row] {
			t.Errorf("row %d of category %d is not in the epoch", row, category)
		}
	}
	if short != 1 {
		t.Errorf("%d batches of the category of 2 images, want 1", short)
	}
}

// 11 images, 4 a batch: 2 batches; classes stand together.
func TestClassesByHand(t *testing.T) {
	labels := []int64{7, 5, 7, 5, 7, 5, 6, 6, 6, 6, 6}
	p := planned(t, &sampler.Classes{Batch: 4}, labels, nil)
	left := map[int]bool{}
	for e := range 40 {
		rows := slices.Concat(p.Epoch(e)...)
		if len(rows) != 8 || p.Batches() != 2 {
			t.Fatalf("%d images in %d batches, want 8 in 2", len(rows), p.Batches())
		}
		var order []int64
		used := map[int]bool{}
		for i, row := range rows {
			if i == 0 || labels[row] != labels[rows[i-1]] {
				order = append(order, labels[row])
			}
			if used[row] {
				t.Fatalf("row %d twice in an epoch", row)
			}
			used[row] = true
		}
		distinct := slices.Clone(order)
		slices.Sort(distinct)
		if len(slices.Compact(distinct)) != len(order) {
			t.Fatalf("classes in the order %v: one comes in two places", order)
		}
		for row := range labels {
			if !used[row] {
				left[row] = true
			}
		}
	}
	if len(left) != len(labels) {
		t.Errorf("only rows %v are ever left out", left)
	}
}
