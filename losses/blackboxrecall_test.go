package losses_test

import (
	"math"
	"testing"
)

// One negative before the second positive, none before the first.
func TestBlackboxRecall(t *testing.T) {
	worked(t, "blackboxrecall", map[string]any{"margin": 0.2}, []float64{0.9, 0.5, 0.5, 0.1}, (0+math.Log(1+1))/2)
	worked(t, "blackboxrecall", map[string]any{"margin": 0.2, "weight": "loglog"}, []float64{0.9, 0.5, 0.5, 0.1}, (0+math.Log(1+math.Log(2)))/2)
}
