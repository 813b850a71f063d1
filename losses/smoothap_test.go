package losses_test

import (
	"testing"
)

// Ranks by the sigmoid at τ = 0.1.
func TestSmoothAP(t *testing.T) {
	// of 0.9: the other positive is 4 τ below, the negatives 4 and 8 τ
	plus, minus := 1+sigma(-4), sigma(-4)+sigma(-8)
	first := plus / (plus + minus)
	// of 0.5: the other positive is 4 τ above, the negatives level and 4 τ below
	plus, minus = 1+sigma(4), sigma(0)+sigma(-4)
	second := plus / (plus + minus)
	worked(t, "smoothap", map[string]any{"tau": 0.1}, []float64{0.9, 0.5, 0.5, 0.1}, 1-(first+second)/2)
}
