package eval_test

import (
	"context"
	"fmt"

	"roadmap/eval"
	"roadmap/eval/rank"
)

// Four photographs of two birds, as embeddings of two numbers.
var (
	photographs = eval.Float32s([]float32{1, 0, 0.8, 0.6, 0.9, 0.1, 0, 1}, 2)
	birds       = []int64{0, 1, 0, 1}
)

// Each photograph asks for the others of its bird.
func ExampleRun() {
	metrics, err := rank.ParseMetrics("r@1", "r@2", "map")
	if err != nil {
		fmt.Println(err)
		return
	}
	in := eval.Input{Query: photographs, QueryLabels: birds}
	result, err := eval.Run(context.Background(), in, eval.Options{Metrics: metrics})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range metrics {
		fmt.Printf("%v %.3f\n", m, result.Metrics[m.String()])
	}
	// Row 1 finds row 2 first, then 0, and its own bird's row 3 last.
	fmt.Println("ranks of row 1's relevant items:", result.Levels[0].Rankings[1].Ranks)
	// Output:
	// r@1 0.750
	// r@2 0.750
	// map 0.833
	// ranks of row 1's relevant items: [3]
}

// A gallery of its own is compared with each query; every row of it may be found.
func ExampleRun_gallery() {
	in := eval.Input{
		Query: eval.Float32s([]float32{0, 1}, 2), QueryLabels: []int64{1},
		Gallery: photographs, GalleryLabels: birds,
	}
	result, err := eval.Run(context.Background(), in, eval.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d query, %d in the gallery: r@1 %v, map@r %v\n", result.Queries, result.Gallery, result.Metrics["r@1"], result.Metrics["map@r"])
	// Output: 1 query, 4 in the gallery: r@1 1, map@r 1
}

func ExampleSearch() {
	err := eval.Search(context.Background(), photographs, nil, 2, eval.Options{}, func(query int, found []eval.Neighbour) error {
		fmt.Printf("%d:", query)
		for _, f := range found {
			fmt.Printf("  %d (%.2f)", f.Item, f.Score)
		}
		fmt.Println()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Output:
	// 0:  2 (0.99)  1 (0.80)
	// 1:  2 (0.86)  0 (0.80)
	// 2:  0 (0.99)  1 (0.86)
	// 3:  1 (0.60)  2 (0.11)
}

// In small batches average precision looks better than it is over the whole set.
func ExampleDecomposabilityGap() {
	in := eval.Input{Query: photographs, QueryLabels: birds}
	gap, err := eval.DecomposabilityGap(context.Background(), in, [][]int{{0, 2}, {1, 3}}, eval.GapOptions{Alpha: 0.9, Beta: 0.6}, eval.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("AP within batches %.3f, over all %.3f, gap %.3f\n", gap.InBatch, gap.AP, gap.DG)
	// Output: AP within batches 1.000, over all 0.833, gap 0.167
}

// VehicleID draws its galleries, so its figures have a deviation.
func ExampleNewProtocol() {
	protocol, err := eval.NewProtocol("vehicleid")
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics, err := rank.ParseMetrics("r@1")
	if err != nil {
		fmt.Println(err)
		return
	}
	in := eval.Input{Query: photographs, QueryLabels: birds}
	result, err := protocol.Run(context.Background(), in, eval.Options{Metrics: metrics, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range result.Figures {
		fmt.Printf("%s %.2f ± %.2f over %d galleries of %d\n", f.Name, f.Value, *f.Spread, result.Repeats, result.Gallery)
	}
	// Output:
	// r@1 0.75 ± 0.26 over 10 galleries of 2
}
