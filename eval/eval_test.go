package eval

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/eval/rank/ranktest"
	"roadmap/pkg/rng"
	"roadmap/pkg/torch"
)

// set is embeddings with labels.
type set struct {
	rows   [][]float64 // exactly representable in float32
	labels []int64
}

// matrix is the rows as Run takes them.
func (s set) matrix() Matrix {
	var data []float32
	for _, row := range s.rows {
		for _, v := range row {
			data = append(data, float32(v))
		}
	}
	return Float32s(data, len(s.rows[0]))
}

// grid draws rows whose scores are exact in float32, so that ties are many and
// the float64 oracle has no excuse: whole numbers for L2; for cosine -1, 1, as
// many as make the length a power of two, and zeros behind.
func grid(r *rand.Rand, n, dim, classes int, distance Distance) set {
	var s set
	for range n {
		row := make([]float64, dim)
		for k := range row {
			switch {
			case distance == L2:
				row[k] = float64(r.IntN(5) - 2)
			case k < 16:
				row[k] = float64(2*r.IntN(2) - 1)
			}
		}
		s.rows, s.labels = append(s.rows, row), append(s.labels, int64(r.IntN(classes)))
	}
	return s
}

// clustered draws classes around random centres; scores have no ties to speak of.
func clustered(r *rand.Rand, n, dim, classes int, spread float64) set {
	centres := make([][]float64, classes)
	for c := range centres {
		for range dim {
			centres[c] = append(centres[c], r.NormFloat64())
		}
	}
	var s set
	for range n {
		c := r.IntN(classes)
		row := make([]float64, dim)
		for k := range row {
			row[k] = float64(float32(centres[c][k] + spread*r.NormFloat64()))
		}
		s.rows, s.labels = append(s.rows, row), append(s.labels, int64(c))
	}
	return s
}

func scores(distance Distance, query, gallery set) [][]float64 {
	if distance == L2 {
		return ranktest.NegativeL2(query.rows, gallery.rows)
	}
	return ranktest.Cosine(query.rows, gallery.rows)
}

// evaluate evaluates and wants no error.
func evaluate(t *testing.T, in Input, o Options) *Result {
	t.Helper()
	return way{o: o}.evaluate(t, in)
}

// way is options, and the counter where it is not that of the device.
type way struct {
	name string
	o    Options
	by   counterFor
}

func (w way) counter() counterFor {
	if w.by == nil {
		return onDevice(w.o.Device)
	}
	return w.by
}

func (w way) evaluate(t *testing.T, in Input) *Result {
	t.Helper()
	result, err := run(context.Background(), in, w.o, w.counter())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// equalRanks compares rankings item by item.
func equalRanks(t *testing.T, what string, got, want []rank.Query) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rankings, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i].Candidates != want[i].Candidates || !slices.Equal(got[i].Ranks, want[i].Ranks) {
			t.Fatalf("%s: query %d: ranks %v of %d, want %v of %d", what, i, got[i].Ranks, got[i].Candidates, want[i].Ranks, want[i].Candidates)
		}
	}
}

var allMetrics = metrics("r@1", "r@10", "map@r", "rp", "map", "mrr", "p@5")

func metrics(names ...string) []rank.Metric { return must(rank.ParseMetrics(names...)) }

// TestGridAgainstOracle: on scores that float32 holds exactly, full of ties,
// ranks and metrics are the float64 oracle's, to the last bit, at every level and
// however they are computed.
func TestGridAgainstOracle(t *testing.T) {
	for _, distance := range []Distance{Cosine, L2} {
		for _, ties := range []rank.Ties{rank.ByIndex, rank.Pessimistic, rank.Optimistic} {
			for _, test := range []struct{ queries, gallery, dim, classes int }{
				{520, 0, 16, 40}, {300, 555, 20, 9}, {40, 0, 33, 1}, {2, 0, 16, 1}, {1, 15, 64, 2}, {515, 0, 24, 400}, {333, 0, 16, 3},
			} {
				t.Run(fmt.Sprintf("%s/%s/%d-%d", distance, ties, test.queries, test.gallery), func(t *testing.T) {
					r := rng.New(7, uint64(test.queries))
					query := grid(r, test.queries, test.dim, test.classes, distance)
					in := Input{Query: query.matrix(), QueryLabels: query.labels}
					gallery := query
					if test.gallery > 0 {
						gallery = grid(r, test.gallery, test.dim, test.classes, distance)
						in.Gallery, in.GalleryLabels = gallery.matrix(), gallery.labels
					}
					other := Level{"other", shifted(query.labels), nil}
					if test.gallery > 0 {
						other.Gallery = shifted(gallery.labels)
					}
					in.Levels = []Level{other}
					all := scores(distance, query, gallery)
					want := ranktest.Queries(all, ranktest.Relevant(query.labels, gallery.labels), test.gallery == 0, ties)
					wantOther := ranktest.Queries(all, ranktest.Relevant(shifted(query.labels), shifted(gallery.labels)), test.gallery == 0, ties)
					k := fmt.Sprintf("r@%d", want[0].Candidates)
					values, err := rank.Evaluate(context.Background(), want, metrics("mrr", "map@r", "map", k), rank.Options{Lone: rank.Zero})
					if err != nil {
						t.Fatal(err)
					}
					for _, w := range append(onTensors(), way{name: "plain"}) {
						w.o.Metrics, w.o.Ties, w.o.Distance, w.o.Lone = metrics("mrr", "map@r", "map", k), ties, distance, rank.Zero
						got := w.evaluate(t, in)
						equalRanks(t, w.name, got.Levels[0].Rankings, want)
						equalRanks(t, w.name+", the other level", got.Levels[1].Rankings, wantOther)
						for _, v := range values.Values {
							if got.Metrics[v.Metric.String()] != v.Mean {
								t.Errorf("%s: %v: %v, want %v", w.name, v.Metric, got.Metrics[v.Metric.String()], v.Mean)
							}
						}
					}
				})
			}
		}
	}
}

