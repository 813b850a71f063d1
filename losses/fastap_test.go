package losses_test

import (
	"testing"
)

// Four bins of width 1 in squared distance: the positive at 0.75 counts half at
// distance 0 and half at 1, the negative at 0.5 whole at 1.
func TestFastAP(t *testing.T) {
	// h+ = 0.5, 0.5 and h = 0.5, 1.5, so H+ = 0.5, 1 and H = 0.5, 2
	worked(t, "fastap", map[string]any{"bins": 4}, []float64{0.75, 0.5}, 1-(0.5*0.5/0.5+1*0.5/2), 1)
}
