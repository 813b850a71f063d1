package knn

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"roadmap/pkg/rng"
)

// exactScore is the definition of a score, one rounding at a time: 16 lanes of
// fused multiply-adds, then pairs of lanes 8, 4, 2 and 1 apart.
func exactScore(a, b []float32, l2 bool) float32 {
	var lane [16]float32
	for k := range a {
		x, y := a[k], b[k]
		if l2 {
			x -= y
			y = x
		}
		exact := new(big.Float).SetPrec(600).SetFloat64(float64(x) * float64(y)) // products of float32 are exact in float64
		exact.Add(exact, big.NewFloat(float64(lane[k%16])))
		lane[k%16], _ = exact.Float32()
	}
	for half := 8; half > 0; half /= 2 {
		for l := range half {
			lane[l] += lane[l+half]
		}
	}
	if l2 {
		return -lane[0]
	}
	return lane[0]
}

// instructionSets are those of this machine.
func instructionSets() []ISA {
	var all []ISA
	for i := Baseline; i <= Processor(); i++ {
		all = append(all, i)
	}
	return all
}

// filled is rows as k compares them.
func filled(t *testing.T, k *Scorer, rows []float32) *Rows {
	t.Helper()
	r, err := k.Rows(len(rows) / k.dim)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	longest, err := r.Fill(0, rows)
	if err != nil {
		t.Fatal(err)
	}
	k.Extend(longest)
	return r
}

// TestScore: every level computes the one defined score of a pair, to the
// bit, wherever in a tile the pair stands.
func TestScore(t *testing.T) {
	for _, dim := range []int{1, 5, 64, 100, 257} {
		for _, l2 := range []bool{false, true} {
			random := rng.New(3, uint64(dim))
			rows := make([]float32, 21*dim)
			for i := range rows {
				rows[i] = float32(random.NormFloat64() * math.Exp(3*random.NormFloat64()))
			}
			copy(rows[20*dim:], rows[3*dim:4*dim]) // row 20 is row 3
			for _, isa := range instructionSets() {
				k := New(Options{Dim: dim, L2: l2, ISA: isa})
				r := filled(t, k, rows)
				scores := make([]float32, 21*21)
				if err := k.Scores(r.Side(0, 21, 0), r.Side(0, 21, 0), scores); err != nil {
					t.Fatal(err)
				}
				a, b := make([]float32, dim), make([]float32, dim)
				for i := range 21 {
					r.Read(i, a)
					if !l2 {
						length := 0.0
						for j := range a {
							length += float64(a[j]) * float64(a[j])
						}
						if math.Abs(length-1) > 1e-6 {
							t.Fatalf("dim %d: row %d has length² %v", dim, i, length)
						}
					}
					for j := range 21 {
						r.Read(j, b)
						if got, want := scores[i*21+j], exactScore(a, b, l2); got != want {
							t.Fatalf("dim %d, L2 %v, %v: pair %d, %d: %v, want %v", dim, l2, isa, i, j, got, want)
						}
						if one := k.Pair(r.Side(0, 21, 0), i, r.Side(0, 21, 0), j); one != scores[i*21+j] {
							t.Fatalf("%v: pair %d, %d alone: %v, in a tile %v", isa, i, j, one, scores[i*21+j])
						}
					}
					if scores[i*21+3] != scores[i*21+20] {
						t.Fatalf("%v: equal rows 3 and 20 have scores %v and %v with %d", isa, scores[i*21+3], scores[i*21+20], i)
					}
				}
			}
		}
	}
}

// hard are rows that try the bound of the screen: of one large element, of very
// different lengths, sparse, nearly equal, of rising denormals, and of so few
// numbers that many scores are equal.
func hard(n, dim int, kind string) []float32 {
	random := rng.New(5, uint64(len(kind)), uint64(dim))
	rows := make([]float32, n*dim)
	for i := range n {
		row := rows[i*dim : (i+1)*dim]
		length := math.Exp(4 * random.NormFloat64())
		for k := range row {
			v := random.NormFloat64()
			switch kind {
			case "spiked":
				if k == 0 {
					v *= 300
				}
			case "lengths":
				v *= length
			case "sparse":
				if random.IntN(10) > 0 {
					v = 0
				}
			case "nearly equal":
				v = math.Sin(float64(k)) + 1e-4*v
			case "tiny":
				v *= 1e-38
			case "ties":
				v = float64(random.IntN(3) - 1)
			}
			row[k] = float32(v)
		}
		if row[0] == 0 {
			row[0] = 1e-3
		}
	}
	return rows
}

