package rank

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestTrapezoidalAPByHand(t *testing.T) {
	for _, c := range []struct {
		ranks []int32
		want  float64
	}{
		{[]int32{1}, 1},
		{[]int32{1, 2, 3}, 1},
		{[]int32{2}, (0.0/1 + 1.0/2) / 2},
		{[]int32{1, 3}, ((1+1.0/1)/2 + (1.0/2+2.0/3)/2) / 2},
		{[]int32{4, 5}, ((0.0/3+1.0/4)/2 + (1.0/4+2.0/5)/2) / 2},
		{nil, 0},
	} {
		if got := TrapezoidalAP(c.ranks); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("ranks %v: %v, want %v", c.ranks, got, c.want)
		}
	}
}

func TestPrecisionBeforeLast(t *testing.T) {
	ranks := []int32{1, 3, 4}
	for k, want := range map[int]float64{1: 1, 2: 1.0 / 2, 3: 2.0 / 3, 4: 3.0 / 4, 5: 3.0 / 4, 10: 3.0 / 4} { // the last positive is at 4
		if got := PrecisionBeforeLast(ranks, k); got != want {
			t.Errorf("k = %d: %v, want %v", k, got, want)
		}
	}
	if got := PrecisionBeforeLast(nil, 5); got != 0 {
		t.Errorf("no positives: %v", got)
	}
}

// TestRevisitedAgainstLists removes junk from a list and integrates the curve
// point by point.
func TestRevisitedAgainstLists(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		var q RevisitedQuery
		var list []bool // without junk: positive or not
		for r := range 1 + random.IntN(30) {
			switch random.IntN(4) {
			case 0:
				q.Junk = append(q.Junk, int32(r+1))
				continue
			case 1:
				q.Positive = append(q.Positive, int32(r+1))
			}
			list = append(list, len(q.Positive) > 0 && q.Positive[len(q.Positive)-1] == int32(r+1))
		}
		hits, precision, area := 0, 1.0, 0.0
		atK := map[int]float64{} // precision at each place
		last := 0
		for i, hit := range list {
			if hit {
				hits++
				last = i + 1
			}
			now := float64(hits) / float64(i+1)
			atK[i+1] = now
			if hit {
				area += (precision + now) / 2 / float64(len(q.Positive))
			}
			precision = now
		}
		if len(q.Positive) == 0 {
			if _, err := Revisited([]RevisitedQuery{q}, []int{1}); err == nil {
				t.Fatal("no positives, and no error")
			}
			continue
		}
		report, err := Revisited([]RevisitedQuery{q, {Junk: q.Junk}}, []int{1, 5, 10})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(report.MAP-area) > 1e-12 || report.Queries != 2 || report.Lone != 1 {
			t.Fatalf("positives %v junk %v: %+v, want an area of %v", q.Positive, q.Junk, report, area)
		}
		for i, k := range []int{1, 5, 10} {
			if want := atK[min(k, last)]; report.MP[i] != want {
				t.Fatalf("positives %v junk %v: mp@%d is %v, want %v", q.Positive, q.Junk, k, report.MP[i], want)
			}
		}
	}
	_, err := Revisited([]RevisitedQuery{{Positive: []int32{1}}}, []int{0})
	faulttest.Refused(t, err, "mp@0")
	_, err = Revisited(nil, nil)
	faulttest.Refused(t, err, "none of the 0 queries")
}

func TestDifficulties(t *testing.T) {
	j := Judgement{Easy: []int{1, 2}, Hard: []int{3}, Junk: []int{4}}
	for d, want := range map[Difficulty][2][]int{
		Easy:   {{1, 2}, {4, 3}},
		Medium: {{1, 2, 3}, {4}},
		Hard:   {{3}, {4, 1, 2}},
	} {
		positive, junk := j.At(d)
		if !slices.Equal(positive, want[0]) || !slices.Equal(junk, want[1]) {
			t.Errorf("%s: positive %v, junk %v", d, positive, junk)
		}
	}
	if !slices.Equal(j.Easy, []int{1, 2}) || !slices.Equal(j.Junk, []int{4}) {
		t.Error("the judgement changed")
	}
}
