package losses_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"roadmap/losses/criterion"
	"roadmap/losses/losstest"
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

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

// The derivative at a kink is 0 (a hinge, a corner of a triangle) and that of
// the branch that holds there (H⁻), by kernels and by plain operations.
func TestDerivativeAtKinks(t *testing.T) {
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

// sigma is the logistic function.
func sigma(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// worked compares a loss on the scores of one query, whose first two are
// positives unless their number is given, with a value worked out by hand.
func worked(t *testing.T, loss string, set map[string]any, scores []float64, want float64, positives ...int) {
	t.Helper()
	relevance := make([]bool, len(scores))
	for k := range append(positives, 2)[0] {
		relevance[k] = true
	}
	if got := onScores(t, losstest.Build(t, loss, set), scores, relevance, 1); math.Abs(got-want) > 1e-12 {
		t.Errorf("%s %v of %v: %.15f, want %.15f", loss, set, scores, got, want)
	}
}

// workedProxies is worked for a query (3, 0) and two proxies, its own (1, 0)
// and (0, 1).
func workedProxies(t *testing.T, loss string, set map[string]any, want float64) {
	t.Helper()
	s := torch.NewScope()
	defer s.Close()
	r, err := losstest.Build(t, loss, set).Evaluate(score.Input{
		Query: torch.From(s, []float64{3, 0}, 1, 2), QueryLabels: []int64{7},
		Gallery: torch.From(s, []float64{1, 0, 0, 1}, 2, 2), GalleryLabels: []int64{7, 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.Value.Item(); err != nil || math.Abs(got-want) > 1e-12 {
		t.Errorf("%s %v: %.15f, %v; want %.15f", loss, set, got, err, want)
	}
}
