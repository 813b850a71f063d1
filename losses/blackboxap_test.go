package losses_test

import (
	"testing"
)

// Shifted by a margin of 0.2 the positives are at 0.8 and 0.4, the negatives at
// 0.6 and 0.2.
func TestBlackboxAP(t *testing.T) {
	worked(t, "blackboxap", map[string]any{"margin": 0.2}, []float64{0.9, 0.5, 0.5, 0.1}, 1-(1./1+2./3)/2)
	// ties go by the order of the gallery, and positives stand before here
	worked(t, "blackboxap", map[string]any{"margin": 0}, []float64{0.5, 0.5, 0.5, 0.1}, 0)
}
