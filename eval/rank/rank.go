// Package rank computes retrieval metrics from ranks: of each query it needs
// only at which places of its ranking the relevant gallery items stand. It
// knows nothing of embeddings, scores or devices.
//
// Terms: a query is compared with its candidates, the gallery items that may
// be retrieved for it (all N, or N-1 when the query is one of them itself). R
// of them are relevant. Ranks count from 1. A query with R = 0 is lone.
package rank

import "fmt"

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

// Lone says what a query without relevant items counts.
type Lone string

// The policies for lone queries.
const (
	Skip Lone = "skip" // it is in no mean
	Zero Lone = "zero" // it counts as 0 in every mean
)

// ParseLone reads a policy's name.
func ParseLone(name string) (Lone, error) { return choose("lone", name, Skip, Zero) }