// TestCount: whatever the level and with or without the screen, as many
// items rank before each wanted one as the exact scores say.
func TestCount(t *testing.T) {
	const wanted = 3
	for _, kind := range []string{"plain", "spiked", "lengths", "sparse", "nearly equal", "tiny", "ties"} {
		for _, dim := range []int{3, 130, 512} {
			for _, l2 := range []bool{false, true} {
				pairs := checkCounts(t, hard(370, dim, kind), kind, dim, l2, 70, wanted)
				if kind == "plain" && dim == 512 && Processor() >= AMX && (pairs.Screened == 0 || pairs.Settled > pairs.Screened/10) { // of 6 comparisons a pair
					t.Errorf("L2 %v: %+v: the screen leaves more open than it should", l2, pairs)
				}
			}
		}
	}
}

// TestCountOfMany: likewise where a query wants so many items that scores are
// placed among them by bisection, at every number at which that takes another
// course.
func TestCountOfMany(t *testing.T) {
	const dim = 130
	for _, kind := range []string{"plain", "lengths", "nearly equal", "ties"} {
		rows := hard(430, dim, kind)
		for _, wanted := range []int{31, 32, 33, 62, 63, 64, 94, 95, 160} {
			checkCounts(t, rows, kind, dim, wanted%2 == 0, 171, wanted)
		}
	}
}

// checkCounts compares rows below moving with the others at every level and
// gives the pairs of the last one that screens.
func checkCounts(t *testing.T, rows []float32, kind string, dim int, l2 bool, moving, wanted int) (screened Pairs) {
	t.Helper()
	var want []int32
	for _, isa := range instructionSets() {
		for _, exact := range []bool{true, false} {
			k := New(Options{Dim: dim, L2: l2, ISA: isa, Exact: exact})
			if !exact && !k.Screens() {
				continue
			}
			r := filled(t, k, rows)
			got, pairs := countAll(t, k, r, moving, wanted)
			if want == nil {
				want = countSlowly(t, k, r, moving, wanted)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s, dim %d, L2 %v, %d wanted, %v, exact %v: other counts than the scores'", kind, dim, l2, wanted, isa, exact)
			}
			if !exact {
				screened = pairs
			}
		}
	}
	return screened
}

// wantedOf takes, for every row as a query, the scores of items 7, 7+1, … of the
// other side as thresholds.
func wantedOf(t *testing.T, k *Scorer, queries, others Side, wanted int) Wanted {
	t.Helper()
	w := Wanted{Start: []int64{0}}
	for i := range queries.Len() {
		var items []Neighbour
		for p := range wanted {
			items = append(items, Neighbour{k.Pair(queries, i, others, 7+p), int32(7 + p)})
		}
		slices.SortFunc(items, func(a, b Neighbour) int {
			if a.Score != b.Score {
				return int(math.Copysign(1, float64(b.Score)-float64(a.Score)))
			}
			return int(a.Item - b.Item)
		})
		for _, f := range items {
			w.Score, w.Item = append(w.Score, f.Score), append(w.Item, f.Item)
		}
		w.Start = append(w.Start, int64(len(w.Item)))
	}
	w.Count = make([]int32, len(w.Item))
	return w
}

// countAll counts for both sides: rows below moving with the others.
func countAll(t *testing.T, k *Scorer, r *Rows, moving, wanted int) ([]int32, Pairs) {
	t.Helper()
	n := r.capacity
	block, err := k.Block(n - moving)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	if err := block.Set(r.Side(moving, n, 0)); err != nil {
		t.Fatal(err)
	}
	worker, err := k.Worker()
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	side := r.Side(0, moving, 0)
	byMoving, byFixed := wantedOf(t, k, side, block.Side(), wanted), wantedOf(t, k, block.Side(), side, wanted)
	for _, cut := range [][2]int{{0, 256}, {256, n - moving}} {
		if err := worker.Count(side, block, cut[0], cut[1], []Wanted{byMoving}, []Wanted{byFixed}); err != nil {
			t.Fatal(err)
		}
	}
	byMoving.Total()
	byFixed.Total()
	var pairs Pairs
	worker.Add(&pairs)
	return append(byMoving.Count, byFixed.Count...), pairs
}

func countSlowly(t *testing.T, k *Scorer, r *Rows, moving, wanted int) []int32 {
	t.Helper()
	sides := []Side{r.Side(0, moving, 0), r.Side(moving, r.capacity, 0)}
	var counts []int32
	for s, queries := range sides {
		others := sides[1-s]
		w := wantedOf(t, k, queries, others, wanted)
		for i := range queries.Len() {
			scores := make([]float32, others.Len())
			for j := range scores {
				scores[j] = k.Pair(queries, i, others, j)
			}
			for p := w.Start[i]; p < w.Start[i+1]; p++ {
				before := int32(0)
				for j, score := range scores {
					if score > w.Score[p] || score == w.Score[p] && int32(j) < w.Item[p] {
						before++
					}
				}
				counts = append(counts, before)
			}
		}
	}
	return counts
}

