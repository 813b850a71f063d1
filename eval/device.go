package eval

import (
	"math"
	"slices"
	"sort"

	"roadmap/pkg/torch"
)

// On a GPU the scores come from tensor operations: the product of a block of
// queries with a block of the gallery in float32, which is within a known
// distance of the exact score. What that leaves open the exact score decides on
// the CPU, so the result is the CPU's.

const (
	denseWanted   = 256 // items a query, wanted or to be found, beyond which too many scores would be open
	deviceQueries = 4096
	bytesPerScore = 64 // of a tile, with everything computed from it
)

// usesDevice tells whether tensor operations are to count.
func (e *engine) usesDevice(levels []relevance) bool {
	if !e.device.IsCUDA() && e.tensors == 0 {
		return false
	}
	for _, r := range levels {
		wanted := 0
		for i := range e.queries.rows {
			wanted += r.wanted(i)
		}
		if wanted > denseWanted*e.queries.rows {
			return false
		}
	}
	return true
}

// tileElements is how many scores a tile may have.
func (e *engine) tileElements() (int, error) {
	if !e.device.IsCUDA() {
		return e.tensors, nil
	}
	m, err := torch.Memory(e.device)
	if err != nil {
		return 0, err
	}
	free := m.Free + m.Reserved - m.Allocated
	return int(min(free/2, 8<<30) / bytesPerScore), nil
}

// deviceBand is how far a float32 product, summed in any order, may be from the
// exact score: fewer than width roundings there and width/16 + 5 here, of sums
// that are at most the square of the longest row; for L2 twice the product, two
// sums of squares and scores of up to four times that square.
func (e *engine) deviceBand(width int) float32 {
	n := float64(e.knn.Longest())
	roundings := 1.1*float64(width) + 128
	if e.knnOptions.L2 {
		roundings = 5*float64(width) + 512
	}
	return float32(n * n * roundings * 0x1p-24)
}

// deviceWork is what is done with the scores of a block of queries.
type deviceWork interface {
	// tile takes the scores [queries, items] of the block with gallery items; other's first is number low.
	tile(scores *torch.Tensor, other torch.KNNSide, low int) error
	// end comes after the last tile.
	end() error
}

// onDevice scores queries [from, to) with the whole gallery by tensor
// operations; begin says what is to be done with a block of them, [at, end).
func (e *engine) onDevice(from, to int, begin func(block *torch.Scope, side torch.KNNSide, band float32, at, end int) deviceWork) error {
	elements, err := e.tileElements()
	if err != nil {
		return err
	}
	queries := min(deviceQueries, to-from)
	items := max(1, min(elements/queries, e.gallery.rows))
	var memory [2]*torch.KNNRows // for rows that are made anew
	for i, n := range []int{queries, items} {
		if memory[i], err = e.spare(n); err != nil {
			return err
		}
		defer memory[i].Close()
	}
	for at := from; at < to; at += queries {
		end := min(at+queries, to)
		side, err := e.queries.run(e.pool, memory[0], at, end)
		if err != nil {
			return err
		}
		block := torch.NewScope()
		defer block.Close()
		floats, width := side.Floats(e.knn)
		x := torch.From(block, floats, int64(end-at), int64(width)).ToDevice(e.device)
		work := begin(block, side, e.deviceBand(width), at, end)
		if err := e.tiles(x, work, memory[1], items); err != nil {
			return err
		}
		if err := block.Err(); err != nil {
			return err
		}
		block.Close()
	}
	return nil
}

// spare is memory for rows that are made anew; none where all are kept.
func (e *engine) spare(rows int) (*torch.KNNRows, error) {
	if e.queries.kept != nil {
		rows = 1
	}
	return e.knn.Rows(rows)
}

