package eval

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"roadmap/eval/rank"
	"roadmap/eval/rank/ranktest"
	"roadmap/pkg/datatest"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/rng"
)

// TestRevisited compares with the protocol read literally from sorted lists:
// junk is taken out, then AP is the area of trapezoids.
func TestRevisited(t *testing.T) {
	const queries, gallery, dim = 9, 120, 16
	r := rng.New(23)
	query, items := clustered(r, queries, dim, 1, 1), clustered(r, gallery, dim, 1, 1)
	truth := &GroundTruth{Gallery: make([]string, gallery), Queries: make([]string, queries)}
	for i := range queries {
		images := r.Perm(gallery)[:30]
		j := rank.Judgement{Easy: images[:8], Hard: images[8:17], Junk: images[17:]}
		if i == 4 {
			j.Easy = nil
		}
		truth.Judgements = append(truth.Judgements, j)
	}
	protocol, in := &Revisited{Truth: truth}, Input{Query: query.matrix(), Gallery: items.matrix()}
	got, err := protocol.Run(context.Background(), in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]counterFor{"small tiles": tensors(1000, 1), "one tile": tensors(1<<15, mostOpen), "tiles": tensors(3000, 1)} { // of 9 x 120 scores
		if same, err := protocol.run(context.Background(), in, Options{}, by); err != nil || !reflect.DeepEqual(same, got) {
			t.Errorf("%s: %+v, %v, want %+v", name, same, err, got)
		}
	}
	all := ranktest.Cosine(query.rows, items.rows)
	for _, d := range rank.Difficulties {
		mean, at5, counted := 0.0, 0.0, 0.0
		for i := range queries {
			j := truth.Judgements[i]
			positive, junk := slices.Concat(j.Easy, j.Hard), j.Junk
			switch d {
			case rank.Easy:
				positive, junk = j.Easy, slices.Concat(j.Hard, j.Junk)
			case rank.Hard:
				positive, junk = j.Hard, slices.Concat(j.Easy, j.Junk)
			}
			if len(positive) == 0 {
				continue
			}
			counted++
			var list []bool // relevance in ranked order, without junk
			for _, item := range ranktest.Order(all[i], make([]bool, gallery), ranktest.None, rank.ByIndex) {
				if !slices.Contains(junk, item) {
					list = append(list, slices.Contains(positive, item))
				}
			}
			hits, ap, last := 0.0, 0.0, 0
			for n, hit := range list {
				if !hit {
					continue
				}
				before := 1.0
				if n > 0 {
					before = hits / float64(n)
				}
				hits++
				ap += (before + hits/float64(n+1)) / 2 / float64(len(positive))
				last = n + 1
			}
			mean += ap
			within, k := 0.0, min(5, last)
			for _, hit := range list[:k] {
				if hit {
					within++
				}
			}
			at5 += within / float64(k)
		}
		if want := mean / counted; math.Abs(figure(t, got, "map/"+string(d))-want) > 1e-12 {
			t.Errorf("map/%s is %v, want %v", d, figure(t, got, "map/"+string(d)), want)
		}
		if want := at5 / counted; math.Abs(figure(t, got, "mp@5/"+string(d))-want) > 1e-12 {
			t.Errorf("mp@5/%s is %v, want %v", d, figure(t, got, "mp@5/"+string(d)), want)
		}
	}
	if !slices.Equal(got.Lone, []LoneCount{{"easy", 1}, {"medium", 0}, {"hard", 0}}) || len(got.Figures) != 12 {
		t.Errorf("%+v", got)
	}
	for name, call := range map[string]func() error{
		"no gallery": func() error {
			_, err := protocol.Run(context.Background(), Input{Query: query.matrix()}, Options{})
			return err
		},
		"queries": func() error {
			_, err := protocol.Run(context.Background(), Input{Query: items.matrix(), Gallery: items.matrix()}, Options{})
			return err
		},
		"gallery": func() error {
			_, err := protocol.Run(context.Background(), Input{Query: query.matrix(), Gallery: query.matrix()}, Options{})
			return err
		},
		"no ground truth": func() error {
			_, err := (&Revisited{}).Run(context.Background(), in, Options{})
			return err
		},
	} {
		if err := call(); !fault.IsInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// figure is one of a protocol's.
func figure(t *testing.T, r *ProtocolResult, name string) float64 {
	t.Helper()
	for _, f := range r.Figures {
		if f.Name == name {
			return f.Value
		}
	}
	t.Fatalf("no %s in %+v", name, r)
	return 0
}

// TestOfficialLists evaluates embeddings that the published ground truth makes
// perfect: easy images near the query, hard ones behind them, junk anywhere.
func TestOfficialLists(t *testing.T) {
	path := datatest.Shared(t, "revisitop/gnd_roxford5k.pkl")
	truth, err := ReadGroundTruth(path)
	if err != nil {
		t.Fatal(err)
	}
	// Query i looks along axis i, and an image has along it what i's judgement
	// gives it: the more, the nearer, as all images are of one length.
	n, length := len(truth.Judgements), 2000.0
	queries, gallery := make([]float32, n*(n+1)), make([]float32, len(truth.Gallery)*(n+1))
	for i, j := range truth.Judgements {
		queries[i*(n+1)+i] = 1
		for value, images := range map[float32][]int{3: j.Easy, 2: j.Hard, 4: j.Junk} {
			for _, image := range images {
				gallery[image*(n+1)+i] = value
			}
		}
	}
	for image := range truth.Gallery {
		row := gallery[image*(n+1) : (image+1)*(n+1)]
		rest := length
		for _, v := range row {
			rest -= float64(v * v)
		}
		row[n] = float32(math.Sqrt(rest))
	}
	protocol, in := &Revisited{GroundTruth: path}, Input{Query: Float32s(queries, n+1), Gallery: Float32s(gallery, n+1)}
	got, err := protocol.Run(context.Background(), in, Options{Distance: L2, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := protocol.run(context.Background(), in, Options{Distance: L2}, tensors(70*1000, 1)); err != nil || !reflect.DeepEqual(same, got) {
		t.Errorf("by tensor operations: %+v, %v, want %+v", same, err, got)
	}
	if got.Lone[0] != (LoneCount{"easy", 2}) || got.Queries != 70 || got.Gallery != 4993 {
		t.Errorf("%+v; the Easy setup skips two queries of Oxford", got)
	}
	for _, f := range got.Figures {
		if f.Value != 1 {
			t.Errorf("%s is %v", f.Name, f.Value)
		}
	}
}

// TestVehicleID: perfect classes give 1 with no spread; queries and galleries
// have the published sizes.
func TestVehicleID(t *testing.T) {
	var s set
	for c := range 30 {
		for i := range 4 {
			row := make([]float64, 30)
			row[c], row[(c+1)%30] = 1, 0.01*float64(i)
			s.rows, s.labels = append(s.rows, row), append(s.labels, int64(c))
		}
	}
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	got, err := (&VehicleID{Repeats: 3}).Run(context.Background(), in, Options{Metrics: metrics("r@1", "map"), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Figures[0]; f.Name != "r@1" || f.Value != 1 || *f.Spread != 0 || got.Queries != 30*3 || got.Gallery != 30 || got.Repeats != 3 || got.Lone[0].Queries != 0 {
		t.Errorf("%+v", got)
	}
	hard := clustered(rng.New(3), 200, 8, 20, 3)
	in = Input{Query: hard.matrix(), QueryLabels: hard.labels}
	got, err = (&VehicleID{Repeats: 10}).Run(context.Background(), in, Options{Metrics: metrics("r@1")})
	if err != nil {
		t.Fatal(err)
	}
	if f := got.Figures[0]; *f.Spread <= 0 || f.Value <= 0 || f.Value >= 1 {
		t.Errorf("%v ± %v: random galleries spread", f.Value, *f.Spread)
	}
	in.Gallery, in.GalleryLabels = in.Query, in.QueryLabels
	if _, err := (&VehicleID{Repeats: 10}).Run(context.Background(), in, Options{}); !fault.IsInput(err) {
		t.Errorf("with a gallery: %v", err)
	}
}

// TestBatchCurve: in small batches average precision looks better than it is, and a
// batch of all rows is the whole set.
func TestBatchCurve(t *testing.T) {
	s := clustered(rng.New(9), 600, 16, 12, 3)
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	o := Options{Metrics: metrics("map"), Seed: 3}
	curve, err := BatchCurve(context.Background(), in, []int{20, 100, 600}, 6, o)
	if err != nil {
		t.Fatal(err)
	}
	whole := evaluate(t, in, o)
	for i, p := range curve {
		t.Logf("%+v", p)
		if p.Draws+p.Lone != 6 || i > 0 && p.Metrics["map"].Mean >= curve[i-1].Metrics["map"].Mean {
			t.Errorf("point %d: %+v", i, p)
		}
	}
	if last := curve[2].Metrics["map"]; math.Abs(last.Mean-whole.Metrics["map"]) > 1e-12 || last.SD > 1e-12 {
		t.Errorf("batches of all rows: %v, the set: %v", last, whole.Metrics)
	}
	for _, sizes := range [][]int{{1}, {601}} {
		if _, err := BatchCurve(context.Background(), in, sizes, 6, o); !fault.IsInput(err) {
			t.Errorf("sizes %v: %v", sizes, err)
		}
	}
	if _, err := BatchCurve(context.Background(), in, []int{20}, 0, o); !fault.IsInput(err) {
		t.Errorf("no draws: %v", err)
	}
	in.QueryLabels = make([]int64, 600)
	for i := range in.QueryLabels {
		in.QueryLabels[i] = int64(i)
	}
	if curve, err := BatchCurve(context.Background(), in, []int{20}, 6, o); err != nil || curve[0].Lone != 6 || curve[0].Draws != 0 {
		t.Errorf("nothing relevant anywhere: %+v, %v", curve, err)
	}
}

// TestGapByHand works the definitions out on six rows in two batches.
func TestGapByHand(t *testing.T) {
	// One number a row, compared by angle: (1, v). The query is row 0 at 0.
	v := []float64{0, 0.1, 0.3, 0.2, 0.4, 5}
	var s set
	for _, x := range v {
		s.rows = append(s.rows, []float64{1, x})
	}
	s.labels = []int64{1, 2, 1, 2, 1, 3}
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	batches := [][]int{{0, 2, 3}, {1, 4, 5}}
	got, err := DecomposabilityGap(context.Background(), in, batches, GapOptions{Alpha: 0.95, Beta: 0.99}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := got.PerQuery[0]
	// Row 0 ranks 1-, 3-, 2+, 4+, 5-: AP = (1/3 + 2/4)/2. In batch 0 (rows 2+, 3-): 3-, 2+: 1/2. In
	// batch 1 (1-, 4+, 5-): 1/2.
	ap, inBatch := (1./3+2./4)/2, (1./2+1./2)/2
	// Eq. 8: row 2 is positive 1 with no earlier batch, row 4 is positive 2 behind batch 0's one negative.
	bound8 := 1 - (1./1+2./3)/2
	// Cosines with row 0 are 1/√(1+v²): 0.958 of row 2 is good, 0.928 of row 4 is not; 0.995 of row 1 is bad, 0.981
	// of row 3 is not. Eq. 9: good: row 2, no bad before: 1/1. The other: row 4 comes after batch 0's one
	// positive, none of its own batch is good, and batch 0's one negative: 2/3.
	bound9 := 1 - (1./1+2./3)/2
	// Worst: batch 1 (two negatives, one bad) first. Eq. 8: 1/1, then row 2 behind its two negatives: 2/4. No
	// order is worse. Eq. 9: row 2 behind the bad row 1: 1/2; row 4 at the worst place of the two: 2/4.
	worst8, worst9 := 1-(1./1+2./4)/2, 1-(1./2+2./4)/2
	want := QueryGap{Row: 0, AP: ap, InBatch: inBatch, Bound8: bound8, Bound9: bound9, Worst8: worst8, Worst9: worst9}
	for name, pair := range map[string][2]float64{"AP": {q.AP, want.AP}, "in batch": {q.InBatch, want.InBatch}, "eq. 8": {q.Bound8, want.Bound8},
		"eq. 9": {q.Bound9, want.Bound9}, "worst 8": {q.Worst8, want.Worst8}, "worst 9": {q.Worst9, want.Worst9}} {
		if math.Abs(pair[0]-pair[1]) > 1e-12 {
			t.Errorf("%s of row 0 is %v, want %v", name, pair[0], pair[1])
		}
	}
	if got.Lone != 1 || got.Queries != 6 || math.Abs(got.DG-(got.InBatch-got.AP)) > 1e-15 {
		t.Errorf("%+v", got)
	}
}

// TestGapReference compares with the equations written term by term in Python
// (testdata/gap.py).
func TestGapReference(t *testing.T) {
	text, err := os.ReadFile("testdata/gap.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Rows        [][]float64
		Labels      []int64
		Batches     [][]int
		Alpha, Beta float64
		Queries     []*struct { // null: lone
			AP, Bound8, Bound9, Worst8, Worst9 float64
			InBatch                            float64 `json:"in_batch"`
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) != 3 {
		t.Fatal(len(cases), err)
	}
	for n, c := range cases {
		in := Input{Query: set{rows: c.Rows}.matrix(), QueryLabels: c.Labels}
		got, err := DecomposabilityGap(context.Background(), in, c.Batches, GapOptions{Alpha: c.Alpha, Beta: c.Beta}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		mean, counted := 0.0, 0.0
		for _, q := range got.PerQuery {
			want := c.Queries[q.Row]
			if q.Lone != (want == nil) {
				t.Errorf("case %d, row %d: lone: %v", n, q.Row, q.Lone)
			}
			if q.Lone || want == nil {
				continue
			}
			mean += want.Bound9
			counted++
			for name, pair := range map[string][2]float64{"AP": {q.AP, want.AP}, "AP in batches": {q.InBatch, want.InBatch}, "eq. 8": {q.Bound8, want.Bound8}, "eq. 9": {q.Bound9, want.Bound9}} {
				if math.Abs(pair[0]-pair[1]) > 1e-12 {
					t.Errorf("case %d, row %d: %s is %v, want %v", n, q.Row, name, pair[0], pair[1])
				}
			}
			if q.Worst8 < want.Worst8-1e-12 || q.Worst9 < want.Worst9-1e-12 || q.Worst8 > 1 || q.Worst9 > 1 {
				t.Errorf("case %d, row %d: over all orders at most %v and %v; an order gives %v and %v", n, q.Row, q.Worst8, q.Worst9, want.Worst8, want.Worst9)
			}
		}
		if math.Abs(got.Bound9-mean/counted) > 1e-12 || got.Lone != 1 {
			t.Errorf("case %d: eq. 9 is %v with %d lone, want %v", n, got.Bound9, got.Lone, mean/counted)
		}
	}
}

// TestGapOfTheOthers: a positive below alpha comes after its own batch's good
// ones and all positives and negatives of earlier batches, whatever their scores.
func TestGapOfTheOthers(t *testing.T) {
	var q QueryGap
	q.bound([]part{{positives: 3, negatives: 4, good: 1, bad: 2}, {positives: 2, negatives: 5, good: 1}})
	// Batch 1: one good, two others, no batch before: 1/1, 2/2, 3/3. Batch 2: one good after batch 1's good one and its two
	// bad ones: 2/4; one other after batch 1's 3 positives, the good one of its own and batch 1's 4 negatives: 5/9.
	if want := 1 - (1+1+1+2./4+5./9)/5; math.Abs(q.Bound9-want) > 1e-15 {
		t.Errorf("eq. 9 is %v, want %v", q.Bound9, want)
	}
	// Eq. 8: batch 2's two after 3 positives and 4 negatives.
	if want := 1 - (1+1+1+4./8+5./9)/5; math.Abs(q.Bound8-want) > 1e-15 {
		t.Errorf("eq. 8 is %v, want %v", q.Bound8, want)
	}
}

// TestGapAtItsMargins: a positive at alpha is good, a negative at beta is not bad.
func TestGapAtItsMargins(t *testing.T) {
	in := Input{Query: Float32s([]float32{1, 0, 1, 0, 0, 1, 0, 1}, 2), QueryLabels: []int64{1, 2, 1, 2}}
	// Row 0 sees its negative 1 at a cosine of 1, then, in the other batch, its positive 2 at 0 and the negative 3 at 0.
	for _, test := range []struct {
		alpha, beta, want float64
	}{
		{0, 1, 0},           // good, and nothing bad before: 1/1
		{0, 0.99, 1 - 1./2}, // good, behind the bad one
		{0.01, 1, 1 - 1./2}, // not good: behind the negative of the earlier batch
	} {
		got, err := DecomposabilityGap(context.Background(), in, [][]int{{0, 1}, {2, 3}}, GapOptions{Alpha: test.alpha, Beta: test.beta}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if q := got.PerQuery[0]; q.Row != 0 || math.Abs(q.Bound9-test.want) > 1e-12 {
			t.Errorf("alpha %v, beta %v: %+v, want a bound of %v", test.alpha, test.beta, q, test.want)
		}
	}
}

// orders calls f with every order of the batches.
func orders(parts []part, f func([]part)) {
	var permute func(n int)
	permute = func(n int) {
		if n == len(parts) {
			f(parts)
			return
		}
		for i := n; i < len(parts); i++ {
			parts[n], parts[i] = parts[i], parts[n]
			permute(n + 1)
			parts[n], parts[i] = parts[i], parts[n]
		}
	}
	permute(0)
}

// TestWorstOrder: no order of the batches gives more than the worst case, and
// with equal batches eq. 8 reaches it.
func TestWorstOrder(t *testing.T) {
	r := rng.New(31)
	for trial := range 200 {
		var parts []part
		equal := trial%2 == 0
		for range 5 {
			p := part{positives: r.IntN(4), negatives: 3 + r.IntN(5)}
			if equal {
				p.negatives = 9 - p.positives
			}
			p.good, p.bad = r.IntN(p.positives+1), r.IntN(p.negatives+1)
			parts = append(parts, p)
		}
		if !slices.ContainsFunc(parts, func(p part) bool { return p.positives > 0 }) {
			continue
		}
		var worst QueryGap
		worst.bound(parts)
		most := 0.0
		orders(parts, func(parts []part) {
			var q QueryGap
			q.bound(parts)
			most = max(most, q.Bound8)
			if q.Bound8 > worst.Worst8+1e-12 || q.Bound9 > worst.Worst9+1e-12 {
				t.Fatalf("%+v: an order gives %v and %v, above the worst case %v and %v", parts, q.Bound8, q.Bound9, worst.Worst8, worst.Worst9)
			}
			if math.Abs(q.Worst8-worst.Worst8)+math.Abs(q.Worst9-worst.Worst9) > 1e-12 {
				t.Fatalf("the worst case depends on the order: %+v and %+v", q, worst)
			}
		})
		if equal && math.Abs(most-worst.Worst8) > 1e-12 {
			t.Fatalf("%+v: the worst order gives %v, want %v", parts, most, worst.Worst8)
		}
	}
}

// TestGapBounds: where every batch is ranked perfectly, the gap stays below the bounds of
// eq. 8 and, if the calibration holds, eq. 9 is below eq. 8.
func TestGapBounds(t *testing.T) {
	r := rng.New(41)
	s := clustered(r, 240, 6, 30, 0.3)
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	batches := RandomBatches(240, 12, 5)
	var last [2]int64
	o := Options{Progress: func(done, total int64) { last = [2]int64{done, total} }}
	got, err := DecomposabilityGap(context.Background(), in, batches, GapOptions{Alpha: 0.9, Beta: 0.6}, o)
	if err != nil {
		t.Fatal(err)
	}
	if last != [2]int64{240 * 240, 240 * 240} {
		t.Errorf("the progress ends at %d of %d pairs", last[0], last[1])
	}
	perfect := 0
	for _, q := range got.PerQuery {
		if q.Lone || q.InBatch < 1 {
			continue
		}
		perfect++
		if gap := q.InBatch - q.AP; gap < -1e-12 || gap > q.Worst8+1e-12 || gap > q.Worst9+1e-12 {
			t.Fatalf("%+v: gap %v", q, gap)
		}
	}
	if perfect < 50 {
		t.Fatalf("only %d queries have perfect batches", perfect)
	}
	t.Logf("DG %.4f, eq. 8 %.4f (worst %.4f), eq. 9 %.4f (worst %.4f), %d perfect", got.DG, got.Bound8, got.Worst8, got.Bound9, got.Worst9, perfect)
	whole := evaluate(t, in, Options{Metrics: metrics("map")})
	if math.Abs(got.AP-whole.Metrics["map"]) > 1e-12 {
		t.Errorf("AP %v, want %v", got.AP, whole.Metrics["map"])
	}
}

func TestGapRefuses(t *testing.T) {
	s := clustered(rng.New(1), 8, 3, 2, 1)
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	for want, batches := range map[string][][]int{
		"row 8":           {{0, 1}, {8}},
		"row -1":          {{0, -1}},
		"row 1 is in":     {{0, 1}, {1, 2}},
		"batch 1 is":      {{0, 1}, {}},
		"nothing to comp": {{3}},
	} {
		_, err := DecomposabilityGap(context.Background(), in, batches, GapOptions{}, Options{})
		if !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", batches, err, want)
		}
	}
	if _, err := DecomposabilityGap(context.Background(), in, RandomBatches(8, 3, 0), GapOptions{}, Options{Distance: L2}); !fault.IsInput(err) {
		t.Errorf("l2: %v", err)
	}
	// A row of 3 numbers is kept in 64 float32s.
	if _, err := DecomposabilityGap(context.Background(), in, RandomBatches(8, 3, 0), GapOptions{}, Options{MemoryBytes: 8 * 64 * 4}); err != nil {
		t.Error(err)
	}
	_, err := DecomposabilityGap(context.Background(), in, RandomBatches(8, 3, 0), GapOptions{}, Options{MemoryBytes: 8*64*4 - 1})
	faulttest.Refused(t, err, "8 rows are kept", "1 MiB")
	for _, g := range []GapOptions{{Alpha: 1.1}, {Alpha: -1.1}, {Beta: 1.1}, {Beta: -1.1}, {Alpha: math.NaN()}} {
		_, err := DecomposabilityGap(context.Background(), in, RandomBatches(8, 3, 0), g, Options{})
		faulttest.Refused(t, err, "give cosines from -1 to 1")
	}
	sizes := fmt.Sprint(func() (n []int) {
		for _, b := range RandomBatches(8, 3, 0) {
			n = append(n, len(b))
		}
		return n
	}())
	if sizes != "[3 3 2]" {
		t.Errorf("random batches of %s rows", sizes)
	}
}
