package score

import (
	"bytes"

	"roadmap/pkg/torch"
)

// twins knows which rows are equal to the bit. A matrix product adds up the
// elements of a row in an order that depends on where the row stands in the
// matrix, so equal rows may get scores that differ in the last bit, and a tie
// would be none. twins gives the scores of the first of several equal gallery
// rows to all of them, and the score 1 to a query's own row wherever it stands.
type twins struct {
	copies, originals *torch.Tensor   // columns [n] int64: scores of copies are those of originals; nil: no copies
	equal             map[int][]int32 // of queries: the first of the gallery rows equal to them
	own               bool            // query i is gallery row i, and equal has only those that are copies
}

// findTwins compares the rows of query and gallery [·, d], which may be one
// tensor, or the first rows of the gallery if own.
func findTwins(query, gallery *torch.Tensor, own bool) (*twins, error) {
	rows, err := hashRows(gallery)
	if err != nil {
		return nil, err
	}
	t := &twins{equal: map[int][]int32{}, own: own}
	first, err := rows.group()
	if err != nil {
		return nil, err
	}
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
	if own {
		for i := range int(query.Size(0)) {
			if f := first[i]; f != i {
				t.equal[i] = []int32{int32(f)}
			}
		}
		return t, nil
	}
	queries, err := hashRows(query)
	if err != nil {
		return nil, err
	}
	for i, hash := range queries.hash {
		f, found, err := rows.find(hash, queries, i)
		if err != nil {
			return nil, err
		}
		if found {
			t.equal[i] = []int32{int32(f)}
		}
	}
	return t, nil
}

// settle makes ties of equal rows ties: scores [n, g] are those of the n
// queries from first. unit says that rows have length 1.
func (t *twins) settle(scores *torch.Tensor, first int, unit bool) {
	n := scores.Size(0)
	if unit && t.own {
		scores.Narrow(1, int64(first), n).FillDiagonalInPlace(1)
	}
	if unit && len(t.equal) > 0 {
		one := scores.Scope().Ones([]int64{1}, scores.DType(), scores.Device())
		put(scores, one, int(n), func(i int) []int32 { return t.equal[first+i] })
	}
	const step = 64 // queries at once, so that what is on its way takes little memory
	for at := int64(0); t.copies != nil && at < n; at += step {
		t.copy(scores, at, min(step, n-at)) // the 1 of a query's first twin too
	}
}

// copy gives copies the scores of their originals, for n queries from first.
func (t *twins) copy(scores *torch.Tensor, first, n int64) {
	s := scores.Scope().Child()
	defer s.Close()
	rows := scores.Alias(s).Narrow(0, first, n)
	rows.IndexCopyInPlace(1, t.copies, rows.IndexSelect(1, t.originals))
}

// hashes finds rows by a hash of their bytes, and looks at the bytes only where
// hashes are equal.
type hashes struct {
	rows  *torch.Tensor
	hash  []uint64
	first map[uint64][]int // the first of each distinct content, by hash; almost always one
}

func hashRows(rows *torch.Tensor) (*hashes, error) {
	hash, err := hashOf(rows)
	return &hashes{rows: rows, hash: hash}, err
}

// group returns for each row the first row of the same content.
func (h *hashes) group() (first []int, err error) {
	h.first = make(map[uint64][]int, len(h.hash))
	first = make([]int, len(h.hash))
	store := make([]int, len(h.hash)) // room for one first row under each hash
	for i, hash := range h.hash {
		f, found, err := h.find(hash, h, i)
		switch {
		case err != nil:
			return nil, err
		case !found:
			first[i], store[i] = i, i
			if others := h.first[hash]; others == nil {
				h.first[hash] = store[i : i+1 : i+1]
			} else {
				h.first[hash] = append(others, i)
			}
		default:
			first[i] = f
		}
	}
	return first, nil
}

// find returns the first row of h that has the content of row i of other.
func (h *hashes) find(hash uint64, other *hashes, i int) (first int, found bool, err error) {
	candidates := h.first[hash]
	if candidates == nil {
		return 0, false, nil
	}
	want, err := other.rows.Narrow(0, int64(i), 1).ReadBytes()
	if err != nil {
		return 0, false, err
	}
	for _, f := range candidates {
		have, err := h.rows.Narrow(0, int64(f), 1).ReadBytes()
		if err != nil {
			return 0, false, err
		}
		if bytes.Equal(have, want) {
			return f, true, nil
		}
	}
	return 0, false, nil
}
