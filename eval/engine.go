package eval

import (
	"cmp"
	"context"
	"sync"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/pkg/torch"
)

// engine finds ranks: for each query and each item wanted, one plus the number
// of gallery items before it. It goes once over the gallery for as many queries
// as fit into memory with their wanted items, and keeps nothing of a tile of
// scores but counts. Where the queries are the gallery and fit, each tile serves
// both its rows and its columns as queries.
type engine struct {
	scorer   *knn.Scorer
	scoring  knn.Options
	pool     *pool
	queries  *shelf
	gallery  *shelf
	same     bool
	memory   int64 // bytes for what grows with the input
	device   torch.Device
	tensors  int // scores a tile of tensor operations on the CPU; 0: none there
	mostOpen int
	progress progress
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

// fixedRows is how many queries are laid out at a time. More of them are
// worthwhile where gallery rows have to be made anew for each such block.
const (
	fixedRows     = 16 * readRows
	fixedRowsAnew = 2 * fixedRows
)

// newEngine reads all rows. gallery nil: the queries are the gallery.
func newEngine(ctx context.Context, queries, gallery Matrix, o Options) (*engine, error) {
	e := &engine{same: gallery == nil, memory: o.memory(), device: o.Device, tensors: o.tensors, mostOpen: cmp.Or(o.mostOpen, mostOpen), scoring: o.scoring(queries.Dim())}
	e.progress.report = o.Progress
	e.scorer = knn.New(e.scoring)
	var err error
	if e.pool, err = newPool(ctx, o.threads(), e.scorer, queries.Dim()); err != nil {
		return nil, err
	}
	rows := queries.Rows()
	if gallery != nil {
		rows += gallery.Rows()
	}
	keep := int64(rows)*e.scorer.BytesPerRow() <= e.memory
	if e.queries, err = newShelf(queries, e.scorer, keep, e.pool); err == nil {
		if e.gallery = e.queries; gallery != nil {
			e.gallery, err = newShelf(gallery, e.scorer, keep, e.pool)
		}
	}
	if err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *engine) close() {
	e.pool.close()
	e.queries.close()
	if !e.same {
		e.gallery.close()
	}
}

// candidates is the number of gallery items ranked for each query.
func (e *engine) candidates() int {
	if e.same {
		return e.gallery.rows - 1
	}
	return e.gallery.rows
}

// bytesPerWanted is what a wanted item takes while it is counted for.
const bytesPerWanted = 16

// rankings finds the ranks of every query's wanted items, at every level of
// relevance: [level][query].
func (e *engine) rankings(levels []relevance) ([][]rank.Query, error) {
	all := make([][]rank.Query, len(levels))
	err := e.each(levels, func(level int, p *panel) {
		for row := range p.to - p.from {
			all[level] = append(all[level], rank.Query{Ranks: p.of(row, p.Count), Candidates: e.candidates()})
		}
	})
	return all, err
}

// each finds ranks for as many queries at a time as fit into memory, and hands
// over their panels in order, with the ranks in Count.
func (e *engine) each(levels []relevance, take func(level int, p *panel)) error {
	cuts := e.cuts(levels)
	n := int64(e.gallery.rows)
	e.progress.total = int64(e.queries.rows) * n
	onDevice := e.usesDevice(levels)
	symmetric := e.same && len(cuts) == 2 && !onDevice
	if symmetric {
		e.progress.total = n * (n + 1) / 2
	}
	for i := 1; i < len(cuts); i++ {
		panels := make([]*panel, len(levels))
		for v, r := range levels {
			var err error
			if panels[v], err = e.newPanel(r, cuts[i-1], cuts[i]); err != nil {
				return err
			}
		}
		count := func() error { return e.count(panels, symmetric) }
		if onDevice {
			count = func() error { return e.countOnDevice(panels) }
		}
		if err := count(); err != nil {
			return err
		}
		for v, p := range panels {
			p.rank(e.same)
			take(v, p)
		}
	}
	return nil
}

// cuts divides the queries so that the wanted items of each part fit into
// memory: part i is queries [cuts[i], cuts[i+1]).
func (e *engine) cuts(levels []relevance) []int {
	cuts, held := []int{0}, int64(0)
	for i := range e.queries.rows {
		more := int64(0)
		for _, r := range levels {
			more += int64(r.wanted(i)) * bytesPerWanted
		}
		if held += more; held > e.memory && held > more {
			cuts, held = append(cuts, i), more
		}
	}
	return append(cuts, e.queries.rows)
}

// count compares the panels' queries with the whole gallery.
func (e *engine) count(panels []*panel, symmetric bool) error {
	return e.blocks(e.queries, panels[0].from, panels[0].to, func(block *knn.Block, from, to int) error {
		return e.sweep(panels, block, from, to, symmetric)
	})
}

// blocks lays rows [from, to) of a shelf out as fixed sides, one after another.
func (e *engine) blocks(s *shelf, from, to int, use func(block *knn.Block, from, to int) error) error {
	size := fixedRows
	if s.kept == nil {
		size = fixedRowsAnew
	}
	size = min(size, to-from)
	block, err := e.scorer.Block(size)
	if err != nil {
		return err
	}
	defer block.Close()
	var made *knn.Rows
	if s.kept == nil {
		if made, err = e.scorer.Rows(size); err != nil {
			return err
		}
		defer made.Close()
	}
	for at := from; at < to; at += size {
		end := min(at+size, to)
		side, err := s.run(e.pool, made, at, end)
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
func (e *engine) sweep(panels []*panel, block *knn.Block, from, to int, symmetric bool) error {
	first := 0
	if symmetric {
		first = from
	}
	e.begin(panels, from, to)
	tasks := (e.gallery.rows - first + readRows - 1) / readRows
	err := e.pool.run(tasks, func(s *scratch, i int) error {
		low := first + i*readRows
		high := min(low+readRows, e.gallery.rows)
		moving, err := e.gallery.side(s, low, high)
		if err != nil {
			return err
		}
		byFixed := s.wanted(panels, from, to, low, high)
		start := 0
		var byMoving []knn.Wanted
		if symmetric {
			if low < to { // the block's own rows: with themselves once, with later ones for both
				start = min(high, to) - from
				if err := s.tiles.Count(moving, block, low-from, start, nil, byFixed); err != nil {
					return err
				}
				e.progress.add((high - low) * (high - low + 1) / 2)
			}
			for _, p := range panels {
				byMoving = append(byMoving, p.part(low, high, nil, from, to))
			}
		}
		if start == to-from {
			return nil
		}
		err = s.tiles.Count(moving, block, start, to-from, byMoving, byFixed)
		e.progress.add((high - low) * (to - from - start))
		return err
	})
	e.gather(panels, from)
	return err
}

// begin has every goroutine count for itself what it finds for fixed rows [from, to).
func (e *engine) begin(panels []*panel, from, to int) {
	for _, s := range e.pool.workers {
		s.partial = make([][]int32, len(panels))
		for v, p := range panels {
			s.partial[v] = make([]int32, p.Start[to-p.from]-p.Start[from-p.from])
		}
	}
}

// gather adds up what the goroutines have counted for fixed rows from on.
func (e *engine) gather(panels []*panel, from int) {
	for v, p := range panels {
		for _, s := range e.pool.workers {
			for i, n := range s.partial[v] {
				p.Count[p.Start[from-p.from]+int64(i)] += n
			}
		}
	}
}

// part is the wanted items of queries [from, to), compared with gallery items
// [low, high); counts are kept apart where given.
func (p *panel) part(from, to int, counts []int32, low, high int) knn.Wanted {
	start := p.Start[from-p.from : to-p.from+1]
	a, b := start[0], start[to-from]
	w := knn.Wanted{Start: start, Score: p.Score[a:b], Item: p.Item[a:b], Count: counts}
	if counts == nil {
		w.Count = p.Count[a:b]
	}
	if p.Label != nil {
		w.Label, w.Other = p.Label[from-p.from:to-p.from], p.Other[low:high]
	}
	return w
}

// wanted is the fixed rows' wanted items, to be counted in this scratch.
func (s *scratch) wanted(panels []*panel, from, to, low, high int) []knn.Wanted {
	list := make([]knn.Wanted, len(panels))
	for v, p := range panels {
		list[v] = p.part(from, to, s.partial[v], low, high)
	}
	return list
}
