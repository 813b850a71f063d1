package eval

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"roadmap/eval/rank"
	"roadmap/eval/rank/ranktest"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/rng"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// TestReference compares with pytorch-metric-learning's AccuracyCalculator
// (rank/testdata/reference.py), from embeddings to metrics.
func TestReference(t *testing.T) {
	data, err := os.ReadFile("rank/testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Gallery, Queries [][]float64
		Labels           []int64
		QueryLabels      []int64 `json:"query_labels"`
		Metrics          map[string]float64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 5 {
		t.Fatalf("%d cases", len(cases))
	}
	for name, c := range cases {
		in := Input{Query: set{rows: c.Gallery}.matrix(), QueryLabels: c.Labels}
		if c.Queries != nil {
			in = Input{Query: set{rows: c.Queries}.matrix(), QueryLabels: c.QueryLabels, Gallery: in.Query, GalleryLabels: c.Labels}
		}
		got := evaluate(t, in, Options{Metrics: metrics(slices.Collect(maps.Keys(c.Metrics))...), Distance: L2})
		for metric, want := range c.Metrics {
			tolerance := 1e-12
			if metric == "mrr" { // the peer's is a float32
				tolerance = 1e-7
			}
			if math.Abs(got.Metrics[metric]-want) > tolerance {
				t.Errorf("%s: %s is %v, want %v", name, metric, got.Metrics[metric], want)
			}
		}
	}
}

// TestByHand: three rows on a line, one alone.
func TestByHand(t *testing.T) {
	in := Input{Query: Float32s([]float32{0, 1, 3, 7}, 1), QueryLabels: []int64{1, 2, 1, 3}}
	got := evaluate(t, in, Options{Metrics: metrics("r@1", "r@2", "r@3", "map"), Distance: L2})
	// Row 0 ranks 1, 3, 7: its positive 3 stands second. Row 2 (at 3) ranks 1, 0, 7 by
	// distances 2, 3, 4: its positive 0 stands second. Rows 1 and 3 are lone.
	want := map[string]float64{"r@1": 0, "r@2": 1, "r@3": 1, "map": (1./2 + 1./2) / 2}
	for k, v := range want {
		if got.Metrics[k] != v {
			t.Errorf("%s is %v, want %v", k, got.Metrics[k], v)
		}
	}
	if got.Lone != 2 || got.Queries != 4 || got.Gallery != 4 || got.Dim != 1 {
		t.Errorf("%+v", got)
	}
	zero := evaluate(t, in, Options{Metrics: metrics("map"), Distance: L2, Lone: rank.Zero})
	if zero.Metrics["map"] != (1./2+1./2)/4 {
		t.Errorf("lone queries as zero: %v", zero.Metrics)
	}
	first := got.Levels[0].Report.First
	if len(first) == 0 || first[0].Rank != 2 {
		t.Errorf("quantiles of the first rank: %v", first)
	}
}

// TestInvariances: the order of the rows, their lengths (cosine), a common factor
// (L2) and the names of the labels have no influence; a copy of every row, as a
// gallery, is found first by its original.
func TestInvariances(t *testing.T) {
	r := rng.New(17)
	s := clustered(r, 500, 40, 60, 2)
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	for _, distance := range []Distance{Cosine, L2} {
		o := Options{Metrics: allMetrics, Distance: distance}
		want := evaluate(t, in, o)
		changed := set{}
		for _, i := range r.Perm(len(s.rows)) {
			factor := 4.0 // of all distances alike
			if distance == Cosine {
				factor = math.Ldexp(1, r.IntN(9)-4)
			}
			row := make([]float64, len(s.rows[i]))
			for k, v := range s.rows[i] {
				row[k] = v * factor
			}
			changed.rows, changed.labels = append(changed.rows, row), append(changed.labels, s.labels[i]*7-3)
		}
		got := evaluate(t, Input{Query: changed.matrix(), QueryLabels: changed.labels}, o)
		for k, v := range want.Metrics {
			if math.Abs(got.Metrics[k]-v) > 1e-5 { // a few scores are equal in float32, and go by index
				t.Errorf("%s: %s is %v after reordering, was %v", distance, k, got.Metrics[k], v)
			}
		}
		own := make([]int64, len(s.rows))
		for i := range own {
			own[i] = int64(i)
		}
		copies := evaluate(t, Input{Query: in.Query, QueryLabels: own, Gallery: in.Query, GalleryLabels: own}, Options{Metrics: metrics("r@1", "map"), Distance: distance})
		if copies.Metrics["r@1"] != 1 || copies.Metrics["map"] != 1 {
			t.Errorf("%s: copies are not found first: %v", distance, copies.Metrics)
		}
	}
}

// TestTypes: float16, float64 and big-endian files hold the same embeddings.
func TestStoredTypes(t *testing.T) {
	s := grid(rng.New(2), 60, 16, 5, L2)
	var doubles []float64
	var floats []float32
	for _, row := range s.rows {
		for _, v := range row {
			doubles, floats = append(doubles, v), append(floats, float32(v))
		}
	}
	want := evaluate(t, Input{Query: s.matrix(), QueryLabels: s.labels}, Options{Distance: L2})
	for name, tensor := range map[string]tensorio.Tensor{
		"float64": tensorio.Of(doubles, 60, 16),
		"float32": tensorio.Of(floats, 60, 16),
	} {
		got := evaluate(t, Input{Query: Stored(name, tensor), QueryLabels: s.labels}, Options{Distance: L2})
		equalRanks(t, name, got.Levels[0].Rankings, want.Levels[0].Rankings)
	}
}

func TestBadInput(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	good := func() Input {
		return Input{Query: Float32s([]float32{1, 0, 0, 1, 1, 1, 2, 1}, 2), QueryLabels: []int64{1, 2, 1, 2}}
	}
	file := func(data []float32) Matrix { return Stored("rows.npy", tensorio.Of(data, len(data)/2, 2)) }
	for name, test := range map[string]struct {
		change func(in *Input, o *Options)
		want   string
	}{
		"nan":            {func(in *Input, _ *Options) { in.Query = file([]float32{1, 0, 0, 1, 1, nan, nan, 1}) }, "rows.npy: row 2 has a NaN"},
		"infinity":       {func(in *Input, _ *Options) { in.Query = file([]float32{1, 0, 0, inf, 1, 1, 2, 1}) }, "rows.npy: row 1"},
		"nan in gallery": {func(in *Input, _ *Options) { in.Gallery, in.GalleryLabels = file([]float32{nan, 1}), []int64{1} }, "rows.npy: row 0"},
		"zero row":       {func(in *Input, _ *Options) { in.Query = file([]float32{1, 0, 0, 0, 1, 1, 2, 1}) }, "row 1 is all zeros"},
		"too long":       {func(in *Input, o *Options) { in.Query, o.Distance = file([]float32{1, 0, 0, 2e18, 1, 1, 2, 1}), L2 }, "row 1 is longer"},
		"width": {func(in *Input, _ *Options) {
			in.Gallery, in.GalleryLabels = Float32s([]float32{1, 2, 3}, 3), []int64{1}
		}, "rows of 2 numbers"},
		"labels":          {func(in *Input, _ *Options) { in.QueryLabels = []int64{1, 2, 1} }, "4 rows but 3 labels"},
		"gallery labels":  {func(in *Input, _ *Options) { in.Gallery = in.Query }, "4 rows but 0 labels"},
		"level":           {func(in *Input, _ *Options) { in.Levels = []Level{{"super", []int64{1}, nil}} }, "4 rows but 1 super labels"},
		"level's gallery": {func(in *Input, _ *Options) { in.Levels = []Level{{"super", make([]int64, 4), []int64{1}}} }, "without a gallery"},
		"no rows":         {func(in *Input, _ *Options) { in.Query = Float32s(nil, 2) }, "there are none"},
		"no matrix":       {func(in *Input, _ *Options) { in.Query = nil }, "there are none"},
		"no width":        {func(in *Input, _ *Options) { in.Query = Float32s(nil, 0) }, "there are none"},
		"one row":         {func(in *Input, _ *Options) { in.Query, in.QueryLabels = Float32s([]float32{1, 2}, 2), []int64{1} }, "nothing to be compared"},
		"empty gallery":   {func(in *Input, _ *Options) { in.Gallery = Float32s(nil, 2) }, "gallery embeddings: there are none"},
		"k too large":     {func(_ *Input, o *Options) { o.Metrics = metrics("r@4") }, "3 candidates"},
		"lone":            {func(_ *Input, o *Options) { o.Lone = "one" }, "give skip or zero"},
		"ties":            {func(_ *Input, o *Options) { o.Ties = "random" }, "ties"},
		"distance":        {func(_ *Input, o *Options) { o.Distance = "l1" }, "l1"},
		"bootstrap":       {func(_ *Input, o *Options) { o.Bootstrap = -1 }, "bootstrap"},
		"too many":        {func(_ *Input, o *Options) { o.Bootstrap = math.MaxInt }, "bootstrap"},
		"all lone":        {func(in *Input, _ *Options) { in.QueryLabels = []int64{1, 2, 3, 4} }, "all 4 queries are lone"},
	} {
		t.Run(name, func(t *testing.T) {
			in, o := good(), Options{}
			test.change(&in, &o)
			_, err := Run(context.Background(), in, o)
			if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v (input: %v), want one of the input that says %q", err, fault.IsInput(err), test.want)
			}
		})
	}
	if result := evaluate(t, good(), Options{Metrics: metrics("r@3")}); result.Metrics["r@3"] != 1 {
		t.Errorf("K = all candidates: %v", result.Metrics)
	}
}

