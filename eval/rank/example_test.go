package rank_test

import (
	"context"
	"fmt"

	"roadmap/eval/rank"
)

// Two queries among ten candidates: the relevant items of the first stand at
// ranks 1, 3 and 6, those of the second at 4 and 5.
func ExampleEvaluate() {
	queries := []rank.Query{
		{Ranks: []int32{1, 3, 6}, Candidates: 10},
		{Ranks: []int32{4, 5}, Candidates: 10},
	}
	metrics, err := rank.ParseMetrics("r@1", "p@5", "map@r", "map")
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := rank.Evaluate(context.Background(), queries, metrics, rank.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, v := range report.Values {
		fmt.Printf("%-6v %.4f\n", v.Metric, v.Mean)
	}
	// Output:
	// r@1    0.5000
	// p@5    0.4000
	// map@r  0.2778
	// map    0.5236
}

func ExampleParseMetric() {
	m, err := rank.ParseMetric("r@10")
	fmt.Println(m, m.K, err)
	fmt.Println(m.About())
	_, err = rank.ParseMetric("mapr")
	fmt.Println(err)
	// Output:
	// r@10 10 <nil>
	// recall at K: 1 if a relevant item is among the first K
	// metrics: unknown "mapr"; did you mean "map@r"? (known: map, map@r, mrr, p@K, r@K, rp)
}

// A relevant item that shares its score with two irrelevant ones, of which one
// stands before it in the gallery.
func ExampleTies_Rank() {
	item := rank.Candidate{Score: 0.5, Index: 2, Relevant: true}
	candidates := []rank.Candidate{{Score: 0.9, Index: 0}, {Score: 0.5, Index: 1}, item, {Score: 0.5, Index: 3}}
	for _, ties := range []rank.Ties{rank.Optimistic, rank.ByIndex, rank.Pessimistic} {
		fmt.Println(ties, ties.Rank(item, candidates))
	}
	// Output:
	// optimistic 2
	// index 3
	// pessimistic 4
}

// The area under the precision-recall curve, as Oxford and Paris have it.
func ExampleTrapezoidalAP() {
	fmt.Printf("%.4f\n", rank.TrapezoidalAP([]int32{1, 3, 6}))
	// (1 + 1)/2 for rank 1, (1/2 + 2/3)/2 for rank 3, (2/5 + 3/6)/2 for rank 6, over 3
	// Output: 0.6778
}
