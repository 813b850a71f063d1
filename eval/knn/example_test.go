package knn_test

import (
	"fmt"

	"roadmap/eval/knn"
)

// The two nearest neighbours of each of four rows among the others, by cosine.
func ExampleWorker_Search() {
	scorer := knn.New(knn.Options{Dim: 2})
	rows, err := scorer.Rows(4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rows.Close()
	longest, err := rows.Fill(0, []float32{1, 0, 0.8, 0.6, 0.9, 0.1, 0, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	scorer.Extend(longest)
	gallery, err := scorer.Block(4)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer gallery.Close()
	if err := gallery.Set(rows.Side(0, 4, 0)); err != nil {
		fmt.Println(err)
		return
	}
	worker, err := scorer.Worker()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()
	best := knn.NewBest(2, 4, true)
	if err := worker.Search(rows.Side(0, 4, 0), gallery, best, 0); err != nil {
		fmt.Println(err)
		return
	}
	for query := range 4 {
		for _, found := range best.Sorted(query) {
			fmt.Printf("%d finds %d: %.2f\n", query, found.Item, found.Score)
		}
	}
	// Output:
	// 0 finds 2: 0.99
	// 0 finds 1: 0.80
	// 1 finds 2: 0.86
	// 1 finds 0: 0.80
	// 2 finds 0: 0.99
	// 2 finds 1: 0.86
	// 3 finds 1: 0.60
	// 3 finds 2: 0.11
}
