package eval

import "roadmap/eval/knn"

// cpuCounter compares with the kernels of package knn. Where the queries are
// the gallery and all of them are counted for at once, each tile of scores serves
// both its rows and its columns as queries: half the products.
type cpuCounter struct{ c *comparison }

// fixedRows is how many queries are laid out at a time. More of them are
// worthwhile where gallery rows have to be made anew for each such block.
const (
	fixedRows     = 16 * readRows
	fixedRowsAnew = 2 * fixedRows
)

func (n *cpuCounter) pairs(parts int) int64 {
	items := int64(n.c.gallery.rows)
	if n.c.same && parts == 1 {
		return items * (items + 1) / 2
	}
	return int64(n.c.queries.rows) * items
}

func (n *cpuCounter) count(levels []*wantedRanks) error {
	from, to := levels[0].from, levels[0].to
	symmetric := n.c.same && to-from == n.c.queries.rows
	return n.blocks(n.c.queries, from, to, func(block *knn.Block, from, to int) error {
		return n.sweep(levels, block, from, to, symmetric)
	})
}

// blocks lays rows [from, to) of a store out as fixed sides, one after another.
func (n *cpuCounter) blocks(s *rowStore, from, to int, use func(block *knn.Block, from, to int) error) error {
	size := fixedRows
	if s.kept == nil {
		size = fixedRowsAnew
	}
	size = min(size, to-from)
	block, err := n.c.scorer.Block(size)
	if err != nil {
		return err
	}
	defer block.Close()
	var spare *knn.Rows
	if s.kept == nil {
		if spare, err = n.c.scorer.Rows(size); err != nil {
			return err
		}
		defer spare.Close()
	}
	for at := from; at < to; at += size {
		end := min(at+size, to)
		side, err := s.many(n.c.pool, spare, at, end)
		if err != nil {
			return err
		}
		if err := block.Set(side); err != nil {
			return err
		}
		if err := use(block, at, end); err != nil {
			return err
		}
	}
	return nil
}

// sweep compares queries [from, to), the fixed block, with the gallery; where
// it is symmetric, with those rows that no earlier block has been compared with.
func (n *cpuCounter) sweep(levels []*wantedRanks, block *knn.Block, from, to int, symmetric bool) error {
	first := 0
	if symmetric {
		first = from
	}
	n.begin(levels, from, to)
	err := n.c.pool.runChunks(n.c.gallery.rows-first, readRows, func(w *worker, low, high int) error {
		low, high = low+first, high+first
		moving, err := n.c.gallery.few(w, low, high)
		if err != nil {
			return err
		}
		byFixed := w.wanted(levels, from, to, low, high)
		start := 0
		var byMoving []knn.Wanted
		if symmetric {
			if low < to { // the block's own rows: with themselves once, with later ones for both
				start = min(high, to) - from
				if err := w.tiles.Count(moving, block, low-from, start, nil, byFixed); err != nil {
					return err
				}
				n.c.progress.add((high - low) * (high - low + 1) / 2)
			}
			for _, l := range levels {
				byMoving = append(byMoving, l.part(low, high, from, to))
			}
		}
		if start == to-from {
			return nil
		}
		err = w.tiles.Count(moving, block, start, to-from, byMoving, byFixed)
		n.c.progress.add((high - low) * (to - from - start))
		return err
	})
	n.end(levels, from)
	return err
}

// begin has every goroutine count for itself what it finds for fixed rows [from, to).
func (n *cpuCounter) begin(levels []*wantedRanks, from, to int) {
	for _, w := range n.c.pool.workers {
		w.counts = make([][]int32, len(levels))
		for v, l := range levels {
			w.counts[v] = make([]int32, l.start(to)-l.start(from))
		}
	}
}

// end adds up what the goroutines have counted for fixed rows from on.
func (n *cpuCounter) end(levels []*wantedRanks, from int) {
	for v, l := range levels {
		for _, w := range n.c.pool.workers {
			for i, count := range w.counts[v] {
				l.items.Count[l.start(from)+int64(i)] += count
			}
		}
	}
}

// wanted is the fixed rows' wanted items, to be counted by this goroutine.
func (w *worker) wanted(levels []*wantedRanks, from, to, low, high int) []knn.Wanted {
	list := make([]knn.Wanted, len(levels))
	for v, l := range levels {
		list[v] = l.part(from, to, low, high)
		list[v].Count = w.counts[v]
	}
	return list
}

func (n *cpuCounter) search(best *knn.Best, from, to int) error {
	return n.offer(best, 0, from, to, 0, n.c.gallery.rows)
}

// offer offers gallery items [low, high) to queries [from, to), whose first is
// query row of the collections. The gallery is the fixed side, a block at a time, so
// that one goroutine has a query to itself.
func (n *cpuCounter) offer(best *knn.Best, row, from, to, low, high int) error {
	share := min(readRows, (to-from+len(n.c.pool.workers)-1)/len(n.c.pool.workers)) // queries at a time, so that none is idle
	return n.blocks(n.c.gallery, low, high, func(block *knn.Block, low, high int) error {
		return n.c.pool.runChunks(to-from, share, func(w *worker, first, last int) error {
			moving, err := n.c.queries.few(w, from+first, from+last)
			if err != nil {
				return err
			}
			if err := w.tiles.Search(moving, block, best, row+first); err != nil {
				return err
			}
			n.c.progress.add((last - first) * (high - low))
			return nil
		})
	})
}
