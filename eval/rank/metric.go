package rank

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Metric is one figure of merit, written as on the command line: r@K, p@K,
// map@r, rp, map, mrr. Every metric of a query lies in [0, 1], 1 is best.
type Metric struct {
	name string // without its K
	K    int    // of r@K and p@K; else 0
}

func (m Metric) String() string {
	if m.K > 0 {
		return m.name + strconv.Itoa(m.K)
	}
	return m.name
}

// metrics are the formulas by name, on ascending ranks r_1 < … < r_R of a
// query that is not lone.
var metrics = map[string]func(ranks []int32, k int) float64{
	// R@K = 1 if r_1 <= K.
	"r@": func(ranks []int32, k int) float64 {
		if int(ranks[0]) <= k {
			return 1
		}
		return 0
	},
	// P@K = |{m : r_m <= K}| / K.
	"p@": func(ranks []int32, k int) float64 { return float64(within(ranks, k)) / float64(k) },
	// R-precision = P@R.
	"rp": func(ranks []int32, _ int) float64 { return float64(within(ranks, len(ranks))) / float64(len(ranks)) },
	// AP@R = 1/R Σ_{r_m <= R} P(r_m) (Musgrave et al. 2020, section 3.2), P(r_m) = m / r_m.
	"map@r": func(ranks []int32, _ int) float64 {
		return precisionSum(ranks[:within(ranks, len(ranks))]) / float64(len(ranks))
	},
	// AP = 1/R Σ_m m / r_m, over the whole gallery.
	"map": func(ranks []int32, _ int) float64 { return precisionSum(ranks) / float64(len(ranks)) },
	// Reciprocal rank = 1 / r_1.
	"mrr": func(ranks []int32, _ int) float64 { return 1 / float64(ranks[0]) },
}

// within counts the ranks up to k.
func within(ranks []int32, k int) int {
	n, found := slices.BinarySearch(ranks, int32(min(k, 1<<31-1)))
	if found {
		n++
	}
	return n
}

// precisionSum is Σ m / r_m, the precision at each relevant item.
func precisionSum(ranks []int32) float64 {
	sum := 0.0
	for m, r := range ranks {
		sum += float64(m+1) / float64(r)
	}
	return sum
}

// Of is the metric of one query; 0 for a lone one.
func (m Metric) Of(q Query) float64 {
	if q.Lone() {
		return 0
	}
	return metrics[m.name](q.Ranks, m.K)
}

// check refuses a K beyond the candidates.
func (m Metric) check(q Query) error {
	if m.K > q.Candidates {
		return fault.Inputf("%v: only %d candidates are ranked; K may be at most that", m, q.Candidates)
	}
	return nil
}

// ParseMetrics reads a list such as "r@1,r@10,map@r,rp,map,mrr,p@5".
func ParseMetrics(list string) ([]Metric, error) {
	var out []Metric
	for word := range strings.SplitSeq(list, ",") {
		m, err := parseMetric(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, m) {
			return nil, fault.Inputf("metrics: %v is asked for twice", m)
		}
		out = append(out, m)
	}
	return out, nil
}

func parseMetric(word string) (Metric, error) {
	name, k, hasK := strings.Cut(word, "@")
	if _, known := metrics[word]; known && !strings.HasSuffix(word, "@") {
		return Metric{name: word}, nil
	}
	if _, known := metrics[name+"@"]; known && hasK {
		n, err := strconv.ParseInt(k, 10, 32)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != k {
			return Metric{}, fault.Inputf("metrics: %q: K is a whole number from 1 on, as in %s@10", word, name)
		}
		return Metric{name: name + "@", K: int(n)}, nil
	}
	hint := ""
	if near, ok := registry.Nearest(word, []string{"r@1", "p@1", "map@r", "rp", "map", "mrr"}); ok {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return Metric{}, fault.Inputf("metrics: unknown %q%s (known: r@K, p@K, map@r, rp, map, mrr)", word, hint)
}
