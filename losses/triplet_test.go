package losses_test

import (
	"testing"
)

// Positives 0.9 and 0.5, negatives 0.6 and 0.45, in each way of mining.
func TestTriplet(t *testing.T) {
	scores := []float64{0.9, 0.5, 0.6, 0.45}
	for mining, want := range map[string]float64{
		"all":                            ((0.6 - 0.5 + 0.1) + (0.45 - 0.5 + 0.1)) / 2, // 0.9 is out of reach
		"semihard":                       0.45 - 0.5 + 0.1,                             // below its positive, by less than the margin
		"hard":                           0.6 - 0.5 + 0.1,                              // least similar positive, most similar negative
		"easy_positive_hardest_negative": 0,                                            // 0.6 − 0.9 + 0.1
	} {
		worked(t, "triplet", map[string]any{"mining": mining}, scores, want)
	}
}
