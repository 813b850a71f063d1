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
// map@r, rp, map, mrr. Every metric of a query lies in [0, 1], 1 is best. The
// zero Metric is not valid; [ParseMetric] gives one.
type Metric struct {
	definition *definition
	K          int // of a metric whose name ends in @K, such as r@K; else 0
}

// definition is a metric as its file registers it.
type definition struct {
	name  string                             // "map@r"; with a parameter "r@K"
	about string                             // in a line
	of    func(ranks []int32, k int) float64 // of ascending ranks r_1 < … < r_R, R at least 1
}

var metrics = registry.New[*definition]("metric")

// register adds a metric from its own file. A name that ends in @K takes a K,
// which is at least 1 and at most the number of candidates.
func register(name, about string, of func(ranks []int32, k int) float64) {
	d := &definition{name, about, of}
	metrics.Register(name, func() *definition { return d })
}

// MetricNames lists the names of all metrics, sorted; K stands for a number.
func MetricNames() []string { return metrics.Names() }

// String is the metric's name, with its K.
func (m Metric) String() string {
	if m.definition == nil {
		return ""
	}
	if name, ok := strings.CutSuffix(m.definition.name, "K"); ok {
		return name + strconv.Itoa(m.K)
	}
	return m.definition.name
}

// About says in a line what the metric is.
func (m Metric) About() string {
	if m.definition == nil {
		return ""
	}
	return m.definition.about
}

// Of is the metric of one query; 0 for a lone one.
func (m Metric) Of(q Query) float64 {
	if q.Lone() || m.definition == nil {
		return 0
	}
	return m.definition.of(q.Ranks, m.K)
}

// Check refuses a K beyond the number of candidates, as an input error.
func (m Metric) Check(candidates int) error {
	switch {
	case m.definition == nil:
		return fmt.Errorf("rank: a metric without a name; ParseMetric gives one")
	case m.K > candidates:
		return fault.Inputf("%v: only %d candidates are ranked; K may be at most that", m, candidates)
	}
	return nil
}

// UnmarshalText reads a metric's name, so that metrics are written as such in
// recipes and JSON.
func (m *Metric) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMetric(string(text))
	return err
}

// MarshalText writes the metric's name.
func (m Metric) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// ParseMetric reads a metric's name, such as "r@10" or "map@r". An unknown name
// and a K that is no whole number from 1 on are input errors.
func ParseMetric(name string) (Metric, error) {
	if d, err := metrics.Make(name); err == nil && !strings.HasSuffix(name, "K") {
		return Metric{definition: d}, nil
	}
	family, k, _ := strings.Cut(name, "@")
	if d, err := metrics.Make(family + "@K"); err == nil {
		n, err := strconv.ParseInt(k, 10, 32)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != k {
			return Metric{}, fault.Inputf("metrics: %q: K is a whole number from 1 on, as in %s@10", name, family)
		}
		return Metric{d, int(n)}, nil
	}
	known, hint := metrics.Names(), ""
	examples := make([]string, len(known))
	for i, word := range known {
		examples[i] = strings.Replace(word, "K", "1", 1)
	}
	slices.SortStableFunc(examples, func(a, b string) int { return len(b) - len(a) }) // mapr is map@r rather than map
	if near, ok := registry.Nearest(name, examples); ok {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return Metric{}, fault.Inputf("metrics: unknown %q%s (known: %s)", name, hint, strings.Join(known, ", "))
}

// ParseMetrics reads names, none of them twice.
func ParseMetrics(names ...string) ([]Metric, error) {
	var all []Metric
	for _, name := range names {
		m, err := ParseMetric(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, m) {
			return nil, fault.Inputf("metrics: %v is asked for twice", m)
		}
		all = append(all, m)
	}
	return all, nil
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
