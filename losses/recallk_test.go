package losses_test

import (
	"testing"
)

// A positive level with the only negative: its rank is 1 + σ(0).
func TestRecallK(t *testing.T) {
	worked(t, "recallk", map[string]any{"k": []int{1, 2}}, []float64{0.5, 0.5}, 1-(sigma(1-1.5)+sigma(2-1.5))/2, 1)
	// two positives within one place: the released program divides by that place
	both := sigma((1-(1+sigma(-4)))/0.1) + sigma((1-(1+sigma(4)))/0.1)
	set := map[string]any{"k": []int{1}, "tau": 0.1, "tau_rank": 0.1}
	worked(t, "recallk", set, []float64{0.9, 0.5}, 1-both/2)
	set["variant"] = "released"
	worked(t, "recallk", set, []float64{0.9, 0.5}, 1-both/1)
}
