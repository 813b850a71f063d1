// Package eval measures embeddings as a retrieval engine would use them: each
// query ranks the gallery by score, and metrics say where the relevant items
// stand.
//
// Everything is exact and deterministic. The score of a pair (cosine, or minus
// the squared distance) is a float32 that depends on its two rows alone, see
// [knn.Scorer]; ties go by gallery index unless asked otherwise; a query's own
// row never counts. Tiles, threads, the order of the work and the device change
// nothing in the result.
package eval

import (
	"context"
	"fmt"
	"math"

	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
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

// Distance is what embeddings are compared by.
type Distance string

// The distances.
const (
	Cosine Distance = "cosine" // score: the cosine of the angle
	L2     Distance = "l2"     // score: minus the squared distance
)

// Options of an evaluation. The zero value gives r@1 and map@r by cosine, exact
// ties by index, lone queries skipped.
type Options struct {
	Metrics     []string                // as rank.ParseMetrics reads them; empty: r@1 and map@r
	Lone        rank.Lone               // rank.Skip when empty
	Ties        rank.Ties               // rank.ByIndex when empty
	Distance    Distance                // Cosine when empty
	Float32     bool                    // no integers to screen with; the same result, more slowly
	Bootstrap   int                     // resamples for the 95 % intervals; 0: none
	Seed        uint64                  // of the resamples
	Device      torch.Device            // where the scores are screened
	Threads     int                     // 0: as many as libtorch uses
	MemoryBytes int64                   // for what grows with the input, beyond which it is read again or divided; 0: 2 GiB
	Progress    func(done, total int64) // of pairs compared; called by one goroutine at a time

	tensors  int // tests: tensor operations on the CPU, so many scores a tile
	mostOpen int // tests: 1: pairs are always decided one by one; 0: mostOpen
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

const defaultMemory = 2 << 30

func (o Options) memory() int64 {
	if o.MemoryBytes > 0 {
		return o.MemoryBytes
	}
	return defaultMemory
}

func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return torch.Threads()
}

func (o Options) scoring(dim int) knn.Options {
	ties := map[rank.Ties]knn.Ties{rank.Pessimistic: knn.Pessimistic, rank.Optimistic: knn.Optimistic}
	return knn.Options{Dim: dim, L2: o.Distance == L2, Ties: ties[o.Ties], Level: knn.Any, Exact: o.Float32}
}

// metrics reads the metrics' names.
func (o Options) metrics() ([]rank.Metric, error) {
	names := o.Metrics
	if len(names) == 0 {
		names = []string{"r@1", "map@r"}
	}
	list := ""
	for i, name := range names {
		if i > 0 {
			list += ","
		}
		list += name
	}
	return rank.ParseMetrics(list)
}

func (o Options) rank() rank.Options {
	return rank.Options{Lone: o.Lone, Bootstrap: o.Bootstrap, Seed: o.Seed}
}

// Validate refuses options that no input could satisfy, as input errors.
func (o Options) Validate() error {
	if _, err := o.metrics(); err != nil {
		return err
	}
	if err := o.rank().Validate(); err != nil {
		return err
	}
	if o.Ties != "" {
		if _, err := rank.ParseTies(string(o.Ties)); err != nil {
			return err
		}
	}
	if o.Distance != "" && o.Distance != Cosine && o.Distance != L2 {
		return fault.Inputf("distance: %q is unknown; give %s or %s", o.Distance, Cosine, L2)
	}
	return nil
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
		if m.K > candidates {
			return fault.Inputf("%v: only %d candidates are ranked; K may be at most that", m, candidates)
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
	e, err := newEngine(ctx, in.Query, in.Gallery, o)
	if err != nil {
		return nil, err
	}
	defer e.close()
	var levels []relevance
	for _, level := range in.levels() {
		gallery := level.Gallery
		if e.same {
			gallery = level.Query
		}
		levels = append(levels, newByLabel(level.Query, gallery, e.same))
	}
	rankings, err := e.rankings(levels)
	if err != nil {
		return nil, err
	}
	result := &Result{Metrics: map[string]float64{}, Intervals: map[string]rank.Interval{}, Queries: e.queries.rows, Gallery: e.gallery.rows, Dim: in.Query.Dim()}
	for _, s := range e.pool.workers {
		s.tiles.Add(&result.Pairs)
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
