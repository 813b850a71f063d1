package rank

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Options of Evaluate. The zero value skips lone queries and gives no intervals.
type Options struct {
	Lone      Lone   // Skip when empty
	Bootstrap int    // resamples for the 95 % intervals; 0: none
	Seed      uint64 // of the resamples
}

// MaxBootstrap is the most resamples, which take 8 MB a metric.
const MaxBootstrap = 1_000_000

// Validate refuses options that no queries could satisfy, as input errors.
func (o Options) Validate() error {
	if o.Bootstrap < 0 || o.Bootstrap > MaxBootstrap {
		return fault.Inputf("bootstrap: %d resamples; give a number up to %d, or 0 for none", o.Bootstrap, MaxBootstrap)
	}
	if o.Lone != "" {
		if _, err := ParseLone(string(o.Lone)); err != nil {
			return err
		}
	}
	return nil
}

// Report is what Evaluate found.
type Report struct {
	Queries int        // all of them
	Lone    int        // those without relevant items
	Counted int        // those in the means
	Values  []Value    // one a metric, in the order asked for
	First   []Quantile // of the rank of the first relevant item, over queries that have one
}

// Value is a metric's mean over the counted queries.
type Value struct {
	Metric   Metric
	Mean     float64
	Interval *Interval // nil without bootstrap
}

// Interval is a 95 % confidence interval of the mean: the 2.5 % and 97.5 %
// quantiles of the mean over resampled queries (percentile bootstrap).
type Interval struct{ Low, High float64 }

// Quantile says that the share Q of the queries has a relevant item at Rank or
// before; no smaller rank does.
type Quantile struct {
	Q    float64
	Rank int
}

// firstQuantiles are the shares reported.
var firstQuantiles = []float64{0.25, 0.5, 0.75, 0.9, 0.95, 0.99}

// Evaluate averages metrics over queries. A K beyond the candidates, no
// queries, or only lone ones are input errors. The end of the context ends the resampling.
func Evaluate(ctx context.Context, queries []Query, metrics []Metric, o Options) (*Report, error) {
	if len(queries) == 0 {
		return nil, fault.Inputf("no queries: nothing to evaluate")
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	report := &Report{Queries: len(queries)}
	var values []float64 // [counted, metrics]
	var first []int32
	for _, q := range queries {
		if err := q.check(); err != nil {
			return nil, err
		}
		for _, m := range metrics {
			if err := m.Check(q.Candidates); err != nil {
				return nil, err
			}
		}
		if q.Lone() {
			report.Lone++
			if o.Lone != Zero {
				continue
			}
		} else {
			first = append(first, q.Ranks[0])
		}
		for _, m := range metrics {
			values = append(values, m.Of(q))
		}
		report.Counted++
	}
	if report.Lone == len(queries) {
		return nil, fault.Inputf("all %d queries are lone: no gallery item shares a label with any of them; check that the labels belong to these embeddings", len(queries))
	}
	report.First = quantiles(first)
	sums := make([]float64, len(metrics))
	for i, v := range values {
		sums[i%len(metrics)] += v
	}
	var intervals []Interval
	if o.Bootstrap > 0 {
		if intervals = bootstrap(ctx, values, len(metrics), o); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	for i, m := range metrics {
		v := Value{Metric: m, Mean: sums[i] / float64(report.Counted)}
		if intervals != nil {
			v.Interval = &intervals[i]
		}
		report.Values = append(report.Values, v)
	}
	return report, nil
}

// quantiles sorts ranks and reads firstQuantiles off them.
func quantiles(ranks []int32) []Quantile {
	slices.Sort(ranks)
	out := make([]Quantile, len(firstQuantiles))
	for i, q := range firstQuantiles {
		at := int(math.Ceil(q*float64(len(ranks)))) - 1
		out[i] = Quantile{q, int(ranks[max(at, 0)])}
	}
	return out
}

// bootstrap draws the counted queries with replacement. Each resample has a
// random source of its own, so the result depends on the seed alone. It is of no
// use where the context has ended.
func bootstrap(ctx context.Context, values []float64, columns int, o Options) []Interval {
	rows := len(values) / max(columns, 1)
	means := make([][]float64, columns) // [metric][resample]
	for i := range means {
		means[i] = make([]float64, o.Bootstrap)
	}
	resample := func(b int) {
		random := rng.New(o.Seed, uint64(b))
		sums := make([]float64, columns)
		for range rows {
			row := random.IntN(rows) * columns
			for i := range sums {
				sums[i] += values[row+i]
			}
		}
		for i, s := range sums {
			means[i][b] = s / float64(rows)
		}
	}
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for b := w; b < o.Bootstrap && ctx.Err() == nil; b += workers {
				resample(b)
			}
		})
	}
	wait.Wait()
	intervals := make([]Interval, columns)
	for i, m := range means {
		slices.Sort(m)
		intervals[i] = Interval{interpolate(m, 0.025), interpolate(m, 0.975)}
	}
	return intervals
}

// interpolate is the quantile p of sorted values, linear between neighbours
// (type 7 of Hyndman and Fan 1996, NumPy's default).
func interpolate(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// MeanSD is the mean and the sample standard deviation (over n-1) of figures
// from repeated runs; the deviation of a single one is 0.
func MeanSD(values []float64) (mean, sd float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	if len(values) < 2 {
		return mean, 0
	}
	for _, v := range values {
		sd += (v - mean) * (v - mean) / float64(len(values)-1)
	}
	return mean, math.Sqrt(sd)
}
