package eval

import (
	"slices"

	"roadmap/eval/knn"
	"roadmap/pkg/torch"
)

// deviceCounter compares by tensor operations, on a GPU: the product of a block
// of queries with a block of the gallery in float32 is within a known distance of
// the exact scores. What that leaves open the exact score decides on the CPU, so
// the result is the CPU's.
type deviceCounter struct {
	c         *comparison
	cpu       *cpuCounter // for tiles of which too much is open
	device    torch.Device
	tileBytes int64 // what a tile may take on the device
	mostOpen  int64 // more open scores than one in so many leave a tile to the CPU
}

const (
	longestOnDevice = 256 // items of a query, wanted or to be found, beyond which too many scores would be open
	deviceQueries   = 4096
	// bytesPerScore is what a score of a tile takes, its temporaries included: 4 bytes
	// each for itself, two places among wanted items and its number, 1 for whether it
	// is open, and as much again as what libtorch takes underway might be.
	bytesPerScore = 32
	// mostOpen: where more than one in so many of a tile's scores is open, the CPU
	// takes less time for the whole tile than for single pairs.
	mostOpen = 64
)

// suitsDevice tells whether tensor operations are of use. Below 2^-30 scores
// come near underflow, and the distance between them is not known; a tile's tables
// are as wide as the longest list of wanted items.
func suitsDevice(c *comparison, longest func() int) bool {
	return c.scorer.Longest() >= 0x1p-30 && longest() <= longestOnDevice
}

func newDeviceCounter(c *comparison, device torch.Device) (*deviceCounter, error) {
	m, err := torch.Memory(device)
	if err != nil {
		return nil, err
	}
	bytes := min((m.Free+m.Reserved-m.Allocated)/2, 4<<30)
	return &deviceCounter{c: c, cpu: &cpuCounter{c}, device: device, tileBytes: bytes, mostOpen: mostOpen}, nil
}

func (d *deviceCounter) pairs(int) int64 { return int64(d.c.queries.rows) * int64(d.c.gallery.rows) }

// tileSize is how many of so many queries and of the gallery's items make a
// tile on the device, rows and their squares included; on the host, where rows
// are made anew, they take no more than the memory for what grows with the input,
// or a few are.
func (d *deviceCounter) tileSize(queries int) (int, int) {
	items, row := d.c.gallery.rows, d.c.scorer.BytesPerRow()
	if d.c.gallery.kept == nil {
		most := int(max(readRows, d.c.memory/2/row))
		queries, items = min(queries, most), min(items, most)
	}
	queries = min(queries, deviceQueries)
	return queries, int(max(1, min(int64(items), d.tileBytes/(int64(queries)*bytesPerScore+2*row))))
}

// band is how far a float32 product of rows of a width, summed in any order, may
// be from the exact score: fewer than width roundings there and width/16 + 5
// here, of sums that are at most the square of the longest row; for L2 twice the
// product, two sums of squares and scores of up to four times that square.
func (d *deviceCounter) band(width int) float32 {
	n := float64(d.c.scorer.Longest())
	roundings := 1.1*float64(width) + 128
	if d.c.distance == L2 {
		roundings = 5*float64(width) + 512
	}
	return float32(n * n * roundings * 0x1p-24)
}

// deviceBlock is the queries [from, to) that are scored together.
type deviceBlock struct {
	from, to int
	side     knn.Side
	x        *torch.Tensor // [queries, width], twice the rows for L2
	squares  *torch.Tensor // [queries, 1], of their lengths; for L2
	band     float32       // how far a score may be from the exact one
}

// deviceTile is the scores of a block with some gallery items.
type deviceTile struct {
	scores *torch.Tensor // [queries, items]
	items  knn.Side
	low    int // number of the first item
}

// tileWork is what is done with the tiles of a block.
type tileWork interface {
	tile(t deviceTile) error
	end() error // after the last tile
}

