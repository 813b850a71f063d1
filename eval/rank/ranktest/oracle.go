// Package ranktest is the slow, plainly right float64 evaluation that tests
// compare with: it sorts every gallery and applies each definition literally
// to the sorted list. It shares no formula with package rank.
package ranktest

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"roadmap/eval/rank"
)

// None is the own row of a query that is not in the gallery.
const None = -1

// Cosine is the scores of unit vectors along queries and gallery, [M, N].
func Cosine(queries, gallery [][]float64) [][]float64 {
	return compare(queries, gallery, func(a, b []float64) float64 {
		dot, aa, bb := 0.0, 0.0, 0.0
		for i := range a {
			dot += a[i] * b[i]
			aa += a[i] * a[i]
			bb += b[i] * b[i]
		}
		return dot / math.Sqrt(aa) / math.Sqrt(bb)
	})
}

// NegativeL2 is minus the squared distances, [M, N].
func NegativeL2(queries, gallery [][]float64) [][]float64 {
	return compare(queries, gallery, func(a, b []float64) float64 {
		sum := 0.0
		for i := range a {
			sum += (a[i] - b[i]) * (a[i] - b[i])
		}
		return -sum
	})
}

func compare(queries, gallery [][]float64, score func(a, b []float64) float64) [][]float64 {
	out := make([][]float64, len(queries))
	for i, q := range queries {
		for _, g := range gallery {
			out[i] = append(out[i], score(q, g))
		}
	}
	return out
}

// Relevant compares labels, [M, N].
func Relevant(queries, gallery []int64) [][]bool {
	out := make([][]bool, len(queries))
	for i, q := range queries {
		for _, g := range gallery {
			out[i] = append(out[i], q == g)
		}
	}
	return out
}

// Order lists gallery indices, best first, without the query's own row.
func Order(scores []float64, relevant []bool, own int, ties rank.Ties) []int {
	var order []int
	for j := range scores {
		if j != own {
			order = append(order, j)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { // stable: by index where nothing else decides
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		case ties == rank.ByIndex || relevant[a] == relevant[b]:
			return 0
		case relevant[a] == (ties == rank.Optimistic):
			return -1
		}
		return 1
	})
	return order
}

// Ranked is a query's relevance in ranked order.
func Ranked(scores []float64, relevant []bool, own int, ties rank.Ties) []bool {
	var list []bool
	for _, j := range Order(scores, relevant, own, ties) {
		list = append(list, relevant[j])
	}
	return list
}

// Query is the ranking in the form that package rank takes.
func Query(scores []float64, relevant []bool, own int, ties rank.Ties) rank.Query {
	list := Ranked(scores, relevant, own, ties)
	q := rank.Query{Candidates: len(list)}
	for i, hit := range list {
		if hit {
			q.Ranks = append(q.Ranks, int32(i+1))
		}
	}
	return q
}

// Queries ranks every query; same says that query i is gallery item i.
func Queries(scores [][]float64, relevant [][]bool, same bool, ties rank.Ties) []rank.Query {
	out := make([]rank.Query, len(scores))
	for i := range scores {
		own := None
		if same {
			own = i
		}
		out[i] = Query(scores[i], relevant[i], own, ties)
	}
	return out
}

// Metric applies a metric's definition to a ranked relevance list: r@K, p@K,
// map@r, rp, map or mrr. A list without relevant items gives 0.
func Metric(name string, list []bool) float64 {
	total := count(list)
	if total == 0 {
		return 0
	}
	switch name {
	case "map@r":
		return precisions(list[:total]) / float64(total)
	case "rp":
		return precision(list, total)
	case "map":
		return precisions(list) / float64(total)
	case "mrr":
		return 1 / float64(slices.Index(list, true)+1)
	}
	kind, number, _ := strings.Cut(name, "@")
	k, err := strconv.Atoi(number)
	if err != nil {
		panic("ranktest: no metric " + name)
	}
	if kind == "p" {
		return precision(list, k)
	}
	return min(1, float64(count(list[:k]))) // recall@k of this field: any hit counts
}

// precision is the share of hits among the first k.
func precision(list []bool, k int) float64 { return float64(count(list[:k])) / float64(k) }

// precisions is Σ_j P(j)·rel(j).
func precisions(list []bool) float64 {
	sum := 0.0
	for j, hit := range list {
		if hit {
			sum += precision(list, j+1)
		}
	}
	return sum
}

func count(list []bool) int {
	n := 0
	for _, hit := range list {
		if hit {
			n++
		}
	}
	return n
}

// Evaluate is the mean of each metric over the queries, and how many are lone.
func Evaluate(scores [][]float64, relevant [][]bool, same bool, ties rank.Ties, policy rank.Lone, names ...string) (means map[string]float64, lone int) {
	means = map[string]float64{}
	counted := 0
	for i := range scores {
		own := None
		if same {
			own = i
		}
		list := Ranked(scores[i], relevant[i], own, ties)
		if count(list) == 0 {
			lone++
			if policy == rank.Skip {
				continue
			}
		}
		counted++
		for _, name := range names {
			means[name] += Metric(name, list)
		}
	}
	for _, name := range names {
		means[name] /= float64(counted)
	}
	return means, lone
}
