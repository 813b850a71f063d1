package eval

import (
	"cmp"
	"math"
	"slices"

	"roadmap/eval/knn"
)

// relevance says which gallery items are wanted by which query: those whose
// ranks are to be found.
type relevance interface {
	// wanted is the number of items that a query wants, itself left out.
	wanted(query int) int
	// groups covers queries [from, to): each of a group's queries wants each of
	// its items but itself, and nothing else.
	groups(from, to int) []group
	// labels of queries and gallery items; nil where none decide about ties.
	labels() (query, gallery []int64)
}

// group is queries that want the same items, both ascending.
type group struct{ queries, items []int32 }

// byLabel: an item is wanted where its label equals the query's.
type byLabel struct {
	query, gallery []int64
	same           bool             // query i is gallery item i
	order          []int32          // gallery items by label, then number
	span           map[int64][2]int // of each label in order
}

func newByLabel(query, gallery []int64, same bool) *byLabel {
	r := &byLabel{query: query, gallery: gallery, same: same, order: make([]int32, len(gallery)), span: map[int64][2]int{}}
	for i := range r.order {
		r.order[i] = int32(i)
	}
	slices.SortFunc(r.order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(gallery[a], gallery[b]), cmp.Compare(a, b))
	})
	for at := 0; at < len(r.order); {
		label, end := gallery[r.order[at]], at
		for end < len(r.order) && gallery[r.order[end]] == label {
			end++
		}
		r.span[label] = [2]int{at, end}
		at = end
	}
	return r
}

func (r *byLabel) wanted(query int) int {
	span := r.span[r.query[query]]
	n := span[1] - span[0]
	if r.same {
		n--
	}
	return n
}

func (r *byLabel) groups(from, to int) []group {
	at := map[int64]int{}
	var all []group
	for i := from; i < to; i++ {
		if r.wanted(i) == 0 {
			continue
		}
		label := r.query[i]
		n, ok := at[label]
		if !ok {
			n = len(all)
			at[label] = n
			span := r.span[label]
			all = append(all, group{items: r.order[span[0]:span[1]]})
		}
		all[n].queries = append(all[n].queries, int32(i))
	}
	return all
}

func (r *byLabel) labels() (query, gallery []int64) { return r.query, r.gallery }

// byList: each query has a list of its own; queries are no gallery items.
type byList [][]int32

func (r byList) wanted(query int) int { return len(r[query]) }

func (r byList) groups(from, to int) []group {
	var all []group
	for i := from; i < to; i++ {
		if len(r[i]) > 0 {
			all = append(all, group{[]int32{int32(i)}, r[i]})
		}
	}
	return all
}

func (r byList) labels() (query, gallery []int64) { return nil, nil }

// panel is the wanted items of queries [from, to) at one level, with scores.
type panel struct {
	knn.Wanted
	from, to int
	whole    bool      // counts need no total
	own      []float32 // [to-from] score of each query with itself; only where it is a gallery item
}

// newPanel scores the wanted items of queries [from, to) and sorts them.
func (e *engine) newPanel(r relevance, from, to int) (*panel, error) {
	p := &panel{from: from, to: to, own: make([]float32, to-from)}
	p.Start = make([]int64, to-from+1)
	for i := from; i < to; i++ {
		p.Start[i-from+1] = p.Start[i-from] + int64(r.wanted(i))
	}
	n := p.Start[to-from]
	p.Score, p.Item, p.Count = make([]float32, n), make([]int32, n), make([]int32, n)
	if e.scoring.Ties != knn.ByIndex {
		query, gallery := r.labels()
		p.Label, p.Other = query[from:to], gallery
	}
	var tasks []group
	for _, g := range r.groups(from, to) {
		for queries := range slices.Chunk(g.queries, fewRows) {
			tasks = append(tasks, group{queries, g.items})
		}
	}
	return p, e.pool.run(len(tasks), func(s *scratch, i int) error { return e.score(s, p, tasks[i]) })
}

// score fills in the scores of one group.
func (e *engine) score(s *scratch, p *panel, g group) error {
	if err := e.queries.gather(s, g.queries, s.few); err != nil {
		return err
	}
	filled := make([]int64, len(g.queries))
	for items := range slices.Chunk(g.items, readRows) {
		if err := e.gallery.gather(s, items, s.made); err != nil {
			return err
		}
		if err := e.scorer.Scores(s.few.Side(0, len(g.queries), 0), s.made.Side(0, len(items), 0), s.scores); err != nil {
			return err
		}
		for i, query := range g.queries {
			row := int(query) - p.from
			for j, item := range items {
				value := s.scores[i*len(items)+j]
				if e.same && item == query {
					p.own[row] = value
					continue
				}
				at := p.Start[row] + filled[i]
				p.Score[at], p.Item[at] = value, item
				filled[i]++
			}
		}
	}
	for _, query := range g.queries {
		row := int(query) - p.from
		s.sort(p.Score[p.Start[row]:p.Start[row+1]], p.Item[p.Start[row]:p.Start[row+1]])
	}
	return nil
}

// sort orders items by descending score, then ascending number.
func (s *scratch) sort(score []float32, item []int32) {
	s.keys = s.keys[:0]
	for i, v := range score {
		s.keys = append(s.keys, rankedKey(v, item[i]))
	}
	slices.Sort(s.keys)
	for i, k := range s.keys {
		score[i], item[i] = keyScore(k), int32(uint32(k))
	}
}

// rankedKey is a number that ascends as the score descends, then with the item.
func rankedKey(score float32, item int32) uint64 {
	bits := math.Float32bits(score + 0) // -0 and 0 are one score
	if bits>>31 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 31
	}
	return uint64(^bits)<<32 | uint64(uint32(item))
}

// keyScore is the score in a rankedKey.
func keyScore(key uint64) float32 {
	bits := ^uint32(key >> 32)
	if bits>>31 != 0 {
		return math.Float32frombits(bits &^ (1 << 31))
	}
	return math.Float32frombits(^bits)
}

// rank turns finished counts into ranks, ascending for each query.
func (p *panel) rank(same bool) {
	if !p.whole {
		knn.Total(p.Wanted)
	}
	for row := range p.to - p.from {
		query := int32(p.from + row)
		for at := p.Start[row]; at < p.Start[row+1]; at++ {
			p.Count[at]++ // ranks count from 1
			if same && (p.own[row] > p.Score[at] || p.own[row] == p.Score[at] && query < p.Item[at]) {
				p.Count[at]-- // the query's own row was counted too
			}
		}
	}
}

// of is the part of a list that belongs to a row of the panel.
func (p *panel) of(row int, list []int32) []int32 {
	return list[p.Start[row]:p.Start[row+1]:p.Start[row+1]]
}