// tiles scores a block of queries, x, with the gallery, so many items at a time.
func (e *engine) tiles(x *torch.Tensor, work deviceWork, memory *torch.KNNRows, items int) error {
	for low := 0; low < e.gallery.rows; low += items {
		if err := e.pool.ctx.Err(); err != nil {
			return err
		}
		high := min(low+items, e.gallery.rows)
		other, err := e.gallery.run(e.pool, memory, low, high)
		if err != nil {
			return err
		}
		if err := e.tile(x, work, other, low); err != nil {
			return err
		}
		e.progress.add(int(x.Size(0)) * (high - low))
	}
	return work.end()
}

func (e *engine) tile(x *torch.Tensor, work deviceWork, other torch.KNNSide, low int) error {
	s := x.Scope().Child()
	defer s.Close()
	x = x.Alias(s)
	floats, width := other.Floats(e.knn)
	y := torch.From(s, floats, int64(other.Len()), int64(width)).ToDevice(e.device)
	scores := x.ProductFloat32(y)
	if e.knnOptions.L2 {
		scores = scores.MulScalar(2).Sub(x.Square().SumDim([]int64{1}, true)).Sub(y.Square().SumDim([]int64{1}, false))
	}
	if err := work.tile(scores, other, low); err != nil {
		return err
	}
	return s.Err()
}

// places is where a matrix is true, in the order of its elements.
func places(open *torch.Tensor) ([]int64, error) {
	all := open.Scope().ArangeFrom(0, float64(open.Numel()), 1, torch.Int64, open.Device())
	return all.MaskedSelect(open.Flatten(0, 1)).Int64s()
}

// countOnDevice is count by tensor operations: two binary searches of each score
// among the query's wanted items, moved down and up by the distance within which
// the score is sure, and a histogram. Where the two searches differ the score is
// open. Counts are whole, not yet to be totalled.
func (e *engine) countOnDevice(panels []*panel) error {
	for _, p := range panels {
		p.whole = true
	}
	return e.onDevice(panels[0].from, panels[0].to, func(block *torch.Scope, side torch.KNNSide, band float32, at, end int) deviceWork {
		c := &counting{engine: e, side: side, from: at, to: end}
		for _, p := range panels {
			c.ladders = append(c.ladders, newLadder(block, p, at, end, band, e.device))
		}
		return c
	})
}

// counting is the work of a block of queries [from, to).
type counting struct {
	*engine
	side     torch.KNNSide
	ladders  []*ladder // by level
	from, to int
}

// ladder is the wanted items of a block of queries on the device.
type ladder struct {
	*panel
	low, high *torch.Tensor // [queries, width] their scores, ascending, moved down and up; +inf behind
	histogram *torch.Tensor // [queries · (width+1)] how many scores are above so many of them
	width     int
	open      []int32 // what the exact score has decided: at the first item that is ranked after
}

func newLadder(s *torch.Scope, p *panel, from, to int, band float32, device torch.Device) *ladder {
	l := &ladder{panel: p}
	for row := from - p.from; row < to-p.from; row++ {
		l.width = max(l.width, int(p.Start[row+1]-p.Start[row]))
	}
	n := to - from
	low, high := make([]float32, n*l.width), make([]float32, n*l.width)
	for i := range n {
		row := from - p.from + i
		scores := p.Score[p.Start[row]:p.Start[row+1]]
		for k := range l.width {
			at := i*l.width + k
			low[at] = float32(math.Inf(1))
			if k < len(scores) {
				low[at] = scores[len(scores)-1-k]
			}
			high[at] = low[at] + band
			low[at] -= band
		}
	}
	l.low = torch.From(s, low, int64(n), int64(l.width)).ToDevice(device)
	l.high = torch.From(s, high, int64(n), int64(l.width)).ToDevice(device)
	l.histogram = s.Zeros([]int64{int64(n * (l.width + 1))}, torch.Int64, device)
	l.open = make([]int32, p.Start[to-p.from]-p.Start[from-p.from])
	return l
}