// TestBadRowIsTheFiles: the row that an error names is the file's, wherever the
// evaluation has it, kept or made anew.
func TestBadRowIsTheFiles(t *testing.T) {
	const n, bad = 700, 613
	s := clustered(rng.New(3), n, 4, 40, 1)
	s.rows[bad][2] = math.NaN()
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	for _, o := range []Options{{}, {MemoryBytes: 1}, {Threads: 1}} {
		_, err := Run(context.Background(), in, o)
		faulttest.Refused(t, err, "row 613 has a NaN")
		_, err = (&VehicleID{Repeats: 2}).Run(context.Background(), in, o)
		faulttest.Refused(t, err, "row 613 has a NaN")
		_, err = BatchCurve(context.Background(), in, []int{n - 1}, 2, o) // both leave out another row
		faulttest.Refused(t, err, "row 613 has a NaN")
		if o.MemoryBytes == 0 { // the gap keeps all rows
			_, err = DecomposabilityGap(context.Background(), in, RandomBatches(n, 50, 1), GapOptions{}, o)
			faulttest.Refused(t, err, "row 613 has a NaN")
		}
	}
}

// TestInterrupted: the work stops when its context ends.
func TestInterrupted(t *testing.T) {
	s := clustered(rng.New(1), 3000, 64, 40, 2)
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	live := torch.Live()
	for _, w := range []way{{name: "CPU"}, {name: "tensors", by: tensors(100_000, mostOpen)}} {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		w.o.Threads = 2
		w.o.Progress = func(done, total int64) {
			if calls++; done > total {
				t.Errorf("%d of %d pairs", done, total)
			}
			cancel()
		}
		_, err := run(ctx, in, w.o, w.counter())
		if !errors.Is(err, context.Canceled) || calls > 4 {
			t.Errorf("%s: error %v after %d tiles", w.name, err, calls)
		}
	}
	if now := torch.Live(); now != live {
		t.Errorf("%d handles are left", now-live)
	}
}

