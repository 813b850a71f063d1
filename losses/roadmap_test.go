package losses_test

import (
	"testing"
)

// The two parts of a positive at 0.5 and a negative at 0.7, weighed.
func TestRoadmap(t *testing.T) {
	supap := 1 - 1/(1+100*(0.2-0.1)+sigma(1)+0.5) // at τ = 0.1 and δ = 0.1
	calibration := (0.9 - 0.5) + (0.7 - 0.6)
	worked(t, "roadmap", map[string]any{"lambda": 0.3, "tau": 0.1, "delta": 0.1}, []float64{0.5, 0.7}, 0.7*supap+0.3*calibration, 1)
}
