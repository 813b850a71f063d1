package losses_test

import (
	"testing"
)

// One positive 0.4 short of 0.9; a negative 0.1 above 0.6.
func TestCalibration(t *testing.T) {
	// per query: a mean over two positives and one over two negatives
	worked(t, "calibration", nil, []float64{0.9, 0.5, 0.7, 0.1}, (0+0.4)/2+(0.1+0)/2)
	// the published program's: over the pairs that violate, one of each
	worked(t, "calibration", map[string]any{"reduction": "nonzero"}, []float64{0.9, 0.5, 0.7, 0.1}, 0.4/1+0.1/1)
}
