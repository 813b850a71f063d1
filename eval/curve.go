package eval

import (
	"context"
	"slices"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Spread is the mean of a figure over repetitions, and its sample standard deviation.
type Spread struct{ Mean, SD float64 }

func spreads(values map[string][]float64) map[string]Spread {
	out := map[string]Spread{}
	for name, list := range values {
		mean, sd := rank.MeanSD(list)
		out[name] = Spread{mean, sd}
	}
	return out
}

// CurvePoint is what batches of one size say.
type CurvePoint struct {
	Batch   int // size
	Draws   int // batches in which some query has a relevant item
	Lone    int // batches without one, which say nothing
	Metrics map[string]Spread
}

// BatchCurve measures batches as training sees them: of each size it draws
// batches of different rows at random and evaluates each by itself. It shows how far the figure that a
// batch loss follows is from the one over the whole set (RaMBO, Rolínek et al.
// 2020, Fig. 2). Only metrics that do not depend on a rank K beyond the smallest
// batch can be asked for.
func BatchCurve(ctx context.Context, in Input, sizes []int, draws int, o Options) ([]CurvePoint, error) {
	if err := CheckBatchCurve(in, sizes, draws); err != nil {
		return nil, err
	}
	in.Levels, o.Progress = nil, nil
	var curve []CurvePoint
	for _, size := range sizes {
		point, err := in.curvePoint(ctx, size, draws, o)
		if err != nil {
			return nil, err
		}
		curve = append(curve, point)
	}
	return curve, nil
}

// CheckBatchCurve finds what BatchCurve would refuse before it compares anything.
func CheckBatchCurve(in Input, sizes []int, draws int) error {
	if in.Gallery != nil {
		return fault.Inputf("batch curve: batches are drawn from one set of embeddings; give no gallery")
	}
	if err := rank.CheckRepeats("draws", draws); err != nil {
		return err
	}
	if err := in.check(nil); err != nil {
		return err
	}
	for _, size := range sizes {
		if n := in.Query.Rows(); size < 2 || size > n {
			return fault.Inputf("batch curve: batches of %d from %d rows; give sizes from 2 to %d", size, n, n)
		}
	}
	return nil
}

func (in Input) curvePoint(ctx context.Context, size, draws int, o Options) (CurvePoint, error) {
	point := CurvePoint{Batch: size}
	values := map[string][]float64{}
	for draw := range draws {
		rows := rng.New(o.Seed, uint64(size), uint64(draw)).Perm(in.Query.Rows())[:size]
		slices.Sort(rows)
		labels := pick(in.QueryLabels, rows)
		if allDifferent(labels) {
			point.Lone++
			continue
		}
		result, err := Run(ctx, Input{Query: Select(in.Query, rows), QueryLabels: labels}, o)
		if err != nil {
			return point, err
		}
		point.Draws++
		for name, value := range result.Metrics {
			values[name] = append(values[name], value)
		}
	}
	point.Metrics = spreads(values)
	return point, nil
}

func allDifferent(labels []int64) bool {
	seen := map[int64]bool{}
	for _, l := range labels {
		if seen[l] {
			return false
		}
		seen[l] = true
	}
	return true
}
