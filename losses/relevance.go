package losses

import (
	"roadmap/pkg/torch"
)

// relevance says for every query which gallery entries are positives, which it
// never meets, and that the others are negatives.
type relevance struct {
	gallery int       // entries
	members [][]int32 // columns of each class, ascending
	class   []int32   // of each query: index into members; -1: the gallery has none of it
	column  []int32   // class of each gallery entry, numbered as class is; -2: no query has it
	never   [][]int32 // columns that a query never meets, ascending; nil: none for any query
}

// byLabel is the relevance of equal labels. Labels are numbered in the order
// in which they come, so any int64 is exact on any device.
func byLabel(queries, gallery []int64) *relevance {
	r := &relevance{gallery: len(gallery), class: make([]int32, len(queries)), column: make([]int32, len(gallery))}
	number := make(map[int64]int32, len(queries))
	for _, label := range queries {
		if _, known := number[label]; !known {
			number[label] = int32(len(number))
		}
	}
	r.members = make([][]int32, len(number))
	for j, label := range gallery {
		c, known := number[label]
		if !known {
			r.column[j] = -2
			continue
		}
		r.column[j] = c
		r.members[c] = append(r.members[c], int32(j))
	}
	for i, label := range queries {
		r.class[i] = number[label]
	}
	return r
}

// exclude makes query i never meet the columns (ascending).
func (r *relevance) exclude(i int, columns ...int32) {
	if r.never == nil {
		r.never = make([][]int32, len(r.class))
	}
	r.never[i] = append(r.never[i], columns...)
}

// of calls f with each positive of query i, ascending.
func (r *relevance) of(i int, f func(column int32)) {
	var never []int32
	if r.never != nil {
		never = r.never[i]
	}
	for _, j := range r.members[r.class[i]] {
		for len(never) > 0 && never[0] < j {
			never = never[1:]
		}
		if len(never) == 0 || never[0] != j {
			f(j)
		}
	}
}

// count is |P_i|.
func (r *relevance) count(i int) int {
	n := 0
	r.of(i, func(int32) { n++ })
	return n
}

// masks are the positives and the negatives of the n queries from first, [n, g] Bool.
func (r *relevance) masks(s *torch.Scope, device torch.Device, first, n int) (positive, negative *torch.Tensor) {
	rows := torch.From(s, r.class[first:first+n], int64(n), 1).ToDevice(device)
	columns := torch.From(s, r.column, 1, int64(r.gallery)).ToDevice(device)
	positive = rows.Eq(columns)
	negative = positive.Not()
	if r.never == nil {
		return positive, negative
	}
	var row, column []int64
	for i, never := range r.never[first : first+n] {
		for _, j := range never {
			row, column = append(row, int64(i)), append(column, int64(j))
		}
	}
	if len(row) > 0 {
		at := []*torch.Tensor{torch.From(s, row).ToDevice(device), torch.From(s, column).ToDevice(device)}
		none := torch.From(s, []bool{false}).ToDevice(device)
		positive.IndexPutInPlace(none, false, at...)
		negative.IndexPutInPlace(none, false, at...)
	}
	return positive, negative
}

// positives are the columns of the positives of the block's queries, padded
// with column 0 to the largest number p of them: [q, p] int64; which of them
// are real: [q, p] Bool; and max(1, |P_i|): [q].
func (r *relevance) positives(scores *torch.Tensor, first int) (index, real, count *torch.Tensor) {
	s, device, q := scores.Scope(), scores.Device(), int(scores.Size(0))
	p := 1
	counts := make([]int64, q)
	for i := range q {
		counts[i] = int64(r.count(first + i))
		p = max(p, int(counts[i]))
	}
	columns, valid := make([]int64, q*p), make([]bool, q*p)
	for i := range q {
		k := i * p
		r.of(first+i, func(column int32) {
			columns[k], valid[k] = int64(column), true
			k++
		})
		counts[i] = max(counts[i], 1)
	}
	index = torch.From(s, columns, int64(q), int64(p)).ToDevice(device)
	real = torch.From(s, valid, int64(q), int64(p)).ToDevice(device)
	return index, real, torch.From(s, counts).To(device, scores.DType())
}
