package eval

import (
	"context"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
)

func init() { protocols.Register("vehicleid", func() Protocol { return &VehicleID{Repeats: 10} }) }

// VehicleID is the protocol of PKU VehicleID (Liu et al., CVPR 2016): one random
// image of each class is the gallery and all others are queries, several times.
// Its figures are the metrics' means over the repetitions, with their sample
// standard deviations.
type VehicleID struct {
	Repeats int // 10 in the published tables; drawn from Options.Seed
}

// Takes implements Protocol.
func (p *VehicleID) Takes() Takes { return Takes{Labels: true, Metrics: true} }

// Settings implements Protocol.
func (p *VehicleID) Settings() []Setting {
	return []Setting{{Name: "repeats", Usage: "random galleries", Number: &p.Repeats}}
}

// Validate implements Protocol.
func (p *VehicleID) Validate() error { return rank.CheckRepeats("repeats", p.Repeats) }

// Run implements Protocol. The sizes of queries and gallery, and the lone
// queries, are the last repetition's.
func (p *VehicleID) Run(ctx context.Context, in Input, o Options) (*ProtocolResult, error) {
	if in.Gallery != nil || len(in.Levels) > 0 {
		return nil, fault.Inputf("the VehicleID protocol draws the gallery from one set of embeddings with one label each")
	}
	if err := in.check(nil); err != nil {
		return nil, err
	}
	splits, err := rank.VehicleID(in.QueryLabels, p.Repeats, o.Seed)
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	var last *Result
	for split := range splits {
		last, err = Run(ctx, Input{
			Query: Select(in.Query, split.Query), QueryLabels: pick(in.QueryLabels, split.Query),
			Gallery: Select(in.Query, split.Gallery), GalleryLabels: pick(in.QueryLabels, split.Gallery),
		}, o)
		if err != nil {
			return nil, err
		}
		for name, value := range last.Metrics {
			values[name] = append(values[name], value)
		}
	}
	result := &ProtocolResult{Queries: last.Queries, Gallery: last.Gallery, Dim: last.Dim, Repeats: p.Repeats, Lone: []LoneCount{{Queries: last.Lone}}}
	for _, v := range last.Levels[0].Report.Values {
		mean, sd := rank.MeanSD(values[v.Metric.String()])
		result.Figures = append(result.Figures, Figure{Name: v.Metric.String(), Value: mean, Spread: &sd})
	}
	return result, nil
}