// blocks scores queries [from, to) with the whole gallery, block by block;
// begin says what is to be done with a block's tiles.
func (d *deviceCounter) blocks(from, to int, begin func(b *deviceBlock) tileWork) error {
	queries, items := d.tileSize(to - from)
	var spare [2]*knn.Rows // for rows that are made anew
	for i, n := range []int{queries, items} {
		if d.c.queries.kept != nil {
			n = 1
		}
		rows, err := d.c.scorer.Rows(n)
		if err != nil {
			return err
		}
		defer rows.Close()
		spare[i] = rows
	}
	for at := from; at < to; at += queries {
		end := min(at+queries, to)
		side, err := d.c.queries.many(d.c.pool, spare[0], at, end)
		if err != nil {
			return err
		}
		if err := d.tiles(&deviceBlock{from: at, to: end, side: side}, begin, spare[1], items); err != nil {
			return err
		}
	}
	return nil
}

// tiles scores a block with the gallery, so many items at a time.
func (d *deviceCounter) tiles(b *deviceBlock, begin func(b *deviceBlock) tileWork, spare *knn.Rows, items int) error {
	s := torch.NewScope()
	defer s.Close()
	b.x = d.rows(s, b.side)
	b.band = d.band(int(b.x.Size(1)))
	if d.c.distance == L2 {
		b.squares = b.x.Square().SumDim([]int64{1}, true)
		b.x = b.x.MulScalar(2)
	}
	work := begin(b)
	for low := 0; low < d.c.gallery.rows; low += items {
		if err := d.c.pool.ctx.Err(); err != nil {
			return err
		}
		side, err := d.c.gallery.many(d.c.pool, spare, low, min(low+items, d.c.gallery.rows))
		if err != nil {
			return err
		}
		if err := d.score(s, b, work, side, low); err != nil {
			return err
		}
	}
	return work.end()
}

// score scores a block with some items and hands the tile over.
func (d *deviceCounter) score(block *torch.Scope, b *deviceBlock, work tileWork, items knn.Side, low int) error {
	s := block.Child()
	defer s.Close()
	y := d.rows(s, items)
	scores := b.x.ProductFloat32(y)
	if d.c.distance == L2 {
		scores.SubInPlace(b.squares).SubInPlace(y.Square().SumDim([]int64{1}, false))
	}
	if err := work.tile(deviceTile{scores, items, low}); err != nil {
		return err
	}
	return s.Err()
}

// rows puts a side's rows on the device, [rows, width].
func (d *deviceCounter) rows(s *torch.Scope, side knn.Side) *torch.Tensor {
	floats, width := side.Floats(d.c.scorer)
	return torch.From(s, floats, int64(side.Len()), int64(width)).ToDevice(d.device)
}

// places is where a tile's scores are open, in the order of its elements; all
// is set, and no place given, where they are too many to be decided one by one.
func (d *deviceCounter) places(open *torch.Tensor) (list []int64, all bool, err error) {
	s := open.Scope().Child()
	defer s.Close()
	open = open.Alias(s).Flatten(0, 1)
	count, err := open.Sum().Int64s()
	if err != nil || count[0] == 0 {
		return nil, false, err
	}
	if count[0] > open.Numel()/d.mostOpen {
		return nil, true, nil
	}
	numbers := s.ArangeFrom(0, float64(open.Numel()), 1, torch.Int32, open.Device())
	list, err = numbers.MaskedSelect(open).ToDType(torch.Int64).Int64s()
	return list, false, err
}

// byQueries shares the places in a tile of a block out, each query's to one goroutine.
func (d *deviceCounter) byQueries(b *deviceBlock, t deviceTile, list []int64, use func(list []int64) error) error {
	const share = 64 // queries at a time
	items := int64(t.items.Len())
	return d.c.pool.runChunks(b.to-b.from, share, func(_ *worker, first, last int) error {
		from, _ := slices.BinarySearch(list, int64(first)*items)
		to, _ := slices.BinarySearch(list, int64(last)*items)
		return use(list[from:to])
	})
}
