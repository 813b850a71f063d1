package sampler_test

import (
	"math"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/rng"
	"roadmap/sampler"
)

var _ sampler.Regrouper = (*sampler.Confusion)(nil)

func confusion(clusters int) *sampler.Confusion {
	return &sampler.Confusion{Hard: sampler.Hard{Batch: 8, BatchesPerPair: 2, Order: "pairs"}, Clusters: clusters, Every: 3}
}

// Class means around the axes of space, of any length, are divided by axis.
func TestRegroupFindsDirections(t *testing.T) {
	random := rng.New(3)
	var means [][]float32
	var axis []int
	for range 60 {
		at := random.IntN(4)
		mean := make([]float32, 4)
		for d := range mean {
			mean[d] = float32(random.NormFloat64() * 0.1)
		}
		mean[at]++
		scale := float32(math.Exp(3 * random.NormFloat64()))
		for d := range mean {
			mean[d] *= scale
		}
		means, axis = append(means, mean), append(axis, at)
	}
	for seed := range uint64(5) {
		found, err := confusion(4).Regroup(means, seed)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := confusion(4).Regroup(means, seed)
		if !slices.Equal(found, again) {
			t.Error("two runs differ")
		}
		for i := range found {
			for j := range i {
				if (found[i] == found[j]) != (axis[i] == axis[j]) {
					t.Fatalf("seed %d: classes %d and %d of axes %d and %d are in clusters %d and %d", seed, i, j, axis[i], axis[j], found[i], found[j])
				}
			}
		}
	}
}

// No cluster is empty, whatever the means: here all are alike.
func TestRegroupLeavesNoClusterEmpty(t *testing.T) {
	means := slices.Repeat([][]float32{{1, 2}}, 5)
	for clusters := 2; clusters <= 5; clusters++ {
		found, err := confusion(clusters).Regroup(means, 1)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(found)
		if n := len(slices.Compact(found)); n != clusters {
			t.Errorf("%d clusters of %d wanted", n, clusters)
		}
	}
	_, err := confusion(6).Regroup(means, 1)
	faulttest.Refused(t, err, "5 classes", "6 clusters")
	for _, bad := range [][]float32{{0, 0}, {float32(math.NaN()), 1}, {float32(math.Inf(1)), 1}} {
		_, err = confusion(2).Regroup([][]float32{{1, 0}, bad}, 1)
		faulttest.Refused(t, err, "class 1", "no direction")
	}
}

// Before and after the first clustering an epoch has as many batches.
func TestConfusionPlans(t *testing.T) {
	labels, _ := grid(1, 9, 4)
	s := confusion(3)
	before := planned(t, s, labels, nil)
	clusters := make([]int64, len(labels))
	for row, label := range labels {
		clusters[row] = label % 3
	}
	after := planned(t, s, labels, clusters)
	if before.Batches() != 6 || after.Batches() != 6 {
		t.Errorf("%d and %d batches, want 3 pairs × 2", before.Batches(), after.Batches())
	}
	if cover := sampler.Cover(after, labels, clusters, 0); cover.Pairs != 3 {
		t.Errorf("%d pairs of clusters meet, want 3", cover.Pairs)
	}
}
