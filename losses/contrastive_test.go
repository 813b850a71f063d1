package losses_test

import (
	"testing"
)

// Means over the pairs that violate a margin.
func TestContrastive(t *testing.T) {
	// 1 − 0.9 and 1 − 0.5 over positives; of the negatives only 0.7 is above 0.5
	worked(t, "contrastive", nil, []float64{0.9, 0.5, 0.7, 0.1}, (0.1+0.5)/2+(0.7-0.5)/1)
}
