package eval

import (
	"math"
	"slices"
	"sort"

	"roadmap/eval/knn"
	"roadmap/pkg/torch"
)

// On a GPU the scores come from tensor operations: the product of a block of
// queries with a block of the gallery in float32, which is within a known
// distance of the exact score. What that leaves open the exact score decides on
// the CPU, so the result is the CPU's.

const (
	denseWanted   = 256 // items of a query, wanted or to be found, beyond which too many scores would be open
	deviceQueries = 4096
	// bytesPerScore is what a score of a tile takes, its temporaries included: 4 bytes
	// each for itself, two places among wanted items and its number, 1 for whether it
	// is open, and as much again as what libtorch takes underway might be.
	bytesPerScore = 32
	// mostOpen: where more than one in so many of a tile's scores is open, the tile is
	// left to the CPU as a whole, which takes less time than single pairs do.
	mostOpen = 64
)

// usesDevice tells whether tensor operations are to count. Below 2^-30 scores
// come near underflow, and the distance between them is not known.
func (e *engine) usesDevice(levels []relevance) bool {
	if !e.device.IsCUDA() && e.tensors == 0 || e.scorer.Longest() < 0x1p-30 {
		return false
	}
	for _, r := range levels {
		for i := range e.queries.rows {
			if r.wanted(i) > denseWanted { // a tile's tables are as wide as the longest list
				return false
			}
		}
	}
	return true
}

// tileBytes is what a tile may take on the device.
func (e *engine) tileBytes() (int64, error) {
	if !e.device.IsCUDA() {
		return int64(e.tensors) * bytesPerScore, nil
	}
	m, err := torch.Memory(e.device)
	if err != nil {
		return 0, err
	}
	return min((m.Free+m.Reserved-m.Allocated)/2, 4<<30), nil
}

// tileSize is how many of so many queries and of the gallery's items make a tile
// of so many bytes on the device, rows and their squares included; on the host,
// where rows are made anew, they take no more than the memory for what grows
// with the input, or a few are.
func (e *engine) tileSize(bytes int64, queries int) (int, int) {
	items, row := e.gallery.rows, e.scorer.BytesPerRow()
	if e.gallery.kept == nil {
		most := int(max(readRows, e.memory/2/row))
		queries, items = min(queries, most), min(items, most)
	}
	queries = min(queries, deviceQueries)
	return queries, int(max(1, min(int64(items), bytes/(int64(queries)*bytesPerScore+2*row))))
}

// deviceBand is how far a float32 product, summed in any order, may be from the
// exact score: fewer than width roundings there and width/16 + 5 here, of sums
// that are at most the square of the longest row; for L2 twice the product, two
// sums of squares and scores of up to four times that square.
func (e *engine) deviceBand(width int) float32 {
	n := float64(e.scorer.Longest())
	roundings := 1.1*float64(width) + 128
	if e.scoring.L2 {
		roundings = 5*float64(width) + 512
	}
	return float32(n * n * roundings * 0x1p-24)
}

// deviceBlock is the queries [from, to) that tensor operations score together.
type deviceBlock struct {
	*engine
	from, to int
	side     knn.Side
	x        *torch.Tensor // [queries, width], twice the rows for L2
	squares  *torch.Tensor // [queries, 1], of their lengths; for L2
	band     float32       // how far a score may be from the exact one
}

// deviceWork is what is done with the scores of a block of queries.
type deviceWork interface {
	// tile takes the scores [queries, items] of the block with gallery items; other's first is number low.
	tile(scores *torch.Tensor, other knn.Side, low int) error
	// end comes after the last tile.
	end() error
}

// onDevice scores queries [from, to) with the whole gallery by tensor
// operations; begin says what is to be done with a block of them.
func (e *engine) onDevice(from, to int, begin func(b *deviceBlock) deviceWork) error {
	bytes, err := e.tileBytes()
	if err != nil {
		return err
	}
	queries, items := e.tileSize(bytes, to-from)
	var memory [2]*knn.Rows // for rows that are made anew
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
		b := &deviceBlock{engine: e, from: at, to: end, side: side}
		if err := b.tiles(begin, memory[1], items); err != nil {
			return err
		}
	}
	return nil
}

// spare is memory for rows that are made anew; none where all are kept.
func (e *engine) spare(rows int) (*knn.Rows, error) {
	if e.queries.kept != nil {
		rows = 1
	}
	return e.scorer.Rows(rows)
}

// rows puts a side's rows on the device.
func (e *engine) rows(s *torch.Scope, side knn.Side) *torch.Tensor {
	floats, width := side.Floats(e.scorer)
	return torch.From(s, floats, int64(side.Len()), int64(width)).ToDevice(e.device)
}