// TestLimits: where items of another label have limits, tiles, single pairs and
// places found elsewhere count what the definition says.
func TestLimits(t *testing.T) {
	const n, queries, dim = 300, 40, 8
	rows := hard(n, dim, "ties")
	label, other := make([]int64, queries), make([]int64, n)
	for i := range other {
		other[i] = int64(i % 3)
	}
	for i := range label {
		label[i] = int64(i % 3)
	}
	for name, limit := range map[string]func(item int32) int32{
		"none":   nil,
		"lower":  func(int32) int32 { return 0 },
		"higher": func(int32) int32 { return math.MaxInt32 },
		"middle": func(int32) int32 { return n / 2 },
	} {
		for _, wanted := range []int{3, 32, 33, 100} {
			for _, isa := range instructionSets() {
				k := New(Options{Dim: dim, ISA: isa})
				r := filled(t, k, rows)
				side, all := r.Side(0, queries, 0), r.Side(0, n, 0)
				w := wantedOf(t, k, side, all, wanted)
				if limit != nil {
					w.Label, w.Other = label, other
					for _, item := range w.Item {
						w.Limit = append(w.Limit, limit(item))
					}
				}
				want, places := countByDefinition(k, side, all, w)
				block := blockOf(t, k, all)
				worker, err := k.Worker()
				if err != nil {
					t.Fatal(err)
				}
				if err := worker.Count(side, block, 0, n, []Wanted{w}, nil); err != nil {
					t.Fatal(err)
				}
				worker.Close()
				w.Total()
				if !slices.Equal(w.Count, want) {
					t.Fatalf("%s, %d wanted, %v: tiles count %v, want %v", name, wanted, isa, w.Count, want)
				}
				clear(w.Count)
				var pairs []int64
				for p := range int64(queries * n) {
					pairs = append(pairs, p)
				}
				if err := k.CountPairs(side, all, &w, pairs); err != nil {
					t.Fatal(err)
				}
				w.Total()
				if !slices.Equal(w.Count, want) {
					t.Fatalf("%s, %d wanted, %v: single pairs count %v, want %v", name, wanted, isa, w.Count, want)
				}
				clear(w.Count)
				for i := range queries {
					w.NotePlaces(i, places[i])
				}
				w.Total()
				if !slices.Equal(w.Count, want) {
					t.Fatalf("%s, %d wanted: places count %v, want %v", name, wanted, w.Count, want)
				}
			}
		}
	}
}

// countByDefinition counts what ranks before each wanted item, and how many
// items have each wanted one as the first that they rank before.
func countByDefinition(k *Scorer, queries, others Side, w Wanted) (counts []int32, places [][]int32) {
	for i := range queries.Len() {
		from, to := w.Start[i], w.Start[i+1]
		at := make([]int32, to-from)
		before := make([]int32, to-from)
		for j := range others.Len() {
			score, first := k.Pair(queries, i, others, j), -1
			for p := range before {
				limit := w.Item[from+int64(p)]
				if w.Limit != nil && w.Label[i] != w.Other[j] {
					limit = w.Limit[from+int64(p)]
				}
				if other := w.Score[from+int64(p)]; score > other || score == other && int32(j) < limit {
					before[p]++
					if first < 0 {
						first = p
					}
				}
			}
			if first >= 0 {
				at[first]++
			}
		}
		counts, places = append(counts, before...), append(places, at)
	}
	return counts, places
}

// blockOf is a block of a side.
func blockOf(t *testing.T, k *Scorer, side Side) *Block {
	t.Helper()
	block, err := k.Block(side.Len())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(block.Close)
	if err := block.Set(side); err != nil {
		t.Fatal(err)
	}
	return block
}

// TestSearch: the best k of every query are those of the sorted scores.
func TestSearch(t *testing.T) {
	const n, queries = 700, 90
	rows := hard(n, 64, "plain")
	for i := 0; i < n; i += 3 { // many ties
		copy(rows[i*64:(i+1)*64], rows[(i%30)*64:])
	}
	for _, isa := range instructionSets() {
		for _, k := range []int{1, 10, n - 1} {
			knn := New(Options{Dim: 64, ISA: isa})
			r := filled(t, knn, rows)
			best := NewBest(k, queries, true)
			worker, err := knn.Worker()
			if err != nil {
				t.Fatal(err)
			}
			block, err := knn.Block(400)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range [][2]int{{0, 400}, {400, n}} {
				if err := block.Set(r.Side(cut[0], cut[1], cut[0])); err != nil {
					t.Fatal(err)
				}
				if err := worker.Search(r.Side(0, queries, 0), block, best, 0); err != nil {
					t.Fatal(err)
				}
			}
			all := r.Side(0, n, 0)
			for i := range queries {
				var want []Neighbour
				for j := range n {
					if j != i {
						want = append(want, Neighbour{knn.Pair(all, i, all, j), int32(j)})
					}
				}
				slices.SortStableFunc(want, func(a, b Neighbour) int {
					switch {
					case a.Score > b.Score:
						return -1
					case a.Score < b.Score:
						return 1
					}
					return 0
				})
				if got := best.Sorted(i); !slices.Equal(got, want[:k]) {
					t.Fatalf("%v, k %d, query %d: %v, want %v", isa, k, i, got, want[:k])
				}
			}
			block.Close()
			worker.Close()
		}
	}
}

