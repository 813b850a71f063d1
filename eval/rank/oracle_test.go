package rank_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"roadmap/eval/rank"
	"roadmap/eval/rank/ranktest"
)

var names = []string{"r@1", "r@3", "p@2", "p@4", "rp", "map@r", "map", "mrr"}

func metrics(t *testing.T, names []string) []rank.Metric {
	t.Helper()
	all, err := rank.ParseMetrics(names...)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// grid is random scores on few levels, so that ties abound, and relevance.
func grid(random *rand.Rand, m, n int) ([][]float64, [][]bool) {
	scores, relevant := make([][]float64, m), make([][]bool, m)
	classes := 1 + random.IntN(4)
	for i := range m {
		for range n {
			scores[i] = append(scores[i], float64(random.IntN(5)))
			relevant[i] = append(relevant[i], random.IntN(classes) == 0)
		}
	}
	return scores, relevant
}

// counted is one query's ranks by counting, as a streaming evaluation does it.
func counted(scores []float64, relevant []bool, own int, ties rank.Ties) rank.Query {
	var candidates []rank.Candidate
	for j := range scores {
		if j != own {
			candidates = append(candidates, rank.Candidate{Score: scores[j], Index: int32(j), Relevant: relevant[j]})
		}
	}
	q := rank.Query{Candidates: len(candidates)}
	for _, c := range candidates {
		if c.Relevant {
			q.Ranks = append(q.Ranks, int32(ties.Rank(c, candidates)))
		}
	}
	slices.Sort(q.Ranks)
	return q
}

// TestAgainstOracle compares counting and formulas with sorting and
// definitions, for every rule and policy, with and without own rows.
func TestAgainstOracle(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		same := random.IntN(2) == 0
		m, n := 1+random.IntN(6), 5+random.IntN(12)
		if same {
			m = n
		}
		scores, relevant := grid(random, m, n)
		for _, ties := range []rank.Ties{rank.ByIndex, rank.Pessimistic, rank.Optimistic} {
			queries := ranktest.Queries(scores, relevant, same, ties)
			for i, q := range queries {
				own := ranktest.None
				if same {
					own = i
				}
				if got := counted(scores[i], relevant[i], own, ties); fmt.Sprint(got) != fmt.Sprint(q) {
					t.Fatalf("%s: counted %v, sorted %v", ties, got, q)
				}
			}
			for _, policy := range []rank.Lone{rank.Skip, rank.Zero} {
				want, lone := ranktest.Evaluate(scores, relevant, same, ties, policy, names...)
				report, err := rank.Evaluate(context.Background(), queries, metrics(t, names), rank.Options{Lone: policy})
				if lone == m {
					if err == nil {
						t.Fatal("only lone queries, and no error")
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if report.Lone != lone {
					t.Errorf("%d lone queries, want %d", report.Lone, lone)
				}
				for _, v := range report.Values {
					if w := want[v.Metric.String()]; math.Abs(v.Mean-w) > 1e-12 {
						t.Errorf("%s, %s: %v is %v, want %v", ties, policy, v.Metric, v.Mean, w)
					}
				}
			}
		}
	}
}

// TestProperties: bounds, order of the tie rules, and what changes nothing.
func TestProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	all := metrics(t, names)
	for range 200 {
		scores, relevant := grid(random, 1, 12)
		by := map[rank.Ties]rank.Query{}
		for _, ties := range []rank.Ties{rank.ByIndex, rank.Pessimistic, rank.Optimistic} {
			by[ties] = ranktest.Query(scores[0], relevant[0], ranktest.None, ties)
		}
		shifted := make([]float64, 12) // any increasing function of the scores ranks the same
		for j, s := range scores[0] {
			shifted[j] = math.Exp(s) - 100
		}
		for _, m := range all {
			low, mid, high := m.Of(by[rank.Pessimistic]), m.Of(by[rank.ByIndex]), m.Of(by[rank.Optimistic])
			if low < 0 || low > mid || mid > high || high > 1 {
				t.Errorf("%v: pessimistic %v, by index %v, optimistic %v", m, low, mid, high)
			}
			if got := m.Of(ranktest.Query(shifted, relevant[0], ranktest.None, rank.ByIndex)); got != mid {
				t.Errorf("%v: %v after an increasing function of the scores, %v before", m, got, mid)
			}
		}
		q := by[rank.ByIndex]
		if of(t, "map@r", q) > of(t, "rp", q)+1e-15 || of(t, "map@r", q) > of(t, "map", q)+1e-15 {
			t.Errorf("mAP@R of %v is above R-precision or AP", q)
		}
		if r := len(q.Ranks); r > 0 && of(t, fmt.Sprintf("p@%d", r), q) != of(t, "rp", q) {
			t.Errorf("P@R of %v is not R-precision", q)
		}
	}
}

func of(t *testing.T, name string, q rank.Query) float64 {
	t.Helper()
	return metrics(t, []string{name})[0].Of(q)
}

// TestPerfectAndWorst: all relevant items first give 1 everywhere, last give
// what arithmetic says.
func TestPerfectAndWorst(t *testing.T) {
	const n = 9
	for r := 1; r <= n; r++ {
		first, last := rank.Query{Candidates: n}, rank.Query{Candidates: n}
		ap := 0.0
		for m := 1; m <= r; m++ {
			first.Ranks = append(first.Ranks, int32(m))
			last.Ranks = append(last.Ranks, int32(n-r+m))
			ap += float64(m) / float64(n-r+m) / float64(r)
		}
		for _, name := range []string{"r@1", "rp", "map@r", "map", "mrr", fmt.Sprintf("p@%d", r)} {
			if got := of(t, name, first); math.Abs(got-1) > 1e-15 {
				t.Errorf("%s of a perfect ranking with R = %d is %v", name, r, got)
			}
		}
		if got := of(t, "map", last); math.Abs(got-ap) > 1e-15 {
			t.Errorf("AP of the worst ranking with R = %d is %v, want %v", r, got, ap)
		}
	}
}

// TestReference compares with pytorch-metric-learning (testdata/reference.py),
// which counts in float64 what float32 distances rank.
func TestReference(t *testing.T) {
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Gallery     [][]float64
		Labels      []int64
		Queries     [][]float64
		QueryLabels []int64 `json:"query_labels"`
		Metrics     map[string]float64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 5 {
		t.Fatalf("%d cases", len(cases))
	}
	for name, c := range cases {
		same := c.Queries == nil
		if same {
			c.Queries, c.QueryLabels = c.Gallery, c.Labels
		}
		scores, relevant := ranktest.NegativeL2(c.Queries, c.Gallery), ranktest.Relevant(c.QueryLabels, c.Labels)
		queries := ranktest.Queries(scores, relevant, same, rank.ByIndex)
		for metric, want := range c.Metrics {
			report, err := rank.Evaluate(context.Background(), queries, metrics(t, []string{metric}), rank.Options{})
			if err != nil {
				t.Fatal(err)
			}
			// The peer's mean reciprocal rank is a float32.
			tolerance := 1e-12
			if metric == "mrr" {
				tolerance = 1e-7
			}
			if got := report.Values[0].Mean; math.Abs(got-want) > tolerance {
				t.Errorf("%s: %s is %v, pytorch-metric-learning has %v", name, metric, got, want)
			}
		}
	}
}
