package score

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"roadmap/pkg/torch"
)

// Equal rows have equal scores wherever they stand and whatever the tile: for
// each query the columns of equal rows tie, and its own row scores 1.
func TestEqualRowsTie(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, dtype := range []torch.DType{torch.Float32, torch.Float64} {
		for _, n := range []int{3, 65, 385, 1030} { // edges of the blocks of a matrix product
			t.Run(fmt.Sprint(dtype, n), func(t *testing.T) {
				const d, distinct = 33, 3
				x, kind := make([]float64, n*d), make([]int, n)
				for i := range n {
					kind[i] = r.IntN(distinct)
					for k := range d {
						x[i*d+k] = rand.New(rand.NewPCG(uint64(kind[i]), uint64(k))).NormFloat64()
					}
				}
				s := torch.NewScope()
				defer s.Close()
				q := torch.From(s, x, int64(n), d).ToDType(dtype)
				in := Input{Query: q, QueryLabels: make([]int64, n)}
				var p *plan
				var err error
				torch.NoGrad(func() {
					p, err = newPlan(s, nil, Traits{}, Defaults(), &in)
				})
				if err != nil {
					t.Fatal(err)
				}
				err = (&state{plan: p}).tiles(s, func(tile tile) error {
					scores, err := tile.scores.Float64s()
					if err != nil {
						return err
					}
					for i := range tile.n {
						row := scores[i*n : (i+1)*n]
						of := map[int]float64{kind[tile.first+i]: 1}
						for j, v := range row {
							if want, seen := of[kind[j]]; seen && v != want {
								t.Fatalf("query %d: column %d scores %.17g, an equal row %.17g", tile.first+i, j, v, want)
							}
							of[kind[j]] = v
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// The queries of a separate gallery find their own rows in it.
func TestTwinsAcrossSets(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	query := torch.From(s, []float32{0, 1, 1, 0, 0.5, 0.5}, 3, 2)
	gallery := torch.From(s, []float32{1, 0, 0, 1, 1, 0, 0, 1, 0, 1}, 5, 2)
	found, err := findTwins(query, gallery, false)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(found.equal), "map[0:[1] 1:[0]]"; got != want {
		t.Errorf("equal = %s, want %s", got, want)
	}
	copies, err := found.copies.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	originals, err := found.originals.Int64s()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(copies, originals), "[2 3 4] [0 1 1]"; got != want {
		t.Errorf("copies and originals = %s, want %s", got, want)
	}
}
