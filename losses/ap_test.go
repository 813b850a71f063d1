package losses_test

import (
	"testing"
)

// A tie counts against the positive; ties among positives count for all of them.
func TestAP(t *testing.T) {
	// positives 0.9 and 0.5, a negative tied with the second: AP = (1/1 + 2/3)/2
	worked(t, "ap", nil, []float64{0.9, 0.5, 0.5, 0.1}, 1-(1+2./3)/2)
	// positives tied: both have rank+ 2, and no negative before them
	worked(t, "ap", nil, []float64{0.5, 0.5, 0.4, 0.1}, 0)
}
