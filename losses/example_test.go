package losses_test

import (
	"fmt"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

// A loss on a batch: every embedding is a query, and all others are its gallery.
func Example() {
	scope := torch.NewScope()
	defer scope.Close()
	embeddings := torch.From(scope, []float32{1, 0, 0, 2, 3, 0}, 3, 2).RequireGrad(true)
	loss, options, err := losses.New("contrastive")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := losses.Evaluate(loss, options, score.Input{Query: embeddings, QueryLabels: []int64{7, 7, 8}})
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := r.Value.Item()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Value.Backward(); err != nil {
		fmt.Println(err)
		return
	}
	// The cosine of the positives is 0 where 1 is wanted, that of rows 0 and 2 is 1 where 0.5 is.
	fmt.Printf("%g, %d of %d queries without a positive\n", value, r.Lone, r.Queries)
	fmt.Println(embeddings.Grad(scope).Shape())
	// Output:
	// 1.5, 1 of 3 queries without a positive
	// [3 2]
}

// Scores with relevance in place of embeddings: one query, of whose four gallery
// entries the first two are relevant.
func ExampleEvaluate() {
	scope := torch.NewScope()
	defer scope.Close()
	r, err := losses.Evaluate(&losses.AP{}, score.Defaults(), score.Input{
		Scores:    torch.From(scope, []float64{0.9, 0.5, 0.5, 0.1}, 1, 4),
		Relevance: torch.From(scope, []bool{true, true, false, false}, 1, 4),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := r.Value.Item()
	fmt.Printf("%.4f %v\n", value, err) // the tie counts against the positive: 1 − (1/1 + 2/3)/2
	// Output: 0.1667 <nil>
}

// A loss as a recipe or the command line names it.
func ExampleNew() {
	section, err := config.Assign("roadmap", "lambda=0.3", "tau=0")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = config.Build(criterion.Registry, section)
	fmt.Println(err)
	// Output: parameter "tau=0": tau is 0; give a number above 0, between 1.18e-38 and 3.4e+38
}
