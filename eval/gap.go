package eval

import (
	"context"
	"slices"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// GapOptions are the bounds' parameters: positives are meant to score at least
// Alpha, negatives at most Beta (ROADMAP, Ramzi et al. 2021, eq. 7).
type GapOptions struct{ Alpha, Beta float64 }

// Gap is the decomposability gap of average precision over batches and its two
// bounds, as means over the queries that have positives.
type Gap struct {
	// AP is the mean AP over the whole set, InBatch the one within batches: of each
	// query over the batches that hold a positive of it, as the AP of a ranking
	// without one is not defined.
	AP, InBatch float64
	DG          float64 // InBatch - AP: eq. 6, which as printed divides by the number of all batches
	// Bound8 and Bound9 are eq. 8 and 9 with the batches in the order given.
	// They assume that the AP within every batch is 1.
	Bound8, Bound9 float64
	// Worst8 and Worst9 are bounds of eq. 8 and 9 in every order of the batches:
	// as many negatives precede each positive as can in any of them. With equal
	// batches Worst8 is eq. 8 in its worst order; otherwise, and for Worst9, it may
	// lie above that, never below. They bound DG whenever InBatch is 1, whatever
	// the order.
	Worst8, Worst9 float64
	Queries, Lone  int
	Batches        int
	PerQuery       []QueryGap // of each row that is in a batch, in the order of the batches
}

// QueryGap is the gap of one query; all zero where it is lone.
type QueryGap struct {
	Row                            int
	Lone                           bool
	AP, InBatch                    float64
	Bound8, Bound9, Worst8, Worst9 float64
}

// RandomBatches divides rows 0 … n-1 into batches of a size at random; the last
// may be smaller.
func RandomBatches(n, size int, seed uint64) [][]int {
	return slices.Collect(slices.Chunk(rng.New(seed).Perm(n), size))
}

// CheckGap finds what DecomposabilityGap would refuse before it compares anything.
func CheckGap(in Input, batches [][]int, g GapOptions, o Options) error {
	_, err := gapBatches(in, batches, g, o)
	return err
}

func gapBatches(in Input, list [][]int, g GapOptions, o Options) (*batches, error) {
	if in.Gallery != nil {
		return nil, fault.Inputf("gap: batches are drawn from one set of embeddings; give no gallery")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Distance == L2 {
		return nil, fault.Inputf("gap: alpha and beta are cosines; the gap is not defined for l2")
	}
	if cosine := func(v float64) bool { return v >= -1 && v <= 1 }; !cosine(g.Alpha) || !cosine(g.Beta) {
		return nil, fault.Inputf("gap: alpha %v, beta %v; give cosines from -1 to 1", g.Alpha, g.Beta)
	}
	if err := in.check(nil); err != nil {
		return nil, err
	}
	b, err := newBatches(in, list)
	if err != nil {
		return nil, err
	}
	o.Float32 = true
	if need := int64(len(b.rows)) * o.scorer(in.Query.Dim()).BytesPerRow(); need > o.memory() {
		return nil, fault.Inputf("gap: %s: %d rows are kept, which take %d MiB; give that much memory, or fewer batches", in.Query.Name(), len(b.rows), need>>20+1)
	}
	return b, nil
}

// DecomposabilityGap measures how far the mean AP within batches is above the AP
// over their union, which is what is evaluated: every row in a batch is a query,
// against all others, and against those of each batch in turn that holds a
// positive. A row in two batches, or in none that exists, is an input error.
// Progress counts the pairs of the comparison over all, then those by batch.
func DecomposabilityGap(ctx context.Context, in Input, batches [][]int, g GapOptions, o Options) (*Gap, error) {
	o.Ties = rank.ByIndex
	b, err := gapBatches(in, batches, g, o)
	if err != nil {
		return nil, err
	}
	union := Select(in.Query, b.rows)
	if o.Metrics, err = rank.ParseMetrics("map"); err != nil {
		return nil, err
	}
	whole, err := Run(ctx, Input{Query: union, QueryLabels: b.labels}, o)
	if err != nil {
		return nil, err
	}
	gap := &Gap{Queries: len(b.rows), Lone: whole.Lone, Batches: len(batches), PerQuery: make([]QueryGap, len(b.rows))}
	if err := b.measure(ctx, union, o.Metrics[0], whole.Levels[0].Rankings, g, o, gap.PerQuery); err != nil {
		return nil, err
	}
	gap.average()
	return gap, nil
}

// average takes the means over the queries.
func (g *Gap) average() {
	n := float64(g.Queries - g.Lone)
	for _, q := range g.PerQuery {
		if q.Lone {
			continue
		}
		g.AP += q.AP / n
		g.InBatch += q.InBatch / n
		g.Bound8 += q.Bound8 / n
		g.Bound9 += q.Bound9 / n
		g.Worst8 += q.Worst8 / n
		g.Worst9 += q.Worst9 / n
	}
	g.DG = g.InBatch - g.AP
}

// batches are rows batch by batch.
type batches struct {
	rows   []int   // of the matrix, batch after batch, ascending within each
	start  []int   // of each batch in rows; one more at the end
	labels []int64 // of rows
}

func newBatches(in Input, list [][]int) (*batches, error) {
	b := &batches{start: []int{0}}
	batchOf := map[int]int{}
	for i, batch := range list {
		if len(batch) == 0 {
			return nil, fault.Inputf("gap: batch %d is empty", i)
		}
		for _, row := range batch {
			if row < 0 || row >= in.Query.Rows() {
				return nil, fault.Inputf("gap: batch %d names row %d of %s, which has rows 0 to %d", i, row, in.Query.Name(), in.Query.Rows()-1)
			}
			if other, ok := batchOf[row]; ok {
				return nil, fault.Inputf("gap: row %d is in batch %d and in batch %d; a row may be in one", row, other, i)
			}
			batchOf[row] = i
		}
		b.rows = append(b.rows, slices.Sorted(slices.Values(batch))...)
		b.start = append(b.start, len(b.rows))
	}
	if len(b.rows) < 2 {
		return nil, fault.Inputf("gap: %d rows in %d batches; there is nothing to compare", len(b.rows), len(list))
	}
	b.labels = pick(in.QueryLabels, b.rows)
	return b, nil
}

// part is what a query meets in one batch: positives and negatives, of which so
// many positives score at least alpha and so many negatives more than beta.
type part struct{ positives, negatives, good, bad int }

// measure fills in every query's gap. All scores are computed exactly, since
// each is compared with alpha or beta. Rows are addressed by batch, so all are
// kept: gapBatches has seen to it that they can be.
func (b *batches) measure(ctx context.Context, union Matrix, ap rank.Metric, whole []rank.Query, g GapOptions, o Options, out []QueryGap) error {
	o.Float32 = true
	c, err := newComparison(ctx, union, nil, o)
	if err != nil {
		return err
	}
	defer c.close()
	widest := 0
	for i := range len(b.start) - 1 {
		widest = max(widest, b.start[i+1]-b.start[i])
	}
	n := len(b.rows)
	c.progress.total = int64(n) * int64(n)
	return c.pool.runChunks(n, fewRows, func(_ *worker, from, to int) error {
		scores := make([]float32, (to-from)*widest)
		parts := make([][]part, to-from)
		sums, holding := make([]float64, to-from), make([]int, to-from)
		for i := range len(b.start) - 1 {
			low, high := b.start[i], b.start[i+1]
			if err := c.scorer.Scores(c.queries.kept.Side(from, to, 0), c.queries.kept.Side(low, high, 0), scores); err != nil {
				return err
			}
			for q := range to - from {
				p, precision := b.inBatch(scores[q*(high-low):(q+1)*(high-low)], from+q, low, g)
				parts[q] = append(parts[q], p)
				if p.positives > 0 {
					sums[q] += precision
					holding[q]++
				}
			}
		}
		for q := range to - from {
			gap := QueryGap{Row: b.rows[from+q], Lone: holding[q] == 0}
			if !gap.Lone {
				gap.AP, gap.InBatch = ap.Of(whole[from+q]), sums[q]/float64(holding[q])
				gap.bound(parts[q])
			}
			out[from+q] = gap
		}
		c.progress.add((to - from) * n)
		return nil
	})
}

// inBatch is what query meets in the batch that begins at low, and its AP there.
func (b *batches) inBatch(scores []float32, query, low int, g GapOptions) (part, float64) {
	var p part
	var positives []int
	for j, score := range scores {
		switch {
		case low+j == query:
		case b.labels[low+j] == b.labels[query]:
			positives = append(positives, j)
			if float64(score) >= g.Alpha {
				p.good++
			}
		default:
			p.negatives++
			if float64(score) > g.Beta {
				p.bad++
			}
		}
	}
	p.positives = len(positives)
	precision := 0.0
	for _, j := range positives {
		before, relevant := 1, 1
		for i, score := range scores {
			if low+i == query || i == j || score < scores[j] || score == scores[j] && i > j {
				continue
			}
			before++
			if b.labels[low+i] == b.labels[query] {
				relevant++
			}
		}
		precision += float64(relevant) / float64(before) / float64(p.positives)
	}
	return p, precision
}

// bound computes eq. 8 and 9 from what the query meets in each batch b: P_b
// positives, G_b of them good, and N_b negatives, E_b of them bad. With P, G, N
// and E for the sums of the batches before b,
//
//	eq. 8: 1 − 1/ΣP_b Σ_b Σ_{j=1}^{P_b} (j + P) / (j + P + N)
//	eq. 9: 1 − 1/ΣP_b Σ_b ( Σ_{j=1}^{G_b}     (j + G) / (j + G + E)
//	                      + Σ_{j=1}^{P_b−G_b} (j + G_b + P) / (j + G_b + P + N) )
//
// that is, in eq. 9 a good positive comes after the good ones and the bad
// negatives of earlier batches only, and any other after its own batch's good
// ones and all positives and all negatives of earlier batches.
func (q *QueryGap) bound(parts []part) {
	var sum8, sum9 float64
	var before part
	for _, p := range parts {
		sum8 = addPrecisions(sum8, p.positives, before.positives, before.negatives)
		sum9 = addPrecisions(sum9, p.good, before.good, before.bad)
		sum9 = addPrecisions(sum9, p.positives-p.good, before.positives+p.good, before.negatives)
		before.positives += p.positives
		before.negatives += p.negatives
		before.good += p.good
		before.bad += p.bad
	}
	total := float64(before.positives)
	q.Bound8, q.Bound9 = 1-sum8/total, 1-sum9/total
	sum8, sum9 = leastPrecisions(parts)
	q.Worst8, q.Worst9 = 1-sum8/total, 1-sum9/total
}

// addPrecisions adds the precision at each of so many positives, which come
// after some positives and negatives: Σ_j (j + positives) / (j + positives + negatives).
func addPrecisions(sum float64, count, positives, negatives int) float64 {
	for j := range count {
		rank := float64(j + 1 + positives)
		sum += rank / (rank + float64(negatives))
	}
	return sum
}

// leastPrecisions is sums that those of eq. 8 and 9 do not fall below in any
// order of the batches.
//
// The m-th positive has m-1 positives before it, so no more than the negatives
// that batches of m-1 positives together can hold, and likewise the m-th good
// one. Of the others each has a place of its own among all positives; it comes
// after the good ones of its batch, so earlier batches have fewer positives by at
// least the smallest number of them. The smallest precisions of all places are a
// bound, as each place is taken once.
func leastPrecisions(parts []part) (eq8, eq9 float64) {
	positives, negatives := func(p part) int { return p.positives }, func(p part) int { return p.negatives }
	good, bad := func(p part) int { return p.good }, func(p part) int { return p.bad }
	most := mostBefore(parts, positives, negatives)
	for m, negatives := range most {
		eq8 = addPrecisions(eq8, 1, m, negatives)
	}
	goods, fewest := mostBefore(parts, good, bad), len(most)
	for m, negatives := range goods {
		eq9 = addPrecisions(eq9, 1, m, negatives)
	}
	for _, p := range parts {
		if p.positives > p.good {
			fewest = min(fewest, p.good)
		}
	}
	var others []float64
	for m := fewest; m < len(most); m++ {
		others = append(others, addPrecisions(0, 1, m, most[m-fewest]))
	}
	slices.Sort(others)
	for _, precision := range others[:len(most)-len(goods)] {
		eq9 += precision
	}
	return eq8, eq9
}

// mostBefore gives, for the m-th positive of each number m, the most negatives
// that batches before its own can hold in any order: batches with at most m-1
// positives together (a knapsack; those without any come for nothing).
func mostBefore(parts []part, weight, value func(part) int) []int {
	type kind struct{ weight, value int }
	total, free, alike := 0, 0, map[kind]int{}
	for _, p := range parts {
		total += weight(p)
		if weight(p) == 0 {
			free += value(p)
		} else {
			alike[kind{weight(p), value(p)}]++
		}
	}
	most := make([]int, total) // most[m]: by batches with at most m positives
	for k, n := range alike {
		for some := 1; n > 0; some *= 2 { // n of a kind are 1, 2, 4, … and the rest of them
			some = min(some, n)
			for m := total - 1; m >= some*k.weight; m-- {
				most[m] = max(most[m], most[m-some*k.weight]+some*k.value)
			}
			n -= some
		}
	}
	for m := range most {
		most[m] += free
	}
	return most
}
