package losses_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"roadmap/losses/losstest"
)

// Positives at 0.5 and 0.4, negatives at 0.5 and 0.3, with τ = 0.1 and δ = 0.05.
func TestSupAP(t *testing.T) {
	// of 0.5: rank+ 1; the negative at 0.5 counts σ(0) + 0.5 = 1, that at 0.3 σ(−2)
	first := 1 / (1 + 1 + sigma(-2))
	// of 0.4: rank+ 2; the negative at 0.5 is 0.1 above: 100 (0.1 − 0.05) + σ(0.5) + 0.5; that at 0.3 counts σ(−1)
	second := 2 / (2 + 100*(0.1-0.05) + sigma(0.5) + 0.5 + sigma(-1))
	worked(t, "supap", map[string]any{"tau": 0.1, "delta": 0.05}, []float64{0.5, 0.4, 0.5, 0.3}, 1-(first+second)/2)
	// δ = τ ln((1 − ε)/ε) where it is not given: with ε = 0.2 it is 0.1 ln 4
	last := 1 / (1 + 100*(0.2-0.1*math.Log(4)) + 0.8 + 0.5 + sigma(-1))
	worked(t, "supap", map[string]any{"tau": 0.1, "epsilon": 0.2}, []float64{0.4, 0.6, 0.3}, 1-last, 1)
}

// ROADMAP's claim for eq. 5: whatever the parameters within start ≥ 0.5,
// offset ≥ 1 and ρ ≥ 0, supap is an upper bound of 1 − AP, ties included.
func TestSupAPBoundsOneMinusAP(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for trial := range 300 {
		q, g := 1+r.IntN(6), 1+r.IntN(40)
		scores, relevance := make([]float64, q*g), make([]bool, q*g)
		levels := 1 + r.IntN(30) // few levels: many ties
		for i := range scores {
			scores[i] = float64(r.IntN(levels))/float64(levels)*2 - 1
			relevance[i] = r.IntN(4) == 0
		}
		set := map[string]any{
			"tau": 0.001 + 0.2*r.Float64(), "rho": 200 * r.Float64(), "epsilon": 0.001 + 0.49*r.Float64(),
			"start": 0.5 + r.Float64(), "offset": 1 + r.Float64(),
		}
		if trial%3 == 0 {
			set = nil // the defaults
		}
		bound, truth := onScores(t, losstest.Build(t, "supap", set), scores, relevance, q), onScores(t, losstest.Build(t, "ap", nil), scores, relevance, q)
		if bound < truth-1e-14 {
			t.Errorf("trial %d: supap %v = %.17g is below 1 − AP = %.17g", trial, set, bound, truth)
		}
	}
}

// The published variant is none: a positive tied with negatives costs less than
// in AP.
func TestReleasedVariantIsNoBound(t *testing.T) {
	scores, relevance := []float64{0.5, 0.5, 0.1}, []bool{true, false, false}
	released := onScores(t, losstest.Build(t, "supap", map[string]any{"variant": "released"}), scores, relevance, 1)
	// rank+ = 1; rank- = σ(0) + σ(−40) = 0.5: 1 − 1/1.5, against 1 − 1/2 of AP
	if want := 1 - 1/1.5; released < want-1e-9 || released > want+1e-9 {
		t.Errorf("released = %g, want %g", released, want)
	}
	if truth := onScores(t, losstest.Build(t, "ap", nil), scores, relevance, 1); truth != 0.5 {
		t.Errorf("1 − AP = %g, want 0.5", truth)
	}
}

// The step function and its bound at the points where H⁻ changes branch; one
// positive at 0 and one negative at t give a loss of H⁻/(1 + H⁻).
func TestBranchesOfTheBound(t *testing.T) {
	const delta = 0.05
	for _, c := range []struct {
		variant string
		t, want float64
	}{
		{"paper", 0, 0.5 + 0.5},                               // middle branch: σ(0) + start
		{"paper", delta, 0.99330714907571527 + 0.5},           // still the middle one: σ(5) + start
		{"paper", 0.06, 100*0.01 + 0.99330714907571527 + 0.5}, // ρ (t − δ) + σ(δ/τ) + start
		{"released", 0, 0.5},
		{"released", delta, 0.99330714907571527 + 0.5},
		{"released", 0.06, 100*0.01 + 1.44},
	} {
		l := losstest.Build(t, "supap", map[string]any{"variant": c.variant, "delta": delta})
		got := onScores(t, l, []float64{0, c.t}, []bool{true, false}, 1)
		if want := c.want / (1 + c.want); got < want-1e-12 || got > want+1e-12 {
			t.Errorf("%s: H⁻(%g): loss %.15f, want %.15f", c.variant, c.t, got, want)
		}
	}
}
