package eval

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"roadmap/pkg/rng"
	"roadmap/pkg/torch"
)

// tensors evaluates by the tensor operations of a GPU on the CPU, so many scores
// a tile.
func tensors(scores, mostOpen int64) counterFor {
	return func(c *comparison, longest func() int) (counter, error) {
		if !suitsDevice(c, longest) {
			return &cpuCounter{c}, nil
		}
		return &deviceCounter{c: c, cpu: &cpuCounter{c}, device: torch.CPU, tileBytes: scores * bytesPerScore, mostOpen: mostOpen}, nil
	}
}

// onTensors are ways to do so: in small tiles and in one, with open pairs
// decided one by one and not, rows made anew.
func onTensors() []way {
	return []way{
		{name: "small tiles, one by one", by: tensors(30_000, 1)},
		{name: "one tile", by: tensors(1<<20, mostOpen)},
		{name: "rows made anew", by: tensors(100_000, 1), o: Options{MemoryBytes: 60_000}},
	}
}

// near draws rows that lie around centres in turn, so near that the scores within
// a centre's differ by about the rounding of a product.
func near(n, dim, centres int) set {
	r := rng.New(29)
	around := clustered(r, centres, dim, centres, 1).rows
	var s set
	for i := range n {
		row := make([]float64, dim)
		for k := range row {
			row[k] = float64(float32(around[i%centres][k] * (1 + 3e-4*r.NormFloat64())))
		}
		s.rows, s.labels = append(s.rows, row), append(s.labels, int64(i%centres%7))
	}
	return s
}

// TestWithinTheBand: scores that a product in another order swaps are in the order
// of the exact ones, found and counted.
func TestWithinTheBand(t *testing.T) {
	s := near(1600, 48, 80)
	live := torch.Live()
	defer func() {
		if now := torch.Live(); now != live {
			t.Errorf("%d handles are left", now-live)
		}
	}()
	for _, distance := range []Distance{Cosine, L2} {
		in := Input{Query: s.matrix(), QueryLabels: s.labels}
		counted := evaluate(t, in, Options{Distance: distance})
		several := way{name: "several blocks of queries", by: tensors(100_000, mostOpen), o: Options{MemoryBytes: 200_000}}
		for _, w := range append(onTensors(), several) {
			w.o.Distance = distance
			for _, k := range []int{3, 10} { // a tile's best, and those of several
				want := neighbours(t, in.Query, k, way{o: Options{Distance: distance}})
				for i, found := range neighbours(t, in.Query, k, w) {
					if !slices.Equal(found, want[i]) {
						t.Fatalf("%s, %s: query %d finds %v, want %v", distance, w.name, i, found, want[i])
					}
				}
			}
			equalRanks(t, w.name, w.evaluate(t, in).Levels[0].Rankings, counted.Levels[0].Rankings)
		}
	}
}

func neighbours(t *testing.T, m Matrix, k int, w way) [][]Neighbour {
	t.Helper()
	var all [][]Neighbour
	err := search(context.Background(), m, nil, k, w.o, w.counter(), func(_ int, found []Neighbour) error {
		all = append(all, append([]Neighbour(nil), found...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestSuitsDevice: tensor operations count where every list of wanted items is
// short and scores are far from underflow.
func TestSuitsDevice(t *testing.T) {
	labels := make([]int64, 1000)
	for i := range labels {
		labels[i] = int64(max(i, longestOnDevice)) // the first is of a class of 257, the others are alone
	}
	long := append([]int64(nil), labels...)
	long[longestOnDevice+1] = labels[0] // 258: 257 wanted
	plain := clustered(rng.New(1), 1000, 8, 10, 1)
	tiny := clustered(rng.New(1), 1000, 8, 10, 1)
	for _, row := range tiny.rows {
		for k := range row {
			row[k] *= 1e-21
		}
	}
	for name, test := range map[string]struct {
		set    set
		o      Options
		labels []int64
		want   bool
	}{
		"short lists":       {plain, Options{}, labels, true},
		"one long list":     {plain, Options{}, long, false},
		"near underflow":    {tiny, Options{Distance: L2}, labels, false},
		"tiny, but cosines": {tiny, Options{}, labels, true},
	} {
		c, err := newComparison(context.Background(), test.set.matrix(), nil, test.o)
		if err != nil {
			t.Fatal(err)
		}
		levels := []relevance{newByLabel(labels, labels, true), newByLabel(test.labels, test.labels, true)}
		longest := func() int { return c.longest(levels) }
		if got := suitsDevice(c, longest); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if counter, err := onDevice(torch.CPU)(c, longest); err != nil || reflect.TypeOf(counter) != reflect.TypeFor[*cpuCounter]() {
			t.Errorf("%s: the CPU counts with %T, %v", name, counter, err)
		}
		c.close()
	}
}

// TestTileSize: a tile's rows count as well as its scores, on the device and, where
// they are made anew, on the host.
func TestTileSize(t *testing.T) {
	s := clustered(rng.New(1), 9000, 512, 10, 1)
	for name, test := range map[string]struct {
		bytes, memory int64
		queries       int
		want          [2]int
	}{
		"all of it":           {1 << 40, 1 << 40, 9000, [2]int{deviceQueries, 9000}},
		"scores count":        {4096*bytesPerScore*100 + 100*2*rowBytes, 1 << 40, 9000, [2]int{deviceQueries, 100}},
		"rows count":          {1000 * (2*rowBytes + bytesPerScore), 1 << 40, 1, [2]int{1, 1000}},
		"at least one":        {1, 1 << 40, 9000, [2]int{deviceQueries, 1}},
		"rows made anew":      {1 << 40, 4000 * rowBytes, 9000, [2]int{2000, 2000}},
		"a few in any memory": {1 << 40, 1, 9000, [2]int{readRows, readRows}},
	} {
		c, err := newComparison(context.Background(), s.matrix(), nil, Options{MemoryBytes: test.memory, Float32: true})
		if err != nil {
			t.Fatal(err)
		}
		d := &deviceCounter{c: c, tileBytes: test.bytes}
		if queries, items := d.tileSize(test.queries); [2]int{queries, items} != test.want {
			t.Errorf("%s: %d x %d, want %v", name, queries, items, test.want)
		}
		c.close()
	}
}

const rowBytes = 512 * 4 // of TestTileSize

// BenchmarkCollapsed counts where every score is open, without tensor operations
// and with them, which leave each tile to the CPU.
func BenchmarkCollapsed(b *testing.B) {
	s := near(12000, 128, 1)
	for i := range s.labels {
		s.labels[i] = int64(i % 2000)
	}
	in := Input{Query: s.matrix(), QueryLabels: s.labels}
	for name, by := range map[string]counterFor{"processor": onDevice(torch.CPU), "tensors": tensors(1<<23, mostOpen)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := run(context.Background(), in, Options{}, by); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