func (c *counting) tile(scores *torch.Tensor, other torch.KNNSide, low int) error {
	n, m := scores.Size(0), scores.Size(1)
	for _, l := range c.ladders {
		if l.width == 0 {
			continue
		}
		sure := l.high.SearchSorted(scores, false, false, "left", nil) // items surely before the score, from the last
		most := l.low.SearchSorted(scores, false, true, "right", nil)
		open := sure.Ne(most)
		rows := scores.Scope().ArangeFrom(0, float64(n), 1, torch.Int64, c.device).MulScalar(float64(l.width + 1)).Unsqueeze(1)
		bins := sure.MaskedFill(open, 0).Add(rows).Flatten(0, 1)
		l.histogram.AddInPlace(bins.Bincount(nil, n*int64(l.width+1)))
		list, err := places(open)
		if err != nil {
			return err
		}
		for _, place := range list {
			i, j := int(place/m), int(place%m)
			l.settle(c.knn.Pair(c.side, i, other, j), i, c.from, low+j, c.knnOptions.Ties)
		}
	}
	return nil
}

func (c *counting) end() error {
	for _, l := range c.ladders {
		if err := l.total(c.from, c.to); err != nil {
			return err
		}
	}
	return nil
}

// settle notes an exact score of gallery item j with query from+i.
func (l *ladder) settle(score float32, i, from, j int, ties torch.KNNTies) {
	row := from - l.from + i
	start := l.Start[row]
	wanted := int(l.Start[row+1] - start)
	first := sort.Search(wanted, func(p int) bool {
		t := l.Score[start+int64(p)]
		switch {
		case score != t:
			return score > t
		case ties == torch.KNNByIndex || l.Label[row] == l.Other[j]:
			return j < int(l.Item[start+int64(p)])
		}
		return ties == torch.KNNPessimistic
	})
	if first < wanted {
		l.open[start-l.Start[from-l.from]+int64(first)]++
	}
}

// total adds what was found to the panel's counts.
func (l *ladder) total(from, to int) error {
	histogram, err := l.histogram.Int64s()
	if err != nil {
		return err
	}
	for i := range to - from {
		row := from - l.from + i
		start, wanted := l.Start[row], int(l.Start[row+1]-l.Start[row])
		above := int32(0)
		settled := int32(0)
		for p := range wanted {
			above += int32(histogram[i*(l.width+1)+wanted-p])
			settled += l.open[start-l.Start[from-l.from]+int64(p)]
			l.Count[start+int64(p)] = above + settled
		}
	}
	return nil
}

// collectOnDevice is collect by tensor operations: a score is open if, as far as
// it is sure, it may be among the k best of its tile and better than the k-th
// best so far.
func (e *engine) collectOnDevice(best *torch.KNNBest, from, to int) error {
	return e.onDevice(from, to, func(_ *torch.Scope, side torch.KNNSide, band float32, at, _ int) deviceWork {
		return &finding{e, best, side, band, at - from}
	})
}

// finding is the work of a block of queries, whose first is query row of the
// collections.
type finding struct {
	*engine
	best *torch.KNNBest
	side torch.KNNSide
	band float32
	row  int
}

func (f *finding) tile(scores *torch.Tensor, other torch.KNNSide, _ int) error {
	n, m := scores.Size(0), scores.Size(1)
	least := torch.From(scores.Scope(), f.best.Worst(f.row, int(n)), n, 1).ToDevice(f.device).SubScalar(float64(f.band))
	k := int64(f.best.K())
	if f.same {
		k++ // the query's own row may be one of them
	}
	if k < m {
		top, _ := scores.TopK(k, 1, true, true)
		least = least.Maximum(top.Narrow(1, k-1, 1).SubScalar(2 * float64(f.band)))
	}
	list, err := places(scores.Ge(least))
	if err != nil {
		return err
	}
	const share = 64 // queries at a time
	return f.pool.run(int(n+share-1)/share, func(_ *scratch, i int) error {
		first, last := int64(i*share), min(int64((i+1)*share), n)
		from, _ := slices.BinarySearch(list, first*m)
		to, _ := slices.BinarySearch(list, last*m)
		return f.best.Offer(f.knn, f.side, other, f.row, list[from:to])
	})
}

func (f *finding) end() error { return nil }
