package eval

import (
	"context"
	"fmt"
	"slices"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
)

func init() { protocols.Register("revisited", func() Protocol { return &Revisited{} }) }

// Revisited is the protocol of Revisited Oxford and Paris (Radenović et al.,
// CVPR 2018). Rows are in the ground truth's order. Its figures are map and mp@k
// at each difficulty: map/easy, mp@1/easy, …; queries without positives at a
// difficulty are left out of its means. Ties go by index.
type Revisited struct {
	GroundTruth string       // the official file, gnd_roxford5k.pkl or gnd_rparis6k.pkl
	Truth       *GroundTruth // what it holds, where it is read already
}

// revisitedKs are the ks of mP@k in the tables of Revisited Oxford and Paris.
var revisitedKs = []int{1, 5, 10}

// Takes implements Protocol.
func (r *Revisited) Takes() Takes { return Takes{Gallery: true} }

// Settings implements Protocol.
func (r *Revisited) Settings() []Setting {
	return []Setting{{Name: "ground-truth", Usage: "gnd_roxford5k.pkl or gnd_rparis6k.pkl", Text: &r.GroundTruth}}
}

// Validate implements Protocol.
func (r *Revisited) Validate() error {
	if r.Truth == nil && r.GroundTruth == "" {
		return fault.Inputf("ground-truth: give the official file, gnd_roxford5k.pkl or gnd_rparis6k.pkl")
	}
	return nil
}

// Run implements Protocol. Of the options Distance, Float32, Device, Threads,
// MemoryBytes and Progress count.
func (r *Revisited) Run(ctx context.Context, in Input, o Options) (*ProtocolResult, error) {
	return r.run(ctx, in, o, onDevice(o.Device))
}

func (r *Revisited) run(ctx context.Context, in Input, o Options, by counterFor) (*ProtocolResult, error) {
	o.Ties = rank.ByIndex
	if err := o.Validate(); err != nil {
		return nil, err
	}
	truth, err := r.truth()
	if err != nil {
		return nil, err
	}
	if err := truth.fits(in); err != nil {
		return nil, err
	}
	c, err := newComparison(ctx, in.Query, in.Gallery, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var judged []map[int32]int32 // rank by item, for each query's judged images
	err = c.rank([]relevance{truth.judged()}, by, func(_ int, w *wantedRanks) {
		for i := w.from; i < w.to; i++ {
			byItem := map[int32]int32{}
			items, ranks := w.of(i)
			for n, item := range items {
				byItem[item] = ranks[n]
			}
			judged = append(judged, byItem)
		}
	})
	if err != nil {
		return nil, err
	}
	result := &ProtocolResult{Queries: in.Query.Rows(), Gallery: in.Gallery.Rows(), Dim: in.Query.Dim()}
	for _, d := range rank.Difficulties {
		if err := result.addDifficulty(d, truth, judged); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func (r *Revisited) truth() (*GroundTruth, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if r.Truth != nil {
		return r.Truth, nil
	}
	return ReadGroundTruth(r.GroundTruth)
}

// fits refuses embeddings that the ground truth is not about.
func (g *GroundTruth) fits(in Input) error {
	if in.Gallery == nil {
		return fault.Inputf("the revisited protocol compares queries with a gallery, and none is given")
	}
	if err := in.checkMatrices(); err != nil {
		return err
	}
	if have, want := in.Query.Rows(), len(g.Judgements); have != want {
		return fault.Inputf("%s: %d rows, but the ground truth has %d queries", in.Query.Name(), have, want)
	}
	if have, want := in.Gallery.Rows(), len(g.Gallery); have != want {
		return fault.Inputf("%s: %d rows, but the ground truth has %d gallery images", in.Gallery.Name(), have, want)
	}
	return nil
}

// judged lists, for each query, the images that are anything but irrelevant.
func (g *GroundTruth) judged() byList {
	lists := make(byList, len(g.Judgements))
	for i, j := range g.Judgements {
		for _, item := range slices.Concat(j.Easy, j.Hard, j.Junk) {
			lists[i] = append(lists[i], int32(item))
		}
		slices.Sort(lists[i])
		lists[i] = slices.Compact(lists[i])
	}
	return lists
}

// addDifficulty enters the figures of one difficulty.
func (r *ProtocolResult) addDifficulty(d rank.Difficulty, truth *GroundTruth, judged []map[int32]int32) error {
	queries := make([]rank.RevisitedQuery, len(judged))
	for i, ranks := range judged {
		positive, junk := truth.Judgements[i].At(d)
		queries[i] = rank.RevisitedQuery{Positive: ranksOf(positive, ranks), Junk: ranksOf(junk, ranks)}
	}
	report, err := rank.Revisited(queries, revisitedKs)
	if err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	r.Figures = append(r.Figures, Figure{Name: "map/" + string(d), Value: report.MAP})
	for i, k := range revisitedKs {
		r.Figures = append(r.Figures, Figure{Name: fmt.Sprintf("mp@%d/%s", k, d), Value: report.MP[i]})
	}
	r.Lone = append(r.Lone, LoneCount{Setup: string(d), Queries: report.Lone})
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
