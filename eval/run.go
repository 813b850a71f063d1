// Package eval measures embeddings as a retrieval engine would use them: each
// query ranks the gallery by score, and metrics such as recall@K and mAP@R say
// where the relevant items, those of the query's label, stand.
//
// [Run] evaluates, [Search] finds nearest neighbours. A [Matrix] is the
// embeddings, [N, d]: [Float32s] in memory, [Stored] in a file. [Protocol] is
// the published ways to evaluate that have lists or figures of their own
// (Revisited Oxford and Paris, VehicleID); [DecomposabilityGap] and [BatchCurve]
// compare batches with the whole set.
//
// Everything is exact and deterministic. The score of a pair (cosine, or minus
// the squared distance) is a float32 that depends on its two rows alone, see
// package knn; ties go by gallery index unless asked otherwise; a query's own
// row never counts. Tiles, threads, the order of the work and the device change
// nothing in the result. Metrics are those of package rank.
package eval

import (
	"context"
	"fmt"
	"math"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/pkg/fault"
)

// Input is what is evaluated.
type Input struct {
	Query         Matrix  // [Q, d]
	QueryLabels   []int64 // [Q]
	Gallery       Matrix  // [N, d]; nil: the queries are the gallery, each without its own row
	GalleryLabels []int64 // [N]
	Levels        []Level // further labels of the same rows, such as coarser classes
}

// Level is one more label of every row.
type Level struct {
	Name           string
	Query, Gallery []int64 // Gallery nil where the queries are the gallery
}

// Result is what an evaluation found.
type Result struct {
	Metrics   map[string]float64       // by name: r@1; at further levels r@1/NAME
	Intervals map[string]rank.Interval // likewise, with Options.Bootstrap
	Queries   int
	Gallery   int
	Lone      int // queries without relevant items
	Dim       int
	Levels    []LevelResult // the labels' own first, then Input.Levels
	Pairs     knn.Pairs     // how pairs were compared
}

// LevelResult is what was found with one label.
type LevelResult struct {
	Name     string // "" for the labels themselves
	Report   *rank.Report
	Rankings []rank.Query // by query
}

// check refuses embeddings, labels and metrics that do not fit together.
func (in Input) check(metrics []rank.Metric) error {
	if err := in.checkMatrices(); err != nil {
		return err
	}
	for _, level := range in.levels() {
		if err := in.checkLabels(level); err != nil {
			return err
		}
	}
	candidates := in.Query.Rows() - 1
	if in.Gallery != nil {
		candidates = in.Gallery.Rows()
	}
	for _, m := range metrics {
		if err := m.Check(candidates); err != nil {
			return err
		}
	}
	return nil
}

func (in Input) checkMatrices() error {
	if err := checkRows("query embeddings", in.Query); err != nil {
		return err
	}
	if in.Gallery == nil {
		if in.Query.Rows() == 1 {
			return fault.Inputf("%s: a single row has nothing to be compared with", in.Query.Name())
		}
		return nil
	}
	if err := checkRows("gallery embeddings", in.Gallery); err != nil {
		return err
	}
	if q, g := in.Query.Dim(), in.Gallery.Dim(); q != g {
		return fault.Inputf("%s has rows of %d numbers, %s of %d: they come from different networks", in.Query.Name(), q, in.Gallery.Name(), g)
	}
	return nil
}

func checkRows(what string, m Matrix) error {
	switch {
	case m == nil || m.Rows() == 0 || m.Dim() == 0:
		return fault.Inputf("%s: there are none", what)
	case m.Rows() > math.MaxInt32:
		return fault.Inputf("%s: %d rows; at most %d can be evaluated", m.Name(), m.Rows(), math.MaxInt32)
	}
	return nil
}

func (in Input) checkLabels(level Level) error {
	of := ""
	if level.Name != "" {
		of = level.Name + " "
	}
	if n := in.Query.Rows(); len(level.Query) != n {
		return fault.Inputf("%s: %d rows but %d %slabels", in.Query.Name(), n, len(level.Query), of)
	}
	if in.Gallery == nil {
		if level.Gallery != nil {
			return fault.Inputf("%sgallery labels are given without a gallery", of)
		}
		return nil
	}
	if n := in.Gallery.Rows(); len(level.Gallery) != n {
		return fault.Inputf("%s: %d rows but %d %slabels", in.Gallery.Name(), n, len(level.Gallery), of)
	}
	return nil
}

// levels is all labels, the plain ones first.
func (in Input) levels() []Level {
	return append([]Level{{"", in.QueryLabels, in.GalleryLabels}}, in.Levels...)
}

// Run evaluates. Embeddings, labels and options that do not fit together, rows
// that cannot be compared, and no query with a relevant item are input errors.
func Run(ctx context.Context, in Input, o Options) (*Result, error) {
	return run(ctx, in, o, onDevice(o.Device))
}

func run(ctx context.Context, in Input, o Options, by counterFor) (*Result, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	metrics, err := o.metrics()
	if err != nil {
		return nil, err
	}
	if err := in.check(metrics); err != nil {
		return nil, err
	}
	c, err := newComparison(ctx, in.Query, in.Gallery, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var levels []relevance
	for _, level := range in.levels() {
		gallery := level.Gallery
		if c.same {
			gallery = level.Query
		}
		levels = append(levels, newByLabel(level.Query, gallery, c.same))
	}
	rankings := make([][]rank.Query, len(levels)) // [level][query]
	err = c.rank(levels, by, func(level int, w *wantedRanks) {
		for i := w.from; i < w.to; i++ {
			_, ranks := w.of(i)
			rankings[level] = append(rankings[level], rank.Query{Ranks: ranks, Candidates: c.candidates()})
		}
	})
	if err != nil {
		return nil, err
	}
	result := &Result{Metrics: map[string]float64{}, Intervals: map[string]rank.Interval{}, Queries: c.queries.rows, Gallery: c.gallery.rows, Dim: in.Query.Dim()}
	for _, w := range c.pool.workers {
		w.tiles.Add(&result.Pairs)
	}
	for v, level := range in.levels() {
		report, err := rank.Evaluate(ctx, rankings[v], metrics, o.rank())
		if err != nil {
			if level.Name != "" {
				err = fmt.Errorf("level %s: %w", level.Name, err)
			}
			return nil, err
		}
		result.add(LevelResult{level.Name, report, rankings[v]})
	}
	return result, nil
}

// add enters what was found with one label.
func (r *Result) add(level LevelResult) {
	suffix := ""
	if level.Name != "" {
		suffix = "/" + level.Name
	} else {
		r.Lone = level.Report.Lone
	}
	for _, v := range level.Report.Values {
		r.Metrics[v.Metric.String()+suffix] = v.Mean
		if v.Interval != nil {
			r.Intervals[v.Metric.String()+suffix] = *v.Interval
		}
	}
	r.Levels = append(r.Levels, level)
}
