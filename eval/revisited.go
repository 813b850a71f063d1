package eval

import (
	"context"
	"fmt"
	"slices"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
)

// RevisitedKs are the ks of mP@k in the tables of Revisited Oxford and Paris.
var RevisitedKs = []int{1, 5, 10}

// RevisitedResult is the figures of Revisited Oxford or Paris.
type RevisitedResult struct {
	Metrics          map[string]float64 // map/easy, mp@1/easy, … for each difficulty
	Lone             map[string]int     // queries without positives, by difficulty, which the protocol skips
	Queries, Gallery int
	Dim              int
}

// Revisited evaluates by the protocol of Revisited Oxford and Paris
// (Radenović et al., CVPR 2018). Rows are in the ground truth's order. Of the
// options Distance, Float32, Device, Threads, MemoryBytes and Progress count;
// ties go by index.
func Revisited(ctx context.Context, queries, gallery Matrix, truth *GroundTruth, o Options) (*RevisitedResult, error) {
	o.Ties = rank.ByIndex
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if gallery == nil {
		return nil, fault.Inputf("the revisited protocol compares queries with a gallery, and none is given")
	}
	if err := (Input{Query: queries, Gallery: gallery}).checkMatrices(); err != nil {
		return nil, err
	}
	if have, want := queries.Rows(), len(truth.Judgements); have != want {
		return nil, fault.Inputf("%s: %d rows, but the ground truth has %d queries", queries.Name(), have, want)
	}
	if have, want := gallery.Rows(), len(truth.Gallery); have != want {
		return nil, fault.Inputf("%s: %d rows, but the ground truth has %d gallery images", gallery.Name(), have, want)
	}
	e, err := newEngine(ctx, queries, gallery, o)
	if err != nil {
		return nil, err
	}
	defer e.close()
	var judged []map[int32]int32 // rank by item, for each query's judged images
	err = e.each([]relevance{judgedImages(truth)}, func(_ int, p *panel) {
		for row := range p.to - p.from {
			ranks := map[int32]int32{}
			for i, item := range p.of(row, p.Item) {
				ranks[item] = p.of(row, p.Count)[i]
			}
			judged = append(judged, ranks)
		}
	})
	if err != nil {
		return nil, err
	}
	result := &RevisitedResult{Metrics: map[string]float64{}, Lone: map[string]int{}, Queries: queries.Rows(), Gallery: gallery.Rows(), Dim: queries.Dim()}
	for _, d := range rank.Difficulties {
		if err := result.add(d, truth, judged); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// judgedImages lists, for each query, the images that are anything but irrelevant.
func judgedImages(truth *GroundTruth) byList {
	lists := make(byList, len(truth.Judgements))
	for i, j := range truth.Judgements {
		for _, item := range slices.Concat(j.Easy, j.Hard, j.Junk) {
			lists[i] = append(lists[i], int32(item))
		}
		slices.Sort(lists[i])
		lists[i] = slices.Compact(lists[i])
	}
	return lists
}

// add enters one difficulty.
func (r *RevisitedResult) add(d rank.Difficulty, truth *GroundTruth, judged []map[int32]int32) error {
	queries := make([]rank.RevisitedQuery, len(judged))
	for i, ranks := range judged {
		positive, junk := truth.Judgements[i].At(d)
		queries[i] = rank.RevisitedQuery{Positive: ranksOf(positive, ranks), Junk: ranksOf(junk, ranks)}
	}
	report, err := rank.Revisited(queries, RevisitedKs)
	if err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	r.Metrics["map/"+string(d)] = report.MAP
	for i, k := range RevisitedKs {
		r.Metrics[fmt.Sprintf("mp@%d/%s", k, d)] = report.MP[i]
	}
	r.Lone[string(d)] = report.Lone
	return nil
}

// ranksOf looks the ranks of some images up, ascending.
func ranksOf(items []int, ranks map[int32]int32) []int32 {
	out := make([]int32, len(items))
	for i, item := range items {
		out[i] = ranks[int32(item)]
	}
	slices.Sort(out)
	return out
}