// TestProgress: it ends at its total.
func TestProgress(t *testing.T) {
	s := clustered(rng.New(1), 700, 8, 40, 2)
	for _, w := range []way{{name: "plain"}, {name: "little memory", o: Options{MemoryBytes: 30000}}, {name: "tensors", by: tensors(100_000, mostOpen)}} {
		var last [2]int64
		w.o.Progress = func(done, total int64) { last = [2]int64{done, total} }
		w.evaluate(t, Input{Query: s.matrix(), QueryLabels: s.labels})
		if last[0] != last[1] || last[0] == 0 {
			t.Errorf("%s: ends at %d of %d pairs", w.name, last[0], last[1])
		}
	}
}

// TestSearchAgainstOracle: neighbours are those of the sorted float64 scores,
// whose ties are exact, for every k and however the work is divided.
func TestSearchAgainstOracle(t *testing.T) {
	ways := []way{{}, {o: Options{MemoryBytes: 60000}}, {by: tensors(30_000, mostOpen)}, {by: tensors(1<<20, mostOpen), o: Options{MemoryBytes: 60000}}}
	gpus, _ := torch.CUDADevices()
	for _, gpu := range gpus[:min(1, len(gpus))] {
		ways = append(ways, way{o: Options{Device: gpu}})
	}
	for _, distance := range []Distance{Cosine, L2} {
		query, gallery := grid(rng.New(4), 310, 20, 3, distance), grid(rng.New(5), 420, 20, 3, distance)
		for _, same := range []bool{false, true} {
			other := gallery
			if same {
				other = query
			}
			all := scores(distance, query, other)
			for _, k := range []int{1, 7, 100, len(other.rows) - 1} {
				for _, w := range ways {
					w.o.Distance, w.o.Threads = distance, 3
					next := 0
					var in Matrix
					if !same {
						in = gallery.matrix()
					}
					err := search(context.Background(), query.matrix(), in, k, w.o, w.counter(), func(i int, found []Neighbour) error {
						own := ranktest.None
						if same {
							own = i
						}
						order := ranktest.Order(all[i], make([]bool, len(all[i])), own, rank.ByIndex)[:k]
						if i != next || len(found) != k {
							t.Fatalf("query %d with %d neighbours, want %d with %d", i, len(found), next, k)
						}
						next++
						for n, f := range found {
							if int(f.Item) != order[n] || float64(f.Score) != all[i][order[n]] {
								t.Fatalf("%s, k %d, query %d, neighbour %d: %+v, want item %d of score %v", distance, k, i, n, f, order[n], all[i][order[n]])
							}
						}
						return nil
					})
					if err != nil || next != len(query.rows) {
						t.Fatalf("%v after %d queries", err, next)
					}
				}
			}
		}
	}
}

func TestSearchRefuses(t *testing.T) {
	m := Float32s([]float32{1, 0, 0, 1, 1, 1}, 2)
	never := func(int, []Neighbour) error { t.Error("found something"); return nil }
	for _, k := range []int{0, -1, 3} {
		if err := Search(context.Background(), m, nil, k, Options{}, never); !fault.IsInput(err) {
			t.Errorf("k %d: %v", k, err)
		}
	}
	if err := Search(context.Background(), m, Float32s([]float32{1}, 1), 1, Options{}, never); !fault.IsInput(err) {
		t.Errorf("other widths: %v", err)
	}
	stop := errors.New("disk full")
	if err := Search(context.Background(), m, nil, 1, Options{}, func(int, []Neighbour) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the caller's error", err)
	}
}
