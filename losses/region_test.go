package losses_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"roadmap/losses"
	"roadmap/losses/score"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/torch"
)

// Against loops over all queries, positives and other entries.
func TestOperatingRegion(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	r := rand.New(rand.NewPCG(6, 6))
	const n, d, tau = 20, 4, 0.01
	x, labels := make([]float64, n*d), make([]int64, n)
	for i := range n {
		labels[i] = int64(i / 3) // the last two make a class, and no row is lone
		norm := 0.0
		for k := range d {
			x[i*d+k] = r.NormFloat64()
			norm += x[i*d+k] * x[i*d+k]
		}
		for k := range d {
			x[i*d+k] /= math.Sqrt(norm)
		}
	}
	cosine := func(i, j int) (s float64) {
		for k := range d {
			s += x[i*d+k] * x[j*d+k]
		}
		return s
	}
	steep, all := 0, 0
	for i := range n {
		for k := range n {
			for j := range n {
				if k == i || j == i || j == k || labels[k] != labels[i] {
					continue
				}
				all++
				sigma := 1 / (1 + math.Exp(-(cosine(i, j)-cosine(i, k))/tau))
				if sigma*(1-sigma)/tau > 0.005 {
					steep++
				}
			}
		}
	}
	got, err := losses.OperatingRegion(score.Input{Query: torch.From(s, x, n, d), QueryLabels: labels}, score.Defaults(), tau)
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(steep) / float64(all); steep == 0 || steep == all || math.Abs(got-want) > 1e-15 {
		t.Errorf("operating region = %g, want %d/%d", got, steep, all)
	}
	_, err = losses.OperatingRegion(score.Input{Query: torch.From(s, x, n, d), QueryLabels: labels}, score.Defaults(), 0)
	faulttest.Refused(t, err, "tau is 0")
}
