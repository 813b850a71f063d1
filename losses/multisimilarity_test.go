package losses_test

import (
	"math"
	"testing"
)

// Positive and negative both at the base: e⁰ in each sum.
func TestMultiSimilarity(t *testing.T) {
	worked(t, "multisimilarity", nil, []float64{0.5, 0.5}, math.Log(1+1)/2+math.Log(1+1)/50, 1)
	// a positive 0.2 above the only negative is further than ε = 0.1: nothing is mined
	worked(t, "multisimilarity", nil, []float64{0.7, 0.5}, 0, 1)
}
