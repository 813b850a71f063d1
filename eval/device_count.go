package eval

import (
	"math"

	"roadmap/eval/knn"
	"roadmap/pkg/torch"
)

// count makes two binary searches of each score among the query's wanted items,
// moved down and up by the distance within which the score is sure, and a
// histogram. Where the two differ the score is open.
func (d *deviceCounter) count(levels []*wantedRanks) error {
	return d.blocks(levels[0].from, levels[0].to, func(b *deviceBlock) tileWork {
		work := &countTiles{counter: d, block: b}
		for _, w := range levels {
			work.levels = append(work.levels, d.newThresholds(b, w))
		}
		return work
	})
}

// countTiles counts with the tiles of a block.
type countTiles struct {
	counter *deviceCounter
	block   *deviceBlock
	levels  []*thresholds
}

// thresholds is the scores of the wanted items of a block's queries on the
// device, at one level of labels.
type thresholds struct {
	wanted    *wantedRanks
	width     int           // the longest list's
	low, high *torch.Tensor // [queries, width] ascending, moved down and up; +inf behind
	histogram *torch.Tensor // [queries · (width+1)] how many scores are above so many of them
}

func (d *deviceCounter) newThresholds(b *deviceBlock, w *wantedRanks) *thresholds {
	t, part, n := &thresholds{wanted: w}, w.part(b.from, b.to, 0, 0), b.to-b.from
	of := func(i int) []float32 { return part.Score[part.Start[i]-part.Start[0] : part.Start[i+1]-part.Start[0]] }
	for i := range n {
		t.width = max(t.width, len(of(i)))
	}
	low, high := make([]float32, n*t.width), make([]float32, n*t.width)
	for i := range n {
		scores := of(i)
		for k := range t.width {
			score := float32(math.Inf(1))
			if k < len(scores) {
				score = scores[len(scores)-1-k]
			}
			low[i*t.width+k], high[i*t.width+k] = score-b.band, score+b.band
		}
	}
	s := b.x.Scope()
	t.low = torch.From(s, low, int64(n), int64(t.width)).ToDevice(d.device)
	t.high = torch.From(s, high, int64(n), int64(t.width)).ToDevice(d.device)
	t.histogram = s.Zeros([]int64{int64(n * (t.width + 1))}, torch.Int64, d.device)
	return t
}

func (w *countTiles) tile(t deviceTile) error {
	for _, level := range w.levels {
		if level.width == 0 {
			continue
		}
		if err := w.place(level, t); err != nil {
			return err
		}
	}
	w.counter.c.progress.add((w.block.to - w.block.from) * t.items.Len())
	return nil
}

// place places a tile's scores among the thresholds of one level.
func (w *countTiles) place(level *thresholds, t deviceTile) error {
	s := t.scores.Scope().Child()
	defer s.Close()
	scores, width := t.scores.Alias(s), int64(level.width)
	sure := level.high.SearchSorted(scores, true, false, "left", nil) // items surely before the score, from the last
	most := level.low.SearchSorted(scores, true, true, "right", nil)
	open := sure.Ne(most)
	list, all, err := w.counter.places(open)
	if err != nil {
		return err
	}
	high := t.low + t.items.Len()
	if all {
		return w.onCPU(level.wanted, t.low, high)
	}
	n := scores.Size(0)
	rows := s.ArangeFrom(0, float64(n), 1, torch.Int32, w.counter.device).MulScalar(float64(width + 1)).Unsqueeze(1)
	bins := sure.MaskedFillInPlace(open, 0).AddInPlace(rows).Flatten(0, 1)
	level.histogram.AddInPlace(bins.Bincount(nil, n*(width+1)))
	if err := s.Err(); err != nil {
		return err
	}
	wanted := level.wanted.part(w.block.from, w.block.to, t.low, high)
	return w.counter.byQueries(w.block, t, list, func(list []int64) error {
		return w.counter.c.scorer.CountPairs(w.block.side, t.items, &wanted, list)
	})
}

// onCPU counts gallery items [low, high) at one level by the kernels.
func (w *countTiles) onCPU(wanted *wantedRanks, low, high int) error {
	c, cpu, from, to := w.counter.c, w.counter.cpu, w.block.from, w.block.to
	block, err := c.scorer.Block(to - from)
	if err != nil {
		return err
	}
	defer block.Close()
	if err := block.Set(w.block.side); err != nil {
		return err
	}
	levels := []*wantedRanks{wanted}
	cpu.begin(levels, from, to)
	err = c.pool.runChunks(high-low, readRows, func(by *worker, first, last int) error {
		first, last = low+first, low+last
		moving, err := c.gallery.few(by, first, last)
		if err != nil {
			return err
		}
		return by.tiles.Count(moving, block, 0, to-from, nil, by.wanted(levels, from, to, first, last))
	})
	cpu.end(levels, from)
	return err
}

// end adds the histograms to what was counted on the CPU.
func (w *countTiles) end() error {
	for _, level := range w.levels {
		histogram, err := level.histogram.Int64s()
		if err != nil {
			return err
		}
		wanted := level.wanted.part(w.block.from, w.block.to, 0, 0)
		for i := range w.block.to - w.block.from {
			at := make([]int32, wanted.Start[i+1]-wanted.Start[i])
			for p := range at { // a score above all but the first p items
				at[p] = int32(histogram[i*(level.width+1)+len(at)-p])
			}
			wanted.NotePlaces(i, at)
		}
	}
	return nil
}

// searchTiles finds the best items in the tiles of a block, whose first query is
// row of the collections.
type searchTiles struct {
	counter *deviceCounter
	block   *deviceBlock
	best    *knn.Best
	row     int
}

// search takes a score for open if, as far as it is sure, it may be among the k
// best of its tile and better than the k-th best so far.
func (d *deviceCounter) search(best *knn.Best, from, to int) error {
	return d.blocks(from, to, func(b *deviceBlock) tileWork {
		return &searchTiles{counter: d, block: b, best: best, row: b.from - from}
	})
}

func (w *searchTiles) tile(t deviceTile) error {
	n, m, band := t.scores.Size(0), t.scores.Size(1), float64(w.block.band)
	least := torch.From(t.scores.Scope(), w.best.Worst(w.row, int(n)), n, 1).ToDevice(w.counter.device).SubScalar(band)
	k := int64(w.best.K())
	if w.counter.c.same {
		k++ // the query's own row may be one of them
	}
	if k < m {
		top, _ := t.scores.TopK(k, 1, true, true)
		least = least.Maximum(top.Narrow(1, k-1, 1).SubScalar(2 * band))
	}
	list, all, err := w.counter.places(t.scores.Ge(least))
	if err != nil {
		return err
	}
	if all {
		return w.counter.cpu.offer(w.best, w.row, w.block.from, w.block.to, t.low, t.low+int(m))
	}
	w.counter.c.progress.add(int(n * m))
	return w.counter.byQueries(w.block, t, list, func(list []int64) error {
		return w.best.Offer(w.counter.c.scorer, w.block.side, t.items, w.row, list)
	})
}

func (w *searchTiles) end() error { return nil }
