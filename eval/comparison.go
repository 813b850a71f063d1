package eval

import (
	"context"
	"sync"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/pkg/torch"
)

// comparison is queries and a gallery, ready to be compared.
//
// A rank is one plus the number of gallery items before the wanted one. So it is
// counted, going once over the gallery for as many queries as fit into memory
// with their wanted items, and of a tile of scores nothing is kept but counts.
type comparison struct {
	scorer   *knn.Scorer
	distance Distance
	ties     rank.Ties
	pool     *pool
	queries  *rowStore
	gallery  *rowStore
	same     bool  // the queries are the gallery
	memory   int64 // bytes for what grows with the input
	progress progress
}

// counter compares queries with the whole gallery and keeps what was asked for.
// There are two, to the same result: cpuCounter and deviceCounter.
type counter interface {
	// count counts, for the wanted items of some queries at every level of
	// labels, what ranks before them.
	count(levels []*wantedRanks) error
	// pairs is how many pairs are compared for all queries, where they are
	// counted for in so many parts.
	pairs(parts int) int64
	// search offers the gallery to queries [from, to), row 0 and on of best.
	search(best *knn.Best, from, to int) error
}

// counterFor makes the counter for a comparison; longest finds the most items
// that a query wants, or is to find.
type counterFor func(c *comparison, longest func() int) (counter, error)

// onDevice counts on the device where that is of use, else on the CPU.
func onDevice(device torch.Device) counterFor {
	return func(c *comparison, longest func() int) (counter, error) {
		if !device.IsCUDA() || !suitsDevice(c, longest) {
			return &cpuCounter{c}, nil
		}
		return newDeviceCounter(c, device)
	}
}

// progress counts pairs compared.
type progress struct {
	sync.Mutex
	report      func(done, total int64)
	done, total int64
}

func (p *progress) add(pairs int) {
	if p.report == nil {
		return
	}
	p.Lock()
	defer p.Unlock()
	p.done += int64(pairs)
	p.report(p.done, p.total)
}

// newComparison reads all rows. gallery nil: the queries are the gallery.
func newComparison(ctx context.Context, queries, gallery Matrix, o Options) (*comparison, error) {
	c := &comparison{scorer: o.scorer(queries.Dim()), distance: o.Distance, ties: o.Ties, same: gallery == nil, memory: o.memory()}
	c.progress.report = o.Progress
	var err error
	if c.pool, err = newPool(ctx, o.threads(), c.scorer, queries.Dim()); err != nil {
		return nil, err
	}
	rows := queries.Rows()
	if gallery != nil {
		rows += gallery.Rows()
	}
	keep := int64(rows)*c.scorer.BytesPerRow() <= c.memory
	if c.queries, err = newRowStore(queries, c.scorer, keep, c.pool); err == nil {
		if c.gallery = c.queries; gallery != nil {
			c.gallery, err = newRowStore(gallery, c.scorer, keep, c.pool)
		}
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *comparison) close() {
	c.pool.close()
	c.queries.close()
	if !c.same {
		c.gallery.close()
	}
}

// candidates is the number of gallery items ranked for each query.
func (c *comparison) candidates() int {
	if c.same {
		return c.gallery.rows - 1
	}
	return c.gallery.rows
}

// rank finds the ranks of the items that the queries want at every level, for
// as many queries at a time as fit into memory, and hands them over in order.
func (c *comparison) rank(levels []relevance, by counterFor, take func(level int, w *wantedRanks)) error {
	counter, err := by(c, func() int { return c.longest(levels) })
	if err != nil {
		return err
	}
	cuts := c.cuts(levels)
	c.progress.total = counter.pairs(len(cuts) - 1)
	for i := 1; i < len(cuts); i++ {
		wanted := make([]*wantedRanks, len(levels))
		for v, r := range levels {
			if wanted[v], err = c.newWantedRanks(r, cuts[i-1], cuts[i]); err != nil {
				return err
			}
		}
		if err := counter.count(wanted); err != nil {
			return err
		}
		for v, w := range wanted {
			if err := w.finish(c); err != nil {
				return err
			}
			take(v, w)
		}
	}
	return nil
}

// longest is the most items that any query wants.
func (c *comparison) longest(levels []relevance) int {
	most := 0
	for _, r := range levels {
		for i := range c.queries.rows {
			most = max(most, r.wanted(i))
		}
	}
	return most
}

// bytesPerWanted is what a wanted item takes while it is counted for: its score,
// number, limit and count.
const bytesPerWanted = 16

// cuts divides the queries so that the wanted items of each part fit into
// memory: part i is queries [cuts[i], cuts[i+1]).
func (c *comparison) cuts(levels []relevance) []int {
	cuts, held := []int{0}, int64(0)
	for i := range c.queries.rows {
		more := int64(0)
		for _, r := range levels {
			more += int64(r.wanted(i)) * bytesPerWanted
		}
		if held += more; held > c.memory && held > more {
			cuts, held = append(cuts, i), more
		}
	}
	return append(cuts, c.queries.rows)
}
