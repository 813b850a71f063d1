package eval

import (
	"cmp"
	"math"
	"slices"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
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

// wantedRanks is the items whose ranks are wanted, of queries [from, to) at one
// level of labels.
type wantedRanks struct {
	from, to int
	items    knn.Wanted // of all these queries; once finished, Count holds ranks
	own      []float32  // [to-from] score of each query with itself; only where it is a gallery item
}

// newWantedRanks scores the wanted items of queries [from, to) and sorts them.
func (c *comparison) newWantedRanks(r relevance, from, to int) (*wantedRanks, error) {
	w := &wantedRanks{from: from, to: to, own: make([]float32, to-from)}
	w.items.Start = make([]int64, to-from+1)
	for i := from; i < to; i++ {
		w.items.Start[i-from+1] = w.items.Start[i-from] + int64(r.wanted(i))
	}
	n := w.items.Start[to-from]
	w.items.Score, w.items.Item, w.items.Count = make([]float32, n), make([]int32, n), make([]int32, n)
	if c.ties != rank.ByIndex && c.ties != "" { // else the limits are the items' numbers
		w.items.Limit = make([]int32, n)
		query, gallery := r.labels()
		w.items.Label, w.items.Other = query[from:to], gallery
	}
	var tasks []group
	for _, g := range r.groups(from, to) {
		for queries := range slices.Chunk(g.queries, fewRows) {
			tasks = append(tasks, group{queries, g.items})
		}
	}
	return w, c.pool.run(len(tasks), func(by *worker, i int) error { return w.score(c, by, tasks[i]) })
}

// score fills in the scores of one group.
func (w *wantedRanks) score(c *comparison, by *worker, g group) error {
	if err := c.queries.gather(by, g.queries, by.few); err != nil {
		return err
	}
	filled := make([]int64, len(g.queries))
	for items := range slices.Chunk(g.items, readRows) {
		if err := c.gallery.gather(by, items, by.rows); err != nil {
			return err
		}
		if err := c.scorer.Scores(by.few.Side(0, len(g.queries), 0), by.rows.Side(0, len(items), 0), by.scores); err != nil {
			return err
		}
		for i, query := range g.queries {
			for j, item := range items {
				value := by.scores[i*len(items)+j]
				if c.same && item == query {
					w.own[int(query)-w.from] = value
					continue
				}
				at := w.start(int(query)) + filled[i]
				w.items.Score[at], w.items.Item[at] = value, item
				filled[i]++
			}
		}
	}
	for _, query := range g.queries {
		from, to := w.start(int(query)), w.start(int(query)+1)
		by.sort(w.items.Score[from:to], w.items.Item[from:to])
		if w.items.Limit == nil {
			continue
		}
		for at := from; at < to; at++ {
			w.items.Limit[at] = c.ties.Limit(w.items.Item[at])
		}
	}
	return nil
}

// sort orders items by descending score, then ascending number.
func (w *worker) sort(score []float32, item []int32) {
	w.keys = w.keys[:0]
	for i, v := range score {
		w.keys = append(w.keys, rankedKey(v, item[i]))
	}
	slices.Sort(w.keys)
	for i, k := range w.keys {
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

// finish turns finished counts into ranks, ascending for each query.
func (w *wantedRanks) finish(c *comparison) error {
	w.items.Total()
	return c.pool.runChunks(w.to-w.from, readRows, func(_ *worker, from, to int) error {
		for row := from; row < to; row++ {
			own := rank.Candidate{Score: float64(w.own[row]), Index: int32(w.from + row), Relevant: true}
			for at := w.items.Start[row]; at < w.items.Start[row+1]; at++ {
				item := rank.Candidate{Score: float64(w.items.Score[at]), Index: w.items.Item[at], Relevant: true}
				w.items.Count[at]++ // ranks count from 1
				if c.same && c.ties.Before(own, item) {
					w.items.Count[at]-- // the query's own row was counted too
				}
			}
		}
		return nil
	})
}

// start is where a query's items begin in the lists.
func (w *wantedRanks) start(query int) int64 { return w.items.Start[query-w.from] }

// of is the items of a query, by number, and their ranks.
func (w *wantedRanks) of(query int) (items, ranks []int32) {
	from, to := w.start(query), w.start(query+1)
	return w.items.Item[from:to:to], w.items.Count[from:to:to]
}

// part is the wanted items of queries [from, to), compared with gallery items
// [low, high).
func (w *wantedRanks) part(from, to, low, high int) knn.Wanted {
	a, b := w.start(from), w.start(to)
	part := knn.Wanted{
		Start: w.items.Start[from-w.from : to-w.from+1],
		Score: w.items.Score[a:b],
		Item:  w.items.Item[a:b],
		Count: w.items.Count[a:b],
	}
	if w.items.Limit != nil {
		part.Limit = w.items.Limit[a:b]
		part.Label, part.Other = w.items.Label[from-w.from:to-w.from], w.items.Other[low:high]
	}
	return part
}
