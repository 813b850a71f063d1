package backbones_test

import (
	"math/rand/v2"
	"testing"

	"roadmap/backbones"
	"roadmap/pkg/optim"
	"roadmap/pkg/torch"
)

// TestLearnsToyData is the shape of every training loop: build, then in each
// step a scope of its own, forward, loss, Backward, Step. Two classes of noise
// around two fixed images must come apart.
func TestLearnsToyData(t *testing.T) {
	before := torch.Live()
	root := torch.NewScope()
	config, err := backbones.Registry.Make("convnet")
	if err != nil {
		t.Fatal(err)
	}
	model, err := config.Build(root, torch.CPU, 1)
	if err != nil {
		t.Fatal(err)
	}
	adam, err := optim.Registry.Make("adam")
	if err != nil {
		t.Fatal(err)
	}
	optimizer, err := adam.New(root, []optim.Group{{Name: "all", Params: model.Parameters(), LR: 1, Decay: 1}})
	if err != nil {
		t.Fatal(err)
	}

	const n, size = 16, 28 * 28
	r := rand.New(rand.NewPCG(1, 2))
	centre := [2][]float32{make([]float32, size), make([]float32, size)}
	for c := range centre {
		for i := range centre[c] {
			centre[c][i] = r.Float32()
		}
	}
	step := func() float64 {
		s := root.Child()
		defer s.Close()
		pixels := make([]float32, n*size)
		same := make([]float32, n*n)
		for i := range n {
			for j := range size {
				pixels[i*size+j] = centre[i%2][j] + 0.3*r.Float32()
			}
			for j := range n {
				same[i*n+j] = -1
				if i%2 == j%2 {
					same[i*n+j] = 1
				}
			}
		}
		e := model.Forward(torch.From(s, pixels, n, 1, 28, 28), true)
		scores := e.MatMul(e.T())
		loss := scores.Sub(torch.From(s, same, n, n)).Square().Mean()
		if err := optimizer.ZeroGrad(); err != nil {
			t.Fatal(err)
		}
		if err := loss.Backward(); err != nil {
			t.Fatal(err)
		}
		if err := optimizer.Step(1); err != nil {
			t.Fatal(err)
		}
		value, err := loss.Item()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	first := step()
	live := torch.Live()
	var last float64
	for range 30 {
		last = step()
	}
	if live != torch.Live() {
		t.Errorf("30 steps left %d handles behind", torch.Live()-live)
	}
	if last > first/10 {
		t.Errorf("the loss went from %g to %g only", first, last)
	}
	root.Close()
	if torch.Live() != before {
		t.Errorf("%d handles outlived the scope", torch.Live()-before)
	}
}
