package losses

import (
	"bytes"
	"hash/maphash"

	"roadmap/pkg/torch"
)

// twins knows which rows are equal to the bit. A matrix product adds up the
// elements of a row in an order that depends on where the row stands in the
// matrix, so equal rows may get scores that differ in the last bit, and a tie
// would be none. twins gives the scores of the first of several equal gallery
// rows to all of them, and the score 1 to a query's own row wherever it stands.
type twins struct {
	copies, originals *torch.Tensor // columns [n] int64: scores of copies are those of originals; nil: no copies
	equal             [][]int32     // of each query: the gallery rows equal to it
}

// findTwins compares the rows of query and gallery [·, d], which may be one tensor.
func findTwins(query, gallery *torch.Tensor) (*twins, error) {
	hashed, err := hashRows(gallery)
	if err != nil {
		return nil, err
	}
	first, groups := hashed.group()
	t := &twins{equal: make([][]int32, query.Size(0))}
	var copies, originals []int64
	for j, f := range first {
		if f != j {
			copies, originals = append(copies, int64(j)), append(originals, int64(f))
		}
	}
	if len(copies) > 0 {
		s, device := gallery.Scope(), gallery.Device()
		t.copies, t.originals = torch.From(s, copies).ToDevice(device), torch.From(s, originals).ToDevice(device)
	}
	if query == gallery {
		for i := range t.equal {
			t.equal[i] = groups[first[i]]
		}
		return t, nil
	}
	queries, err := hashRows(query)
	if err != nil {
		return nil, err
	}
	for i := range t.equal {
		if f, found := hashed.find(queries.row(i)); found {
			t.equal[i] = groups[f]
		}
	}
	return t, nil
}

// settle makes ties of equal rows ties: scores [n, g] are those of the n
// queries from first. unit says that rows have length 1.
func (t *twins) settle(scores *torch.Tensor, first int, unit bool) {
	if t.copies != nil {
		scores.IndexCopyInPlace(1, t.copies, scores.IndexSelect(1, t.originals))
	}
	if !unit {
		return
	}
	one := scores.Scope().Ones([]int64{1}, scores.DType(), scores.Device())
	put(scores, one, int(scores.Size(0)), func(i int) []int32 { return t.equal[first+i] })
}

// hashes finds rows by their bytes.
type hashes struct {
	data  []byte
	width int
	seed  maphash.Seed
	byKey map[uint64][]int32 // rows, the first of each distinct content
}

func hashRows(t *torch.Tensor) (*hashes, error) {
	data, err := t.ReadBytes()
	if err != nil {
		return nil, err
	}
	h := &hashes{data: data, width: len(data) / int(t.Size(0)), seed: maphash.MakeSeed()}
	return h, nil
}

func (h *hashes) row(i int) []byte { return h.data[i*h.width : (i+1)*h.width] }

// group returns for each row the first row of the same content, and by that
// first row all rows of it, ascending.
func (h *hashes) group() (first []int, groups map[int][]int32) {
	n := len(h.data) / h.width
	h.byKey = make(map[uint64][]int32, n)
	first, groups = make([]int, n), make(map[int][]int32, n)
	for i := range n {
		f, found := h.find(h.row(i))
		if !found {
			key := maphash.Bytes(h.seed, h.row(i))
			h.byKey[key] = append(h.byKey[key], int32(i))
			f = i
		}
		first[i] = f
		groups[f] = append(groups[f], int32(i))
	}
	return first, groups
}

func (h *hashes) find(row []byte) (first int, found bool) {
	for _, i := range h.byKey[maphash.Bytes(h.seed, row)] {
		if bytes.Equal(h.row(int(i)), row) {
			return int(i), true
		}
	}
	return 0, false
}
