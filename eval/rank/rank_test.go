package rank

import (
	"math"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func parse(t *testing.T, list string) []Metric {
	t.Helper()
	metrics, err := ParseMetrics(strings.Split(list, ",")...)
	if err != nil {
		t.Fatal(err)
	}
	return metrics
}

// TestByHand works every metric out on small rankings.
func TestByHand(t *testing.T) {
	for _, c := range []struct {
		ranks []int32
		want  map[string]float64
	}{
		{[]int32{1, 3, 6}, map[string]float64{ // R = 3; precision at the hits: 1/1, 2/3, 3/6
			"r@1": 1, "r@10": 1,
			"p@1": 1, "p@5": 2.0 / 5, "p@10": 3.0 / 10,
			"rp":    2.0 / 3,             // 1 and 3 are within the first 3
			"map@r": (1.0/1 + 2.0/3) / 3, // 6 is not
			"map":   (1.0/1 + 2.0/3 + 3.0/6) / 3,
			"mrr":   1,
		}},
		{[]int32{4, 5}, map[string]float64{ // R = 2: nothing within the first 2
			"r@1": 0, "r@3": 0, "r@4": 1,
			"p@3": 0, "p@4": 1.0 / 4,
			"rp": 0, "map@r": 0, "map": (1.0/4 + 2.0/5) / 2, "mrr": 1.0 / 4,
		}},
		{[]int32{1, 2, 3}, map[string]float64{"r@1": 1, "p@3": 1, "rp": 1, "map@r": 1, "map": 1, "mrr": 1}},
		{[]int32{10}, map[string]float64{"r@9": 0, "r@10": 1, "p@10": 1.0 / 10, "rp": 0, "map@r": 0, "map": 1.0 / 10, "mrr": 1.0 / 10}},
		{nil, map[string]float64{"r@1": 0, "p@1": 0, "rp": 0, "map@r": 0, "map": 0, "mrr": 0}},
	} {
		for name, want := range c.want {
			m := parse(t, name)[0]
			if m.String() != name {
				t.Errorf("%q prints as %v", name, m)
			}
			if got := m.Of(Query{c.ranks, 10}); math.Abs(got-want) > 1e-15 {
				t.Errorf("%s of ranks %v is %v, want %v", name, c.ranks, got, want)
			}
		}
	}
}

// TestTies ranks a relevant item of gallery index 5 that shares its score with
// the relevant item 2 and the irrelevant items 1, 7 and 9, below 3 better ones.
func TestTies(t *testing.T) {
	item := Candidate{Score: 0.5, Index: 5, Relevant: true}
	candidates := []Candidate{
		{0.9, 0, false}, {0.8, 8, true}, {0.7, 3, false}, // better
		{0.5, 2, true}, {0.5, 6, true}, // as good, and relevant
		{0.5, 1, false}, {0.5, 7, false}, {0.5, 9, false}, // as good, and irrelevant
		{0.1, 4, true}, {0.4, 10, false}, item,
	}
	for ties, want := range map[Ties]int{
		ByIndex:     3 + 1 + 1 + 1, // items 1 and 2, then itself
		Optimistic:  3 + 1 + 1,     // item 2, then itself
		Pessimistic: 3 + 3 + 1 + 1, // items 1, 7, 9 and 2, then itself
		"":          3 + 1 + 1 + 1, // by index
	} {
		if got := ties.Rank(item, candidates); got != want {
			t.Errorf("%s: rank %d, want %d", ties, got, want)
		}
	}
}

func TestOptionNames(t *testing.T) {
	for _, name := range []Ties{ByIndex, Pessimistic, Optimistic} {
		if got, err := ParseTies(string(name)); err != nil || got != name {
			t.Errorf("ties %q: %v, %v", name, got, err)
		}
	}
	for _, name := range []Lone{Skip, Zero} {
		if got, err := ParseLone(string(name)); err != nil || got != name {
			t.Errorf("lone %q: %v, %v", name, got, err)
		}
	}
	_, err := ParseTies("worst")
	faulttest.Refused(t, err, `ties: "worst"`, "give index, pessimistic or optimistic")
	_, err = ParseLone("")
	faulttest.Refused(t, err, `lone: ""`, "give skip or zero")
}

func TestParseMetrics(t *testing.T) {
	got := parse(t, "r@1,r@10,map@r,rp,map,mrr,p@5")
	var names []string
	for _, m := range got {
		names = append(names, m.String())
	}
	if want := []string{"r@1", "r@10", "map@r", "rp", "map", "mrr", "p@5"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	for list, part := range map[string]string{
		"r@0":          `"r@0": K is a whole number from 1 on`,
		"p@-1":         `"p@-1": K is a whole`,
		"r@":           `"r@": K is a whole`,
		"r@1.5":        `"r@1.5": K is a whole`,
		"r@01":         `"r@01": K is a whole`,
		"r@9999999999": `K is a whole`,
		"r@1,mapr":     `unknown "mapr"; did you mean "map@r"?`,
		"mmr":          `did you mean "mrr"?`,
		"map@10":       `unknown "map@10"`,
		"recall":       `known: map, map@r, mrr, p@K, r@K, rp`,
		"":             `unknown ""`,
		"r@1,":         `unknown ""`,
		"rp,r@1,rp":    "rp is asked for twice",
	} {
		_, err := ParseMetrics(strings.Split(list, ",")...)
		faulttest.Refused(t, err, "metrics: ", part)
	}
	if err := (Metric{}).Check(1); err == nil {
		t.Error("the zero metric is taken for one")
	}
}

// TestMetricText: a metric is its name, in text and back, and says what it is.
func TestMetricText(t *testing.T) {
	for _, name := range MetricNames() {
		name = strings.Replace(name, "K", "12", 1)
		var m Metric
		if err := m.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		if text, err := m.MarshalText(); string(text) != name || err != nil || m.About() == "" {
			t.Errorf("%s: %q, %v, %q", name, text, err, m.About())
		}
	}
	if err := new(Metric).UnmarshalText([]byte("r@K")); err == nil {
		t.Error("r@K is no metric: K is not a number")
	}
}
