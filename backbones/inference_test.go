package backbones_test

import (
	"slices"
	"strings"
	"testing"

	"roadmap/backbones/backbonetest"
	"roadmap/pkg/torch"
)

// An Embedder gives the embeddings of Forward: in float32 to rounding, in 16
// bits to a cosine. Weights are drawn so that batch norms do something.
func TestEmbedderGivesTheSameEmbeddings(t *testing.T) {
	for name, options := range map[string][]string{
		"convnet":                          {"size=14", "blocks=2"},
		"resnet18":                         {"size=64", "dim=32"},
		"resnet50":                         {"size=64", "dim=32", "pool=max", "layer_norm=true"},
		"deit_small_distilled_patch16_224": {"size=64"},
		"torchscript":                      {"file=testdata/script.pt", "size=8"},
	} {
		before := torch.Live()
		s := torch.NewScope()
		m := build(t, s, 1, name, options...)
		if err := backbonetest.Fill(m.State()); err != nil {
			t.Fatal(err)
		}
		x := batch(s, m, 4)
		copied := floats(t, x)
		want := floats(t, m.Forward(x, false))
		for dtype, tolerance := range map[torch.DType]float64{torch.Float32: 1e-5, torch.BFloat16: 0.05, torch.Float16: 0.01} {
			inner := s.Child()
			e, err := m.Embedder(inner, dtype)
			if err != nil {
				t.Fatal(err)
			}
			live := torch.Live()
			step := inner.Child()
			y := e.Forward(x.Alias(step))
			got := floats(t, y)
			if d := distance(got, want); !(d <= tolerance) || y.DType() != torch.Float32 || y.RequiresGrad() {
				t.Errorf("%s in %s: relative distance %.2g, dtype %s, gradient %v", name, dtype, d, y.DType(), y.RequiresGrad())
			}
			step.Close()
			if left := torch.Live() - live; left != 0 {
				t.Errorf("%s in %s: %d handles left by a batch", name, dtype, left)
			}
			inner.Close()
		}
		if !slices.Equal(floats(t, x), copied) {
			t.Errorf("%s: the images were written over", name)
		}
		s.Close()
		if left := torch.Live() - before; left != 0 {
			t.Errorf("%s: %d handles left", name, left)
		}
	}
}

func TestEmbedderRefusals(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "convnet", small["convnet"]...)
	if _, err := m.Embedder(s, torch.Int64); err == nil || !strings.Contains(err.Error(), "not in int64") {
		t.Errorf("error %v", err)
	}
	e, err := m.Embedder(s, torch.Float32)
	if err != nil {
		t.Fatal(err)
	}
	live := torch.Live()
	step := s.Child()
	if err := e.Forward(backbonetest.Tensor(step, torch.CPU, "x", 1, 3, 8, 8)).Err(); err == nil {
		t.Error("colour images went into a grey network")
	}
	step.Close()
	if left := torch.Live() - live; left != 0 {
		t.Errorf("a refusal left %d handles", left)
	}
	if err := s.Err(); err != nil {
		t.Errorf("the network's scope failed: %v", err)
	}
}
