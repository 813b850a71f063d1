package losses_test

import (
	"testing"
)

// Five bins at scores 1, 0.5, 0, −0.5, −1: the positive at 0.75 counts half in
// the first and half in the second, the negatives whole in the second and last.
func TestSoftBinAP(t *testing.T) {
	// precision 0.5/0.5, then 1/2; recall 0.5 in each
	worked(t, "softbinap", map[string]any{"bins": 5}, []float64{0.75, 0.5, -1}, 1-(1*0.5+0.5*0.5), 1)
}