// tiles scores the block with the gallery, so many items at a time.
func (b *deviceBlock) tiles(begin func(b *deviceBlock) deviceWork, memory *knn.Rows, items int) error {
	s := torch.NewScope()
	defer s.Close()
	b.x = b.rows(s, b.side)
	b.band = b.deviceBand(int(b.x.Size(1)))
	if b.scoring.L2 {
		b.squares = b.x.Square().SumDim([]int64{1}, true)
		b.x = b.x.MulScalar(2)
	}
	work := begin(b)
	for low := 0; low < b.gallery.rows; low += items {
		if err := b.pool.ctx.Err(); err != nil {
			return err
		}
		high := min(low+items, b.gallery.rows)
		other, err := b.gallery.run(b.pool, memory, low, high)
		if err != nil {
			return err
		}
		if err := b.tile(s, work, other, low); err != nil {
			return err
		}
	}
	return work.end()
}

func (b *deviceBlock) tile(block *torch.Scope, work deviceWork, other knn.Side, low int) error {
	s := block.Child()
	defer s.Close()
	y := b.rows(s, other)
	scores := b.x.ProductFloat32(y)
	if b.scoring.L2 {
		scores.SubInPlace(b.squares).SubInPlace(y.Square().SumDim([]int64{1}, false))
	}
	if err := work.tile(scores, other, low); err != nil {
		return err
	}
	return s.Err()
}

// places is where a tile's scores are open, in the order of its elements; all
// is set, and no place given, where they are too many to be decided one by one.
func (b *deviceBlock) places(open *torch.Tensor) (list []int64, all bool, err error) {
	s := open.Scope().Child()
	defer s.Close()
	open = open.Alias(s).Flatten(0, 1)
	count, err := open.Sum().Int64s()
	if err != nil || count[0] == 0 {
		return nil, false, err
	}
	if count[0] > open.Numel()/int64(b.mostOpen) {
		return nil, true, nil
	}
	numbers := s.ArangeFrom(0, float64(open.Numel()), 1, torch.Int32, open.Device())
	list, err = numbers.MaskedSelect(open).ToDType(torch.Int64).Int64s()
	return list, false, err
}

// byQueries shares the places in a tile [queries, items] out, each query's to one goroutine.
func (b *deviceBlock) byQueries(list []int64, items int64, use func(list []int64) error) error {
	const share = 64 // queries at a time
	return b.pool.run((b.to-b.from+share-1)/share, func(_ *scratch, i int) error {
		from, _ := slices.BinarySearch(list, int64(i)*share*items)
		to, _ := slices.BinarySearch(list, int64(i+1)*share*items)
		return use(list[from:to])
	})
}

// countOnDevice is count by tensor operations: two binary searches of each score
// among the query's wanted items, moved down and up by the distance within which
// the score is sure, and a histogram. Where the two searches differ the score is
// open. Counts are whole, not yet to be totalled.
func (e *engine) countOnDevice(panels []*panel) error {
	for _, p := range panels {
		p.whole = true
	}
	return e.onDevice(panels[0].from, panels[0].to, func(b *deviceBlock) deviceWork {
		c := &counting{deviceBlock: b}
		for _, p := range panels {
			c.ladders = append(c.ladders, newLadder(b.x.Scope(), p, b))
		}
		return c
	})
}

// counting is the work of a block of queries.
type counting struct {
	*deviceBlock
	ladders []*ladder // by level
}

// ladder is the wanted items of a block of queries on the device.
type ladder struct {
	*panel
	low, high *torch.Tensor // [queries, width] their scores, ascending, moved down and up; +inf behind
	histogram *torch.Tensor // [queries · (width+1)] how many scores are above so many of them
	width     int
	open      []int32 // what the exact score has decided: at the first item that is ranked after
}

func newLadder(s *torch.Scope, p *panel, b *deviceBlock) *ladder {
	l, from, to := &ladder{panel: p}, b.from, b.to
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
			high[at] = low[at] + b.band
			low[at] -= b.band
		}
	}
	l.low = torch.From(s, low, int64(n), int64(l.width)).ToDevice(b.device)
	l.high = torch.From(s, high, int64(n), int64(l.width)).ToDevice(b.device)
	l.histogram = s.Zeros([]int64{int64(n * (l.width + 1))}, torch.Int64, b.device)
	l.open = make([]int32, p.Start[to-p.from]-p.Start[from-p.from])
	return l
}

