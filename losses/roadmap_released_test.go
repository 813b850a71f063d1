package losses_test

import (
	"testing"
)

// The published program adds its two parts, of a positive at 0.5 and a negative
// at 0.7.
func TestRoadmapReleased(t *testing.T) {
	supap := 1 - 1/(1+100*(0.2-0.05)+1.44)
	calibration := (0.9 - 0.5) + (0.7 - 0.6)
	worked(t, "roadmap_released", nil, []float64{0.5, 0.7}, supap+calibration, 1)
}
