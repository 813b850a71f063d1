package rank

import (
	"math"

	"roadmap/pkg/fault"
)

// Ties is the rule for candidates of exactly the same score.
type Ties string

// The rules for ties. Relevant items of one score are ranked among themselves
// by gallery index under every rule.
const (
	ByIndex     Ties = "index"       // the earlier gallery item first
	Pessimistic Ties = "pessimistic" // a relevant item after the irrelevant ones of its score
	Optimistic  Ties = "optimistic"  // a relevant item before the irrelevant ones of its score
)

// ParseTies reads a rule's name.
func ParseTies(name string) (Ties, error) {
	return choose("ties", name, ByIndex, Pessimistic, Optimistic)
}

// Limit is the rule as a number: an irrelevant candidate of the score of the
// relevant item with a gallery index ranks before it if its own index is below
// the limit. The empty rule is ByIndex.
func (t Ties) Limit(index int32) int32 {
	switch t {
	case Pessimistic:
		return math.MaxInt32
	case Optimistic:
		return 0
	default:
		return index
	}
}

// Candidate is an item that is ranked for a query.
type Candidate struct {
	Score    float64
	Index    int32 // in the gallery, from 0
	Relevant bool
}

// Before tells whether another candidate ranks before a relevant item: it has
// a higher score, or the same and an index below the item's, below [Ties.Limit]
// if it is irrelevant.
func (t Ties) Before(other, item Candidate) bool {
	if other.Score != item.Score {
		return other.Score > item.Score
	}
	limit := item.Index
	if !other.Relevant {
		limit = t.Limit(limit)
	}
	return other.Index < limit
}

// Rank is the rank of a relevant item, from 1: one more than the number of
// candidates before it. It can be counted in any order and in any parts, which
// is how an evaluation needs no sorting.
func (t Ties) Rank(item Candidate, candidates []Candidate) int {
	rank := 1
	for _, c := range candidates {
		if t.Before(c, item) {
			rank++
		}
	}
	return rank
}

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
