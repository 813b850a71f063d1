package rank

import "roadmap/pkg/fault"

// Revisited Oxford and Paris (Radenović et al., CVPR 2018, section 3): each
// query has easy, hard and junk images. A difficulty says which of them are
// positive; the others of the three are junk, which is taken out of the
// ranking as if it had not been in the gallery.

// Difficulty is one of the three setups.
type Difficulty string

// The setups.
const (
	Easy   Difficulty = "easy"   // easy images are positive, hard ones junk
	Medium Difficulty = "medium" // easy and hard images are positive
	Hard   Difficulty = "hard"   // hard images are positive, easy ones junk
)

// Difficulties are all of them, in the order of the tables.
var Difficulties = []Difficulty{Easy, Medium, Hard}

// Judgement is the ground truth of one query: gallery indices from 0.
type Judgement struct {
	Easy, Hard, Junk []int
	Box              [4]float64 // of the object in the query image: x1, y1, x2, y2 in pixels
}

// At returns the positive and the junk images at a difficulty.
func (j Judgement) At(d Difficulty) (positive, junk []int) {
	join := func(a, b []int) []int { return append(append([]int{}, a...), b...) }
	switch d {
	case Easy:
		return j.Easy, join(j.Junk, j.Hard)
	case Hard:
		return j.Hard, join(j.Junk, j.Easy)
	default:
		return join(j.Easy, j.Hard), j.Junk
	}
}

// WithoutJunk lowers the ranks of positives by the junk above each: both
// ascending, counted over the whole gallery.
func WithoutJunk(positive, junk []int32) []int32 {
	out := make([]int32, len(positive))
	above := 0
	for i, r := range positive {
		for above < len(junk) && junk[above] < r {
			above++
		}
		out[i] = r - int32(above)
	}
	return out
}

// TrapezoidalAP is the area under the precision-recall curve with straight
// lines between its points, as the Oxford and Paris protocols have it: for
// ranks r_1 < … < r_R,
//
//	AP = 1/R Σ_m ( (m-1)/(r_m-1) + m/r_m ) / 2,   0/0 = 1.
//
// No ranks give 0.
func TrapezoidalAP(ranks []int32) float64 {
	sum := 0.0
	for m, r := range ranks {
		before := 1.0 // the curve begins at precision 1
		if r > 1 {
			before = float64(m) / float64(r-1)
		}
		after := float64(m+1) / float64(r)
		sum += (before + after) / 2
	}
	return sum / max(float64(len(ranks)), 1)
}

// PrecisionBeforeLast is mP@k's term: the precision at k, or at the rank of
// the last positive where that comes first. No ranks give 0.
func PrecisionBeforeLast(ranks []int32, k int) float64 {
	if len(ranks) == 0 {
		return 0
	}
	at := min(k, int(ranks[len(ranks)-1]))
	return float64(within(ranks, at)) / float64(at)
}

// RevisitedQuery is one query's ranking over the whole gallery, both ascending.
type RevisitedQuery struct{ Positive, Junk []int32 }

// RevisitedReport is the figures at one difficulty, means over the queries
// that have positives there.
type RevisitedReport struct {
	MAP     float64
	MP      []float64 // mP@k, one a k
	Queries int
	Lone    int // queries without positives, which the protocol skips
}

// Revisited evaluates one difficulty. No positives at all, no queries or a k
// below 1 are input errors.
func Revisited(queries []RevisitedQuery, ks []int) (*RevisitedReport, error) {
	report := &RevisitedReport{MP: make([]float64, len(ks)), Queries: len(queries)}
	for _, k := range ks {
		if k < 1 {
			return nil, fault.Inputf("mp@%d: k is a whole number from 1 on", k)
		}
	}
	for _, q := range queries {
		if len(q.Positive) == 0 {
			report.Lone++
			continue
		}
		ranks := WithoutJunk(q.Positive, q.Junk)
		report.MAP += TrapezoidalAP(ranks)
		for i, k := range ks {
			report.MP[i] += PrecisionBeforeLast(ranks, k)
		}
	}
	counted := float64(report.Queries - report.Lone)
	if counted == 0 {
		return nil, fault.Inputf("none of the %d queries has a positive image; check that the ground truth belongs to these embeddings", len(queries))
	}
	report.MAP /= counted
	for i := range report.MP {
		report.MP[i] /= counted
	}
	return report, nil
}
