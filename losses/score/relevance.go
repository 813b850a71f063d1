package score

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// relevance says for every query which gallery entries are positives, which are
// excluded, and that the others are negatives.
type relevance struct {
	gallery  int       // entries
	class    []int32   // of each query: index into members
	members  [][]int32 // columns of each class, ascending
	column   []int32   // class of each gallery entry, -1 where no query has it; nil if an entry may be in several
	excluded [][]int32 // of each query: columns that do not count, ascending; nil: none of any query

	counts []int  // |P_i|, once counted
	flat   *lists // the same for the kernels, made when first asked for
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

// exclude leaves columns (ascending) out for query i.
func (r *relevance) exclude(i int, columns ...int32) {
	if r.excluded == nil {
		r.excluded = make([][]int32, len(r.class))
	}
	r.excluded[i] = append(r.excluded[i], columns...)
}

// excludeSame leaves gallery entries of a query's own id out; those of the ids
// given begin at column first.
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

func (r *relevance) excludedOf(i int) []int32 {
	if r.excluded == nil {
		return nil
	}
	return r.excluded[i]
}

// of calls f with each positive of query i, ascending.
func (r *relevance) of(i int, f func(column int32)) {
	excluded := r.excludedOf(i)
	for _, j := range r.members[r.class[i]] {
		for len(excluded) > 0 && excluded[0] < j {
			excluded = excluded[1:]
		}
		if len(excluded) == 0 || excluded[0] != j {
			f(j)
		}
	}
}

// count counts the positives of every query, once the relevance is complete.
func (r *relevance) count() {
	r.counts = make([]int, len(r.class))
	for i := range r.counts {
		r.of(i, func(int32) { r.counts[i]++ })
	}
}

// lists are the relevance as the kernels take it.
func (r *relevance) lists() *lists {
	if r.flat != nil {
		return r.flat
	}
	l := &lists{classOf: r.class}
	l.members, l.classAt = concat(r.members)
	l.excluded, l.excludedAt = concat(r.excluded)
	r.flat = l
	return l
}

// concat puts lists behind each other; list i is flat[at[i]:at[i+1]].
func concat(lists [][]int32) (flat []int32, at []int64) {
	at = make([]int64, 1, len(lists)+1)
	for _, l := range lists {
		flat = append(flat, l...)
		at = append(at, int64(len(flat)))
	}
	return flat, at
}

// split takes the scores of queries first, first+1, … apart by tensor
// operations: see Block.
func (r *relevance) split(scores *torch.Tensor, first int, shape []int64) (positives, negatives, columns *torch.Tensor) {
	s, device, p := scores.Scope(), scores.Device(), int(shape[1])
	at, real := make([]int64, int(shape[0])*p), make([]bool, int(shape[0])*p)
	for i := range int(shape[0]) {
		k := i * p
		r.of(first+i, func(column int32) {
			at[k], real[k] = int64(column), true
			k++
		})
	}
	columns = torch.From(s, at, shape...).ToDevice(device)
	nothing := s.Full(nil, noEntry, scores.DType(), device)
	positives = torch.From(s, real, shape...).ToDevice(device).Where(scores.Gather(1, columns), nothing)
	return positives, r.negative(s, device, first, int(shape[0])).Where(scores, nothing), columns
}

// join is Block.join by tensor operations.
func (r *relevance) join(scores *torch.Tensor, first int, b *Block, positives, negatives *torch.Tensor) {
	none := zero(scores)
	negative := r.negative(scores.Scope(), scores.Device(), first, len(b.counts))
	scores.CopyInPlace(negative.Where(negatives, none))
	scores.ScatterAddInPlace(1, b.columns, b.Real().Where(positives, none))
}

// negative says where the n queries from first have negatives, [n, g] Bool.
func (r *relevance) negative(s *torch.Scope, device torch.Device, first, n int) *torch.Tensor {
	no := torch.From(s, []bool{false}).ToDevice(device)
	var negative *torch.Tensor
	if r.column != nil {
		rows := torch.From(s, r.class[first:first+n], int64(n), 1).ToDevice(device)
		negative = rows.Ne(torch.From(s, r.column, 1, int64(r.gallery)).ToDevice(device))
	} else {
		negative = s.Ones([]int64{int64(n), int64(r.gallery)}, torch.Bool, device)
		put(negative, no, n, func(i int) []int32 { return r.members[r.class[first+i]] })
	}
	if r.excluded != nil {
		put(negative, no, n, func(i int) []int32 { return r.excluded[first+i] })
	}
	return negative
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
