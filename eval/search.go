package eval

import (
	"context"

	"roadmap/eval/knn"
	"roadmap/pkg/fault"
)

// Neighbour is a gallery item that a search has found: its number and score.
type Neighbour = knn.Neighbour

// Search finds the k best gallery items of each query, exactly: descending
// score, then ascending number. gallery nil: the queries are the gallery, each
// without its own row. take is given the queries in order, each with its k
// neighbours, best first, valid until it returns; its error ends the search.
// Of the options Distance, Float32, Device, Threads, MemoryBytes and Progress
// count.
func Search(ctx context.Context, queries, gallery Matrix, k int, o Options, take func(query int, found []Neighbour) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := (Input{Query: queries, Gallery: gallery}).checkMatrices(); err != nil {
		return err
	}
	e, err := newEngine(ctx, queries, gallery, o)
	if err != nil {
		return err
	}
	defer e.close()
	if k < 1 || k > e.candidates() {
		return fault.Inputf("k: %d neighbours of %d candidates; give a number from 1 to %d", k, e.candidates(), e.candidates())
	}
	e.progress.total = int64(e.queries.rows) * int64(e.gallery.rows)
	const found = 8 // bytes
	collect := e.collect
	if k <= denseWanted && e.usesDevice(nil) {
		collect = e.collectOnDevice
	}
	panel := int(max(1, min(int64(e.queries.rows), e.memory/int64(knn.Room(k)*found))))
	best := knn.NewBest(k, panel, e.same)
	for from := 0; from < e.queries.rows; from += panel {
		to := min(from+panel, e.queries.rows)
		best.Reset()
		if err := collect(best, from, to); err != nil {
			return err
		}
		for i := range to - from {
			if err := take(from+i, best.Sorted(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// collect offers the whole gallery to queries [from, to).
func (e *engine) collect(best *knn.Best, from, to int) error {
	return e.offer(best, 0, from, to, 0, e.gallery.rows)
}

// offer offers gallery items [low, high) to queries [from, to), whose first is
// query row of the collections. The gallery is the fixed side, a block at a time, so
// that one goroutine has a query to itself.
func (e *engine) offer(best *knn.Best, row, from, to, low, high int) error {
	share := min(readRows, (to-from+len(e.pool.workers)-1)/len(e.pool.workers)) // queries at a time, so that none is idle
	return e.blocks(e.gallery, low, high, func(block *knn.Block, low, high int) error {
		return e.pool.run((to-from+share-1)/share, func(s *scratch, i int) error {
			first, last := from+i*share, min(from+(i+1)*share, to)
			moving, err := e.queries.side(s, first, last)
			if err != nil {
				return err
			}
			if err := s.tiles.Search(moving, block, best, row+first-from); err != nil {
				return err
			}
			e.progress.add((last - first) * (high - low))
			return nil
		})
	})
}
