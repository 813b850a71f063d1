// Package rank computes retrieval metrics from ranks: of each query it needs
// only at which places of its ranking the relevant gallery items stand. It
// knows nothing of embeddings, scores or devices.
//
// Terms: a query is compared with its candidates, the gallery items that may
// be retrieved for it (all N, or N-1 when the query is one of them itself). R
// of them are relevant. Ranks count from 1. A query with R = 0 is lone.
package rank

import (
	"fmt"

	"roadmap/pkg/fault"
)

// Query is the ranking of one query.
type Query struct {
	Ranks      []int32 // of the relevant items, ascending, from 1; none: the query is lone
	Candidates int     // how many items were ranked
}

// Lone reports whether nothing relevant can be retrieved for q.
func (q Query) Lone() bool { return len(q.Ranks) == 0 }

// check finds rankings that no ranking can be: a mistake in the program.
func (q Query) check() error {
	previous := int32(0)
	for _, r := range q.Ranks {
		if r <= previous || int(r) > q.Candidates {
			return fmt.Errorf("rank: rank %d follows %d among %d candidates", r, previous, q.Candidates)
		}
		previous = r
	}
	return nil
}

// Ties says how candidates of exactly the same score are ranked.
type Ties string

// The rules for ties.
const (
	ByIndex     Ties = "index"       // the earlier gallery item first
	Pessimistic Ties = "pessimistic" // a relevant item after the irrelevant ones of its score
	Optimistic  Ties = "optimistic"  // a relevant item before the irrelevant ones of its score
)

// ParseTies reads a rule's name.
func ParseTies(name string) (Ties, error) {
	return choose("ties", name, ByIndex, Pessimistic, Optimistic)
}

// Counts are how many other candidates stand in which relation to one relevant
// item. All that a rank depends on can be counted in any order, in any tiles.
type Counts struct {
	Above          int // higher score
	TiedRelevant   int // same score, relevant, smaller gallery index
	TiedBefore     int // same score, irrelevant, smaller gallery index
	TiedIrrelevant int // same score, irrelevant, any gallery index
}

// Rank is the relevant item's rank under the rule. Relevant items of one score
// are ranked among themselves by gallery index under every rule.
func (t Ties) Rank(c Counts) int {
	rank := 1 + c.Above + c.TiedRelevant
	switch t {
	case Pessimistic:
		return rank + c.TiedIrrelevant
	case Optimistic:
		return rank
	default:
		return rank + c.TiedBefore
	}
}

// Lone says what a query without relevant items counts.
type Lone string

// The policies for lone queries.
const (
	Skip Lone = "skip" // it is in no mean
	Zero Lone = "zero" // it counts as 0 in every mean
)

// ParseLone reads a policy's name.
func ParseLone(name string) (Lone, error) { return choose("lone", name, Skip, Zero) }

// choose finds a name among an option's values, of which there are at least two.
func choose[T ~string](option, name string, values ...T) (T, error) {
	words := ""
	for i, v := range values {
		if string(v) == name {
			return v, nil
		}
		words += []string{", ", " or "}[i/(len(values)-1)] + string(v)
	}
	return "", fault.Inputf("%s: %q is unknown; give %s", option, name, words[2:])
}
