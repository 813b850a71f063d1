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
	return search(ctx, queries, gallery, k, o, onDevice(o.Device), take)
}

func search(ctx context.Context, queries, gallery Matrix, k int, o Options, by counterFor, take func(query int, found []Neighbour) error) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if err := (Input{Query: queries, Gallery: gallery}).checkMatrices(); err != nil {
		return err
	}
	c, err := newComparison(ctx, queries, gallery, o)
	if err != nil {
		return err
	}
	defer c.close()
	if k < 1 || k > c.candidates() {
		return fault.Inputf("k: %d neighbours of %d candidates; give a number from 1 to %d", k, c.candidates(), c.candidates())
	}
	c.progress.total = int64(c.queries.rows) * int64(c.gallery.rows)
	counter, err := by(c, func() int { return k })
	if err != nil {
		return err
	}
	const found = 8 // bytes
	part := int(max(1, min(int64(c.queries.rows), c.memory/int64(knn.Room(k)*found))))
	best := knn.NewBest(k, part, c.same)
	for from := 0; from < c.queries.rows; from += part {
		to := min(from+part, c.queries.rows)
		best.Reset()
		if err := counter.search(best, from, to); err != nil {
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