// shifted is labels that go across others: two classes of three, and half of the third.
func shifted(labels []int64) []int64 {
	out := make([]int64, len(labels))
	for i, l := range labels {
		out[i] = (l + int64(i/2%2)) % 3 * 2
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestNothingChangesTheResult: memory, threads, precision and further levels
// give the same ranks, whatever the distribution of the scores.
func TestNothingChangesTheResult(t *testing.T) {
	for _, distance := range []Distance{Cosine, L2} {
		for _, spread := range []float64{0.3, 4} {
			for _, classes := range []int{3, 40, 300} {
				r := rng.New(11, uint64(classes))
				s := clustered(r, 700, 72, classes, spread)
				in := Input{Query: s.matrix(), QueryLabels: s.labels}
				base := Options{Metrics: allMetrics, Distance: distance, Threads: 1}
				want := evaluate(t, in, base)
				if want.Pairs.Exact > 0 && knn.Processor() >= knn.AMX && classes == 300 && spread < 1 {
					t.Errorf("%s, %d classes: %+v: a tile that screening serves was computed in float32", distance, classes, want.Pairs)
				}
				coarse := make([]int64, len(s.labels))
				for i, l := range s.labels {
					coarse[i] = l % 2
				}
				changes := map[string]func(w *way, in *Input){
					"float32":                  func(w *way, _ *Input) { w.o.Float32 = true },
					"three threads":            func(w *way, _ *Input) { w.o.Threads = 3 },
					"tensor operations":        func(w *way, _ *Input) { w.by = tensors(100_000, mostOpen) },
					"tensors, rows made anew":  func(w *way, _ *Input) { w.by = tensors(1<<20, mostOpen); w.o.MemoryBytes = 700 * 72 * 4 },
					"rows made anew":           func(w *way, _ *Input) { w.o.MemoryBytes = 700 * 72 * 4 },
					"divided":                  func(w *way, _ *Input) { w.o.MemoryBytes = int64(700/classes) * 700 * 16 / 7; w.o.Threads = 2 },
					"query set is the gallery": func(_ *way, in *Input) { in.Levels = []Level{{"half", coarse, nil}} },
				}
				gpus, _ := torch.CUDADevices()
				for _, gpu := range gpus[:min(1, len(gpus))] {
					changes["GPU"] = func(w *way, _ *Input) { w.o.Device = gpu }
				}
				for name, change := range changes {
					w, changed := way{o: base}, in
					change(&w, &changed)
					got := w.evaluate(t, changed)
					equalRanks(t, fmt.Sprintf("%s, spread %v, %d classes, %s", distance, spread, classes, name), got.Levels[0].Rankings, want.Levels[0].Rankings)
					for k, v := range want.Metrics {
						if got.Metrics[k] != v {
							t.Errorf("%s: %s is %v, want %v", name, k, got.Metrics[k], v)
						}
					}
					if len(changed.Levels) > 0 {
						half := w.evaluate(t, Input{Query: in.Query, QueryLabels: coarse})
						equalRanks(t, "further level", got.Levels[1].Rankings, half.Levels[0].Rankings)
					}
				}
				if got, all := slices.Collect(maps.Keys(want.Metrics)), allMetrics; len(got) != len(all) {
					t.Errorf("metrics %v, want %v", got, all)
				}
			}
		}
	}
}
