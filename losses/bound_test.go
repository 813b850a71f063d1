package losses_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"roadmap/losses/criterion"
	"roadmap/losses/losstest"
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

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

// onScores evaluates a loss on float64 scores of q queries, and checks that
// kernels and plain operations agree.
func onScores(t *testing.T, l *criterion.Config, scores []float64, relevance []bool, q int) float64 {
	t.Helper()
	var values [2]float64
	for i, plain := range []bool{false, true} {
		s := torch.NewScope()
		shape := []int64{int64(q), int64(len(scores) / q)}
		l.Plain = plain
		r, err := l.Evaluate(score.Input{Scores: torch.From(s, scores, shape...), Relevance: torch.From(s, relevance, shape...)})
		if err != nil {
			t.Fatal(err)
		}
		if values[i], err = r.Value.Item(); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if d := values[0] - values[1]; d > 1e-12 || d < -1e-12 {
		t.Fatalf("kernels %.17g, plain %.17g", values[0], values[1])
	}
	return values[0]
}

// By hand: AP with ties, blackbox AP, calibration, triplets.
func TestByHand(t *testing.T) {
	for _, c := range []struct {
		loss   string
		set    map[string]any
		scores []float64
		want   float64
	}{
		// positives 0.9 and 0.5, a negative tied with the second: AP = (1/1 + 2/3)/2
		{"ap", nil, []float64{0.9, 0.5, 0.5, 0.1}, 1 - (1+2./3)/2},
		// positives tied: both have rank+ 2, and no negative before them
		{"ap", nil, []float64{0.5, 0.5, 0.4, 0.1}, 0},
		// shifted by a margin of 0.2: positives 0.8, 0.4; negatives 0.6, 0.2: AP = (1/1 + 2/3)/2
		{"blackboxap", map[string]any{"margin": 0.2}, []float64{0.9, 0.5, 0.5, 0.1}, 1 - (1+2./3)/2},
		// one negative before the second positive, none before the first
		{"blackboxrecall", map[string]any{"margin": 0.2}, []float64{0.9, 0.5, 0.5, 0.1}, (0 + 0.6931471805599453) / 2},
		// one positive 0 short and one 0.4; of the negatives 0.5 and 0.1 none is over 0.6
		{"calibration", nil, []float64{0.9, 0.5, 0.5, 0.1}, (0 + 0.4) / 2},
		// 0.5 − 0.5 + 0.1 is the only triplet above 0
		{"triplet", nil, []float64{0.9, 0.5, 0.5, 0.1}, 0.1},
		{"triplet", map[string]any{"margin": 0.45}, []float64{0.9, 0.5, 0.5, 0.1}, (0.05 + 0.45 + 0.05) / 3},
		// [1 − 0.9] and [1 − 0.5] over positives, no negative above 0.5
		{"contrastive", nil, []float64{0.9, 0.5, 0.5, 0.1}, (0.1 + 0.5) / 2},
	} {
		t.Run(fmt.Sprint(c.loss, c.set), func(t *testing.T) {
			got := onScores(t, losstest.Build(t, c.loss, c.set), c.scores, []bool{true, true, false, false}, 1)
			if got < c.want-1e-12 || got > c.want+1e-12 {
				t.Errorf("%v: %.15f, want %.15f", c.scores, got, c.want)
			}
		})
	}
}

// The derivative at a kink is 0 (a hinge, a corner of a triangle) and that of
// the branch that holds there (H⁻), by kernels and by plain operations.
func TestDerivativeAtKinks(t *testing.T) {
	sigma := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	atDelta := sigma(2.5) // of t = δ = 0.25 with τ = 0.1
	for _, c := range []struct {
		loss               string
		set                map[string]any
		positive, negative float64
		want               [2]float64 // by the positive, by the negative
	}{
		{"calibration", map[string]any{"alpha": 0.75, "beta": 0.25}, 0.75, 0.25, [2]float64{0, 0}},
		{"calibration", map[string]any{"alpha": 0.75, "beta": 0.25}, 0.5, 0.5, [2]float64{-1, 1}},
		{"contrastive", map[string]any{"positive_margin": 0.75, "negative_margin": 0.25}, 0.75, 0.25, [2]float64{0, 0}},
		{"triplet", map[string]any{"margin": 0.25}, 0.5, 0.25, [2]float64{0, 0}},
		{"triplet", map[string]any{"margin": 0.25}, 0.5, 0.5, [2]float64{-1, 1}},
		// Centres at scores 1, 1/2, 0 …; between two of them, at 1/4, an entry counts 1/2 in each.
		// Positive at a centre: H⁺h⁺/H = 1/(1 + n) with n = 2s for the negative at s.
		{"fastap", map[string]any{"bins": 4}, 0.5, 0.25, [2]float64{0, 2 / 2.25}},
		// Negative at a centre, p = 2s of the positive there: AP = p²/(p + 1) + (1 − p)/2.
		{"fastap", map[string]any{"bins": 4}, 0.25, 0.5, [2]float64{-2 * (1.25/2.25 - 0.5), 0}},
		{"softbinap", map[string]any{"bins": 5}, 0.5, 0.25, [2]float64{0, 2 / 2.25}},
		{"softbinap", map[string]any{"bins": 5}, 0.25, 0.5, [2]float64{-2 * (1.25/2.25 - 0.5), 0}},
		// H⁻/(1 + H⁻) has the slope H⁻′/(1 + H⁻)²
		{"supap", nil, 0.5, 0.5, [2]float64{-25. / 4, 25. / 4}},
		{"supap", map[string]any{"variant": "released"}, 0.5, 0.5, [2]float64{-25 / 2.25, 25 / 2.25}},
		{"supap", map[string]any{"tau": 0.1, "delta": 0.25}, 0.5, 0.75, [2]float64{
			-10 * atDelta * (1 - atDelta) / math.Pow(1.5+atDelta, 2), 10 * atDelta * (1 - atDelta) / math.Pow(1.5+atDelta, 2)}},
	} {
		for _, plain := range []bool{false, true} {
			s := torch.NewScope()
			scores := torch.From(s, []float64{c.positive, c.negative}, 1, 2).RequireGrad(true)
			l := losstest.Build(t, c.loss, c.set)
			l.Plain = plain
			r, err := l.Evaluate(score.Input{Scores: scores, Relevance: torch.From(s, []bool{true, false}, 1, 2)})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Value.Backward(); err != nil {
				t.Fatal(err)
			}
			got, err := scores.Grad(s).Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if math.Abs(got[i]-c.want[i]) > 1e-12 {
					t.Errorf("%s %v at %g, %g (plain %v): gradient %v, want %v", c.loss, c.set, c.positive, c.negative, plain, got, c.want)
					break
				}
			}
			s.Close()
		}
	}
}

// One list of all rows is the same as those scores in one row.
func TestFlatten(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	scores, relevance := make([]float64, 60), make([]bool, 60)
	for i := range scores {
		scores[i], relevance[i] = r.Float64(), r.IntN(3) == 0
	}
	for _, name := range []string{"ap", "supap", "blackboxap", "fastap"} {
		want := onScores(t, losstest.Build(t, name, nil), scores, relevance, 1)
		if got := onScores(t, losstest.Build(t, name, map[string]any{"flatten": true}), scores, relevance, 5); got != want {
			t.Errorf("%s: flattened %.17g, in one row %.17g", name, got, want)
		}
	}
}
