package backbones_test

import (
	"slices"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/backbones/backbonetest"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// build makes a backbone from its name and "key=value" options.
func build(t *testing.T, s *torch.Scope, seed uint64, name string, options ...string) *backbones.Model {
	t.Helper()
	section, err := config.Assign(name, options...)
	if err != nil {
		t.Fatal(err)
	}
	backbone, err := config.Build(backbones.Registry, section)
	if err != nil {
		t.Fatal(err)
	}
	model, err := backbone.Build(s, torch.CPU, seed)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// batch draws n images of the size a model wants.
func batch(s *torch.Scope, m *backbones.Model, n int64) *torch.Tensor {
	in := m.Input()
	return backbonetest.Tensor(s, torch.CPU, "batch", n, int64(in.Channels), int64(in.Size), int64(in.Size))
}

func floats(t *testing.T, x *torch.Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// small are options that make each family's smallest member quick.
var small = map[string][]string{
	"convnet":                          {"blocks=2", "width=8", "size=8"},
	"resnet18":                         {"size=32"},
	"deit_small_distilled_patch16_224": {"size=32"},
}

func TestSeedDecidesTheWeights(t *testing.T) {
	for name, options := range small {
		s := torch.NewScope()
		embed := func(seed uint64) []float64 {
			m := build(t, s, seed, name, options...)
			return floats(t, m.Forward(batch(s, m, 2), false))
		}
		if first := embed(5); !slices.Equal(first, embed(5)) || slices.Equal(first, embed(6)) {
			t.Errorf("%s: embeddings do not follow the seed", name)
		}
		s.Close()
	}
}

// Embeddings have length 1 (float32: an error of a few 1e-7), unless asked not to.
func TestEmbeddingsHaveLengthOne(t *testing.T) {
	for name, options := range small {
		s := torch.NewScope()
		m := build(t, s, 1, name, append([]string{"dim=5"}, options...)...)
		y := floats(t, m.Forward(batch(s, m, 3), false))
		if m.Dim() != 5 || len(y) != 15 {
			t.Fatalf("%s: %d numbers for 3 embeddings of %d", name, len(y), m.Dim())
		}
		for row := range slices.Chunk(y, 5) {
			length := 0.0
			for _, v := range row {
				length += v * v
			}
			if !(length >= 1-1e-6 && length <= 1+1e-6) {
				t.Errorf("%s: squared length %g", name, length)
			}
		}
		bare := build(t, s, 1, name, append([]string{"dim=5", "normalize=false"}, options...)...)
		if slices.Equal(floats(t, bare.Forward(batch(s, bare, 3), false)), y) {
			t.Errorf("%s: normalize=false changes nothing", name)
		}
		s.Close()
	}
}

// Gradients and running statistics with checkpointing must be bit-equal to
// those without: the same operations run, twice.
func TestCheckpointChangesNothing(t *testing.T) {
	for _, name := range []string{"resnet18", "deit_small_distilled_patch16_224"} {
		before := torch.Live()
		var want [][]float64
		for _, checkpoint := range []string{"false", "true"} {
			s := torch.NewScope()
			m := build(t, s, 1, name, append([]string{"dim=8", "checkpoint=" + checkpoint}, small[name]...)...)
			step := s.Child()
			y := m.Forward(batch(step, m, 4), true)
			if err := y.Mul(backbonetest.Tensor(step, torch.CPU, "loss", 4, 8)).Sum().Backward(); err != nil {
				t.Fatal(err)
			}
			got := [][]float64{floats(t, y)}
			for _, n := range m.State() {
				from := n.Tensor
				if n.Parameter {
					from = n.Tensor.Grad(step)
				}
				if from == nil {
					t.Fatalf("%s: %s has no gradient", name, n.Name)
				}
				got = append(got, floats(t, from))
			}
			if want == nil {
				want = got
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s: tensor %d of embeddings and state differs", name, i)
				}
			}
			step.Close()
			s.Close()
		}
		if left := torch.Live() - before; left != 0 {
			t.Errorf("%s: %d handles left", name, left)
		}
	}
}

func TestFreezing(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	trained := func(name string, options ...string) (names []string) {
		m := build(t, s, 1, name, append(options, small[name]...)...)
		for _, n := range m.Parameters() {
			names = append(names, n.Name)
		}
		return names
	}
	isNorm := func(name string) bool { return strings.Contains(name, "bn") || strings.Contains(name, "downsample.1") }
	all := trained("resnet18")
	if got := trained("resnet18", "frozen_norm=statistics"); !slices.Equal(got, all) {
		t.Error("frozen statistics change what is trained")
	}
	if got, want := trained("resnet18", "frozen_norm=affine"), slices.DeleteFunc(slices.Clone(all), isNorm); !slices.Equal(got, want) {
		t.Errorf("with frozen_norm=affine %v is trained, want %v", got, want)
	}
	const vit = "deit_small_distilled_patch16_224"
	if got, want := trained(vit, "frozen_positions=true"), slices.DeleteFunc(trained(vit), func(n string) bool { return n == "pos_embed" }); !slices.Equal(got, want) {
		t.Errorf("with frozen_positions %v is trained, want %v", got, want)
	}

	m := build(t, s, 1, "resnet18", append([]string{"frozen_norm=statistics"}, small["resnet18"]...)...)
	x := batch(s, m, 2)
	if want, got := floats(t, m.Forward(x, false)), floats(t, m.Forward(x, true)); !slices.Equal(got, want) {
		t.Error("with frozen statistics training and evaluation differ")
	}
}

// A hundred steps leave no handle, and neither does a batch that does not fit.
func TestStepsLeaveNothing(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "convnet", small["convnet"]...)
	params := m.Parameters().Tensors()
	step := func(size int64) error {
		inner := s.Child()
		defer inner.Close()
		if err := torch.ZeroGrad(params); err != nil {
			return err
		}
		return m.Forward(backbonetest.Tensor(inner, torch.CPU, "x", 4, 1, size, 8), true).Square().Sum().Backward()
	}
	if err := step(8); err != nil {
		t.Fatal(err)
	}
	live := torch.Live()
	for range 100 {
		if err := step(8); err != nil {
			t.Fatal(err)
		}
		if err := step(1); err == nil {
			t.Fatal("images one pixel high went through two poolings")
		}
	}
	if left := torch.Live() - live; left != 0 {
		t.Errorf("100 steps and 100 refusals left %d handles", left)
	}
}

func TestRefusedSettings(t *testing.T) {
	for _, c := range []struct{ name, option, want string }{
		{"convnet", "size=15", "vanish in 4 blocks"},
		{"convnet", "blocks=0", "blocks must be at least 1"},
		{"convnet", "pool=cls", "no class token"},
		{"resnet18", "size=31", "give at least 32"},
		{"resnet18", "frozen_norm=all", "none, statistics or affine"},
		{"resnet18", "pool=mean", "avg, max, gem or cls"},
		{"resnet18", "dim=-1", "dim must be positive"},
		{"vit_small_patch16_224", "size=225", "multiple of the patches' 16 pixels"},
		{"vit_small_patch16_224", "pool=gem", "gem needs a backbone with feature maps"},
	} {
		before := torch.Live()
		err := func() error {
			section, err := config.Assign(c.name, c.option)
			if err != nil {
				return err
			}
			backbone, err := config.Build(backbones.Registry, section)
			if err != nil {
				return err
			}
			s := torch.NewScope()
			defer s.Close()
			_, err = backbone.Build(s, torch.CPU, 1)
			return err
		}()
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.IsInput(err) {
			t.Errorf("%s %s: error %v, want an input error with %q", c.name, c.option, err, c.want)
		}
		if torch.Live() != before {
			t.Errorf("%s %s: %d handles left", c.name, c.option, torch.Live()-before)
		}
	}
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "deit_small_patch16_224")
	y := m.Forward(backbonetest.Tensor(s, torch.CPU, "x", 1, 3, 224, 230), false)
	if err := y.Err(); err == nil || !strings.Contains(err.Error(), "230x224 pixels do not divide into patches") {
		t.Errorf("images that are no whole patches: error %v", err)
	}
}

// Every network has torchvision's or timm's number of parameters, without a
// classifier: the counts of torchvision 0.26.0 and timm 1.0.31 (num_classes=0).
func TestParameterCounts(t *testing.T) {
	for name, want := range map[string]int64{
		"resnet18": 11176512, "resnet34": 21284672, "resnet50": 23508032, "resnet101": 42500160, "resnet152": 58143808,
		"vit_small_patch16_224": 21665664, "vit_base_patch16_224": 85798656,
		"deit_small_patch16_224": 21665664, "deit_base_patch16_224": 85798656,
		"deit_small_distilled_patch16_224": 21666432, "deit_base_distilled_patch16_224": 85800192,
	} {
		s := torch.NewScope()
		m := build(t, s, 1, name)
		got := int64(0)
		for _, p := range m.Parameters() {
			got += p.Tensor.Numel()
		}
		if got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
		s.Close()
	}
}
