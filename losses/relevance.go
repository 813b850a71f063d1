package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// relevance says for every query which gallery entries are positives, which it
// never meets, and that the others are negatives.
type relevance struct {
	gallery int       // entries
	class   []int32   // of each query: index into members
	members [][]int32 // columns of each class, ascending
	column  []int32   // class of each gallery entry, -1 where no query has it; nil if an entry may be in several
	never   [][]int32 // columns that a query never meets, ascending; nil: none for any query

	lists *torch.RankLists // the same for the fused pass, made when first asked for
}

// byLabel is the relevance of equal labels. Labels are numbered in the order
// in which they come, so any int64 is exact on any device.
func byLabel(queries, gallery []int64) *relevance {
	r := &relevance{gallery: len(gallery), class: make([]int32, len(queries)), column: make([]int32, len(gallery))}
	number := make(map[int64]int32, len(queries))
	for i, label := range queries {
		c, known := number[label]
		if !known {
			c = int32(len(number))
			number[label] = c
		}
		r.class[i] = c
	}
	r.members = make([][]int32, len(number))
	for j, label := range gallery {
		c, known := number[label]
		if !known {
			c = -1
		} else {
			r.members[c] = append(r.members[c], int32(j))
		}
		r.column[j] = c
	}
	return r
}

// byMask is the relevance that a matrix [q, g] of zeros and ones states. what
// names it in errors.
func byMask(matrix *torch.Tensor, what string) (*relevance, error) {
	values, err := matrix.Float64s()
	if err != nil {
		return nil, err
	}
	q, g := int(matrix.Size(0)), int(matrix.Size(1))
	r := &relevance{gallery: g, class: make([]int32, q), members: make([][]int32, q)}
	for i := range q {
		r.class[i] = int32(i)
		for j, v := range values[i*g : (i+1)*g] {
			switch v {
			case 0:
			case 1:
				r.members[i] = append(r.members[i], int32(j))
			default:
				return nil, fault.Inputf("%s: row %d, column %d is %g; want 1 for relevant and 0 for not", what, i, j, v)
			}
		}
	}
	return r, nil
}

// flatten makes one list of all rows, for relevance without exclusions.
func (r *relevance) flatten() *relevance {
	one := &relevance{gallery: r.gallery * len(r.class), class: []int32{0}, members: make([][]int32, 1)}
	for i, c := range r.class {
		for _, j := range r.members[c] {
			one.members[0] = append(one.members[0], int32(i*r.gallery)+j)
		}
	}
	return one
}

// exclude makes query i never meet the columns (ascending).
func (r *relevance) exclude(i int, columns ...int32) {
	if r.never == nil {
		r.never = make([][]int32, len(r.class))
	}
	r.never[i] = append(r.never[i], columns...)
}

// excludeSame makes queries never meet gallery entries of their own id; those
// of the ids given begin at column first.
func (r *relevance) excludeSame(queries, gallery []int64, first int) {
	at := make(map[int64][]int32, len(gallery))
	for j, id := range gallery {
		at[id] = append(at[id], int32(first+j))
	}
	for i, id := range queries {
		if own := at[id]; own != nil {
			r.exclude(i, own...)
		}
	}
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
	if r.never == nil {
		return len(r.members[r.class[i]])
	}
	n := 0
	r.of(i, func(int32) { n++ })
	return n
}

// flat is the relevance as the fused pass takes it.
func (r *relevance) flat() *torch.RankLists {
	if r.lists != nil {
		return r.lists
	}
	l := &torch.RankLists{ClassOf: r.class, ClassAt: make([]int64, 1, len(r.members)+1)}
	for _, members := range r.members {
		l.Members = append(l.Members, members...)
		l.ClassAt = append(l.ClassAt, int64(len(l.Members)))
	}
	if r.never != nil {
		l.NeverAt = make([]int64, 1, len(r.never)+1)
		for _, never := range r.never {
			l.Never = append(l.Never, never...)
			l.NeverAt = append(l.NeverAt, int64(len(l.Never)))
		}
	}
	r.lists = l
	return l
}

// masks are the positives and the negatives of the n queries from first, [n, g] Bool.
func (r *relevance) masks(s *torch.Scope, device torch.Device, first, n int) (positive, negative *torch.Tensor) {
	no := torch.From(s, []bool{false}).ToDevice(device)
	if r.column != nil {
		rows := torch.From(s, r.class[first:first+n], int64(n), 1).ToDevice(device)
		positive = rows.Eq(torch.From(s, r.column, 1, int64(r.gallery)).ToDevice(device))
	} else {
		positive = s.Zeros([]int64{int64(n), int64(r.gallery)}, torch.Bool, device)
		put(positive, no.Not(), n, func(i int) []int32 { return r.members[r.class[first+i]] })
	}
	negative = positive.Not()
	if r.never != nil {
		never := func(i int) []int32 { return r.never[first+i] }
		put(positive, no, n, never)
		put(negative, no, n, never)
	}
	return positive, negative
}

// put writes value into the columns of each of n rows of t.
func put(t, value *torch.Tensor, n int, columns func(row int) []int32) {
	var row, column []int64
	for i := range n {
		for _, j := range columns(i) {
			row, column = append(row, int64(i)), append(column, int64(j))
		}
	}
	if len(row) > 0 {
		s, device := t.Scope(), t.Device()
		t.IndexPutInPlace(value, false, torch.From(s, row).ToDevice(device), torch.From(s, column).ToDevice(device))
	}
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