func TestBadRows(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, test := range []struct {
		rows []float32
		l2   bool
		row  int // -1: none
	}{
		{[]float32{1, 2, 3, nan}, false, 1},
		{[]float32{inf, 2, 3, 4}, true, 0},
		{[]float32{1, 2, 0, 0, 3, nan}, false, 1},
		{[]float32{0, 0, 1, 1}, true, -1},
		{[]float32{1, 1, 0, 3e18}, true, 1},
		{[]float32{3e38, 3e38, 1e-42, 0}, false, -1},
	} {
		for _, isa := range instructionSets() {
			k := New(Options{Dim: 2, L2: test.l2, ISA: isa})
			r, err := k.Rows(3)
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Fill(0, test.rows)
			var bad *BadRow
			if errors.As(err, &bad) != (test.row >= 0) || bad != nil && bad.Row != test.row {
				t.Errorf("%v, %v, L2 %v: %v, want row %d", isa, test.rows, test.l2, err, test.row)
			}
			r.Close()
		}
	}
}

// TestRefuses: arguments that do not fit together never reach the kernels.
func TestRefuses(t *testing.T) {
	k := New(Options{Dim: 2})
	r := filled(t, k, []float32{1, 2, 3, 4, 5, 6})
	block, err := k.Block(2)
	if err != nil {
		t.Fatal(err)
	}
	defer block.Close()
	worker, err := k.Worker()
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	if err := block.Set(r.Side(1, 3, 1)); err != nil {
		t.Fatal(err)
	}
	side, whole := r.Side(0, 3, 0), []int64{0, 1, 1, 1}
	_, fillError := r.Fill(2, []float32{1, 2, 3, 4})
	for name, err := range map[string]error{
		"fill past the end": fillError,
		"block too large":   block.Set(side),
		"scores too few":    k.Scores(side, side, make([]float32, 8)),
		"past the block":    worker.Count(side, block, 0, 3, nil, nil),
		"not a whole tile":  worker.Count(side, block, 1, 2, nil, nil),
		"short start":       worker.Count(side, block, 0, 2, []Wanted{{Start: whole[:3]}}, nil),
		"short lists":       worker.Count(side, block, 0, 2, []Wanted{{Start: whole}}, nil),
		"no labels":         worker.Count(side, block, 0, 2, []Wanted{{Start: whole, Score: []float32{0}, Item: []int32{0}, Limit: []int32{0}, Count: []int32{0}}}, nil),
		"no such pair":      k.CountPairs(side, side, &Wanted{Start: make([]int64, 4)}, []int64{9}),
		"too few queries":   worker.Search(side, block, NewBest(1, 2, false), 0),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkTile(b *testing.B) {
	const dim, n = 512, 4096
	rows := hard(n, dim, "plain")
	for _, isa := range instructionSets()[1:] {
		for _, exact := range []bool{false, true} {
			k := New(Options{Dim: dim, ISA: isa, Exact: exact})
			if !exact && !k.Screens() {
				continue
			}
			b.Run(fmt.Sprintf("%v/exact=%v", isa, exact), func(b *testing.B) {
				r, err := k.Rows(n)
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				longest, err := r.Fill(0, rows)
				if err != nil {
					b.Fatal(err)
				}
				k.Extend(longest)
				block, err := k.Block(n)
				if err != nil {
					b.Fatal(err)
				}
				defer block.Close()
				if err := block.Set(r.Side(0, n, 0)); err != nil {
					b.Fatal(err)
				}
				worker, err := k.Worker()
				if err != nil {
					b.Fatal(err)
				}
				defer worker.Close()
				side := r.Side(0, TileRows, 0)
				w := Wanted{Start: make([]int64, TileRows+1), Count: make([]int32, TileRows)}
				for i := range TileRows {
					w.Start[i+1] = int64(i + 1)
					w.Score, w.Item = append(w.Score, 0.1), append(w.Item, 0)
				}
				for b.Loop() {
					if err := worker.Count(side, block, 0, n, []Wanted{w}, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(TileRows*n), "ns/pair")
			})
		}
	}
}
