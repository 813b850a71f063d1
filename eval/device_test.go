package eval

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"roadmap/pkg/rng"
	"roadmap/pkg/torch"
)

// onTensors are ways to evaluate by the tensor operations of a GPU, on the CPU: in
// small tiles and in one, with open pairs decided one by one and not, rows made anew.
func onTensors() []Options {
	return []Options{{tensors: 30_000, mostOpen: 1}, {tensors: 1 << 20}, {tensors: 100_000, mostOpen: 1, MemoryBytes: 60_000}}
}

// name tells ways apart in a test's output.
func (o Options) name() string {
	return fmt.Sprintf("tensors %d, open %d, %d bytes", o.tensors, o.mostOpen, o.MemoryBytes)
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
		counted := run(t, in, Options{Distance: distance})
		for _, o := range append(onTensors(), Options{tensors: 100_000, MemoryBytes: 200_000}) { // several blocks of queries at once
			o.Distance = distance
			for _, k := range []int{3, 10} { // a tile's best, and those of several
				want := neighbours(t, in.Query, k, Options{Distance: distance})
				for i, found := range neighbours(t, in.Query, k, o) {
					if !slices.Equal(found, want[i]) {
						t.Fatalf("%s, %s: query %d finds %v, want %v", distance, o.name(), i, found, want[i])
					}
				}
			}
			equalRanks(t, o.name(), run(t, in, o).Levels[0].Rankings, counted.Levels[0].Rankings)
		}
	}
}

func neighbours(t *testing.T, m Matrix, k int, o Options) [][]Neighbour {
	t.Helper()
	var all [][]Neighbour
	err := Search(context.Background(), m, nil, k, o, func(_ int, found []Neighbour) error {
		all = append(all, append([]Neighbour(nil), found...))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestUsesDevice: tensor operations count where every list of wanted items is short
// and scores are far from underflow.
func TestUsesDevice(t *testing.T) {
	labels := make([]int64, 1000)
	for i := range labels {
		labels[i] = int64(max(i, denseWanted)) // the first is of a class of 257, the others are alone
	}
	long := append([]int64(nil), labels...)
	long[denseWanted+1] = labels[0] // 258: 257 wanted
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
		"short lists":       {plain, Options{tensors: 1000}, labels, true},
		"no device":         {plain, Options{}, labels, false},
		"one long list":     {plain, Options{tensors: 1000}, long, false},
		"near underflow":    {tiny, Options{tensors: 1000, Distance: L2}, labels, false},
		"tiny, but cosines": {tiny, Options{tensors: 1000}, labels, true},
	} {
		e, err := newEngine(context.Background(), test.set.matrix(), nil, test.o)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.usesDevice([]relevance{newByLabel(labels, labels, true), newByLabel(test.labels, test.labels, true)}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		e.close()
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
		e, err := newEngine(context.Background(), s.matrix(), nil, Options{MemoryBytes: test.memory, Float32: true})
		if err != nil {
			t.Fatal(err)
		}
		if queries, items := e.tileSize(test.bytes, test.queries); [2]int{queries, items} != test.want {
			t.Errorf("%s: %d x %d, want %v", name, queries, items, test.want)
		}
		e.close()
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
	for name, o := range map[string]Options{"processor": {}, "tensors": {tensors: 1 << 23}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Run(context.Background(), in, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