func (c *counting) tile(scores *torch.Tensor, other knn.Side, low int) error {
	for _, l := range c.ladders {
		if l.width == 0 {
			continue
		}
		if err := c.climb(l, scores, other, low); err != nil {
			return err
		}
	}
	c.progress.add((c.to - c.from) * other.Len())
	return nil
}

// climb counts a tile's scores at one level.
func (c *counting) climb(l *ladder, scores *torch.Tensor, other knn.Side, low int) error {
	s := scores.Scope().Child()
	defer s.Close()
	scores = scores.Alias(s)
	n, m := scores.Size(0), scores.Size(1)
	sure := l.high.SearchSorted(scores, true, false, "left", nil) // items surely before the score, from the last
	most := l.low.SearchSorted(scores, true, true, "right", nil)
	open := sure.Ne(most)
	list, all, err := c.places(open)
	if err != nil {
		return err
	}
	if all {
		return c.exactly(l, low, low+other.Len())
	}
	rows := s.ArangeFrom(0, float64(n), 1, torch.Int32, c.device).MulScalar(float64(l.width + 1)).Unsqueeze(1)
	bins := sure.MaskedFillInPlace(open, 0).AddInPlace(rows).Flatten(0, 1)
	l.histogram.AddInPlace(bins.Bincount(nil, n*int64(l.width+1)))
	if err := s.Err(); err != nil {
		return err
	}
	return c.byQueries(list, m, func(list []int64) error {
		for _, place := range list {
			i, j := int(place/m), int(place%m)
			l.settle(c.scorer.Pair(c.side, i, other, j), i, c.from, low+j, c.scoring.Ties)
		}
		return nil
	})
}

// exactly counts items [low, high) at one level on the CPU.
func (c *counting) exactly(l *ladder, low, high int) error {
	block, err := c.scorer.Block(c.side.Len())
	if err != nil {
		return err
	}
	defer block.Close()
	if err := block.Set(c.side); err != nil {
		return err
	}
	panels := []*panel{l.panel}
	c.begin(panels, c.from, c.to)
	err = c.pool.run((high-low+readRows-1)/readRows, func(s *scratch, i int) error {
		first := low + i*readRows
		last := min(first+readRows, high)
		moving, err := c.gallery.side(s, first, last)
		if err != nil {
			return err
		}
		return s.tiles.Count(moving, block, 0, c.side.Len(), nil, s.wanted(panels, c.from, c.to, first, last))
	})
	c.gather(panels, c.from)
	return err
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
func (l *ladder) settle(score float32, i, from, j int, ties knn.Ties) {
	row := from - l.from + i
	start := l.Start[row]
	wanted := int(l.Start[row+1] - start)
	first := sort.Search(wanted, func(p int) bool {
		t := l.Score[start+int64(p)]
		switch {
		case score != t:
			return score > t
		case ties == knn.ByIndex || l.Label[row] == l.Other[j]:
			return j < int(l.Item[start+int64(p)])
		}
		return ties == knn.Pessimistic
	})
	if first < wanted {
		l.open[start-l.Start[from-l.from]+int64(first)]++
	}
}

// total adds what was found on the device to what was counted on the CPU.
func (l *ladder) total(from, to int) error {
	histogram, err := l.histogram.Int64s()
	if err != nil {
		return err
	}
	knn.Total(l.part(from, to, nil, 0, 0))
	for i := range to - from {
		row := from - l.from + i
		start, wanted := l.Start[row], int(l.Start[row+1]-l.Start[row])
		before := int32(0)
		for p := range wanted {
			before += int32(histogram[i*(l.width+1)+wanted-p]) + l.open[start-l.Start[from-l.from]+int64(p)]
			l.Count[start+int64(p)] += before
		}
	}
	return nil
}

// collectOnDevice is collect by tensor operations: a score is open if, as far as
// it is sure, it may be among the k best of its tile and better than the k-th
// best so far.
func (e *engine) collectOnDevice(best *knn.Best, from, to int) error {
	return e.onDevice(from, to, func(b *deviceBlock) deviceWork { return &finding{b, best, b.from - from} })
}

// finding is the work of a block of queries, whose first is query row of the
// collections.
type finding struct {
	*deviceBlock
	best *knn.Best
	row  int
}

func (f *finding) tile(scores *torch.Tensor, other knn.Side, low int) error {
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
	list, all, err := f.places(scores.Ge(least))
	if err != nil {
		return err
	}
	if all {
		return f.offer(f.best, f.row, f.from, f.to, low, low+other.Len())
	}
	f.progress.add(int(n * m))
	return f.byQueries(list, m, func(list []int64) error {
		return f.best.Offer(f.scorer, f.side, other, f.row, list)
	})
}

func (f *finding) end() error { return nil }
