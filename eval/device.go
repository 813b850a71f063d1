package eval

import (
	"math"
	"sort"

	"roadmap/pkg/torch"
)

// On a GPU the same counting is done by tensor operations: the product of a block
// of queries with a block of the gallery in float32, two binary searches of each
// score among the query's wanted items (moved down and up by the distance
// within which the score is sure), and a histogram. Where the two searches
// differ, the exact score decides on the CPU, so the result is the CPU's.

const (
	denseWanted     = 256 // wanted items a query beyond which too many scores would be open
	deviceQueries   = 4096
	bytesPerScore   = 64 // of a tile, with everything computed from it
	tileBytesOnHost = 64 << 20
)

// usesDevice tells whether tensor operations are to count.
func (e *engine) usesDevice(levels []relevance) bool {
	if !e.device.IsCUDA() && !e.tensors {
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
		return tileBytesOnHost / bytesPerScore, nil
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

// countOnDevice is count by tensor operations; counts are whole, not yet to be totalled.
func (e *engine) countOnDevice(panels []*panel) error {
	elements, err := e.tileElements()
	if err != nil {
		return err
	}
	from, to := panels[0].from, panels[0].to
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
		if err := e.countBlock(panels, side, memory[1], at, end, items); err != nil {
			return err
		}
	}
	for _, p := range panels {
		p.whole = true
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

// ladder is the wanted items of a block of queries on the device.
type ladder struct {
	*panel
	low, high *torch.Tensor // [queries, width] their scores, ascending, moved down and up; +inf behind
	histogram *torch.Tensor // [queries · (width+1)] how many scores are above so many of them
	width     int
	open      []int32 // what the exact score has decided: at the first item that is ranked after
}

func (e *engine) countBlock(panels []*panel, side torch.KNNSide, memory *torch.KNNRows, from, to, items int) error {
	if err := e.pool.ctx.Err(); err != nil {
		return err
	}
	block := torch.NewScope()
	defer block.Close()
	floats, width := side.Floats(e.knn)
	band := e.deviceBand(width)
	x := torch.From(block, floats, int64(to-from), int64(width)).ToDevice(e.device)
	ladders := make([]*ladder, len(panels))
	for v, p := range panels {
		ladders[v] = newLadder(block, p, from, to, band, e.device)
	}
	for low := 0; low < e.gallery.rows; low += items {
		high := min(low+items, e.gallery.rows)
		other, err := e.gallery.run(e.pool, memory, low, high)
		if err != nil {
			return err
		}
		if err := e.countTile(block, x, ladders, side, other, from, low); err != nil {
			return err
		}
		e.progress.add((to - from) * (high - low))
	}
	for _, l := range ladders {
		if err := l.total(from, to); err != nil {
			return err
		}
	}
	return block.Err()
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

// countTile compares a block of queries with a block of the gallery.
func (e *engine) countTile(block *torch.Scope, x *torch.Tensor, ladders []*ladder, side, other torch.KNNSide, from, low int) error {
	tile := block.Child()
	defer tile.Close()
	floats, width := other.Floats(e.knn)
	y := torch.From(tile, floats, int64(other.Len()), int64(width)).ToDevice(e.device)
	scores := x.ProductFloat32(y) // [queries, items]
	if e.knnOptions.L2 {
		scores = scores.MulScalar(2).Sub(x.Square().SumDim([]int64{1}, true)).Sub(y.Square().SumDim([]int64{1}, false))
	}
	n, m := int64(side.Len()), int64(other.Len())
	for _, l := range ladders {
		if l.width == 0 {
			continue
		}
		sure := l.high.SearchSorted(scores, false, false, "left", nil) // items surely before the score, from the last
		most := l.low.SearchSorted(scores, false, true, "right", nil)
		open := sure.Ne(most)
		rows := tile.ArangeFrom(0, float64(n), 1, torch.Int64, e.device).MulScalar(float64(l.width + 1)).Unsqueeze(1)
		bins := sure.MaskedFill(open, 0).Add(rows).Flatten(0, 1)
		l.histogram.AddInPlace(bins.Bincount(nil, n*int64(l.width+1)))
		places, err := tile.ArangeFrom(0, float64(n*m), 1, torch.Int64, e.device).MaskedSelect(open.Flatten(0, 1)).Int64s()
		if err != nil {
			return err
		}
		for _, place := range places {
			i, j := int(place/m), int(place%m)
			l.settle(e.knn.Pair(side, i, other, j), i, from, low+j, e.knnOptions.Ties)
		}
	}
	return tile.Err()
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
