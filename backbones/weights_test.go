package backbones_test

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/backbones/backbonetest"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// snapshot is a model's state on the host.
func snapshot(t *testing.T, m *backbones.Model) []tensorio.Named {
	t.Helper()
	state, err := m.State().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// write puts tensors into a file, renamed; an empty new name leaves one out.
func write(t *testing.T, tensors []tensorio.Named, rename func(string) string, extra ...tensorio.Named) string {
	t.Helper()
	var all []tensorio.Named
	for _, n := range tensors {
		if n.Name = rename(n.Name); n.Name != "" {
			all = append(all, n)
		}
	}
	path := filepath.Join(t.TempDir(), "w.pth")
	if err := backbones.WriteWeights(path, append(all, extra...), false); err != nil {
		t.Fatal(err)
	}
	return path
}

// equal compares two states bit by bit, the names that skip accepts left out.
func equal(t *testing.T, got, want []tensorio.Named, skip func(string) bool) {
	t.Helper()
	for i, n := range want {
		if skip != nil && skip(n.Name) {
			continue
		}
		if got[i].Name != n.Name || got[i].DType != n.DType || !slices.Equal(got[i].Shape, n.Shape) || !bytes.Equal(got[i].Data, n.Data) {
			t.Errorf("%s differs", n.Name)
		}
	}
}

func TestWeightsRoundTrip(t *testing.T) {
	for name, options := range small {
		for _, ext := range []string{"pth", "safetensors"} {
			before := torch.Live()
			s := torch.NewScope()
			m := build(t, s, 1, name, append([]string{"dim=5"}, options...)...)
			path := filepath.Join(t.TempDir(), "w."+ext)
			if err := m.Save(path, true, false); err != nil {
				t.Fatal(err)
			}
			if err := m.Save(path, true, false); err == nil {
				t.Error("a file was overwritten without being asked to")
			}
			other := build(t, s, 2, name, append([]string{"dim=5"}, options...)...)
			loaded, err := other.Load(backbones.Weights{File: path, Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, snapshot(t, other), snapshot(t, m), nil)
			if loaded.Tensors != len(m.State()) || len(loaded.Dropped)+len(loaded.Initial) > 0 {
				t.Errorf("%s: %+v", name, loaded)
			}
			s.Close()
			if left := torch.Live() - before; left != 0 {
				t.Errorf("%s: %d handles left", name, left)
			}
		}
	}
}

// The names under which programs have kept a ResNet and its projection.
func TestForeignNames(t *testing.T) {
	parts := strings.NewReplacer("conv1.", "0.", "bn1.", "1.", "layer1.", "4.", "layer2.", "5.", "layer3.", "6.", "layer4.", "7.")
	sequential := func(name string) string { // only the first part has a number
		first, rest, _ := strings.Cut(name, ".")
		return strings.TrimSuffix(parts.Replace(first+"."), ".") + "." + rest
	}
	isHead := func(name string) bool { return strings.HasPrefix(name, "head.") }
	counter := func(name string) bool { return strings.HasSuffix(name, "num_batches_tracked") }
	classifier := []tensorio.Named{
		{Name: "fc.weight", Tensor: tensorio.Of(make([]float32, 10*512), 10, 512)},
		{Name: "fc.bias", Tensor: tensorio.Of(make([]float32, 10), 10)},
	}
	for _, c := range []struct {
		name    string
		rename  func(string) string
		extra   []tensorio.Named
		initial func(string) bool
		prefix  string
		dropped []string
	}{
		{"torchvision", func(n string) string {
			if isHead(n) {
				return ""
			}
			return n
		}, classifier, isHead, "", []string{"fc.weight", "fc.bias"}},
		{"before counters were saved", func(n string) string {
			if isHead(n) || counter(n) {
				return ""
			}
			return n
		}, classifier, func(n string) bool { return isHead(n) || counter(n) }, "", []string{"fc.weight", "fc.bias"}},
		{"DataParallel", func(n string) string { return "module." + n }, nil, nil, "module.", nil},
		{"net of module", func(n string) string { return "net.module." + n }, nil, nil, "net.module.", nil},
		{"backbone alone", func(n string) string {
			if isHead(n) {
				return ""
			}
			return "module.backbone." + n
		}, nil, isHead, "module.backbone.", nil},
		{"retrieval network", func(n string) string {
			if rest, ok := strings.CutPrefix(n, "head.projection."); ok {
				return "module.fc." + rest
			}
			return "module.backbone." + sequential(n)
		}, nil, nil, "module.", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := torch.NewScope()
			defer s.Close()
			m := build(t, s, 1, "resnet18", "dim=5")
			if err := m.State()[4].Tensor.FillInPlace(0.25).Err(); err != nil { // a running variance
				t.Fatal(err)
			}
			path := write(t, snapshot(t, m), c.rename, c.extra...)
			other := build(t, s, 2, "resnet18", "dim=5")
			loaded, err := other.Load(backbones.Weights{File: path, Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, snapshot(t, other), snapshot(t, m), c.initial)
			if loaded.Prefix != c.prefix || !slices.Equal(loaded.Dropped, c.dropped) || loaded.Classifier != (c.dropped != nil) {
				t.Errorf("prefix %q, dropped %q; want %q, %q", loaded.Prefix, loaded.Dropped, c.prefix, c.dropped)
			}
			for _, n := range m.State() {
				if initial := c.initial != nil && c.initial(n.Name); slices.Contains(loaded.Initial, n.Name) != initial {
					t.Errorf("%s: reported as initial: %v", n.Name, !initial)
				}
			}
		})
	}
}

func TestStrictness(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "convnet", small["convnet"]...)
	odd := tensorio.Named{Name: "extra", Tensor: tensorio.Of([]float32{1}, 1)}
	path := write(t, snapshot(t, m), func(n string) string {
		if n == "blocks.1.conv.bias" {
			return ""
		}
		return n
	}, odd)

	other := build(t, s, 2, "convnet", small["convnet"]...)
	untouched := snapshot(t, other)
	_, err := other.Load(backbones.Weights{File: path, Strict: true})
	for _, want := range []string{path, "blocks.1.conv.bias", "extra", "with drop"} {
		if err == nil || !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v, want an input error with %q", err, want)
		}
	}
	equal(t, snapshot(t, other), untouched, nil)

	loaded, err := other.Load(backbones.Weights{File: path})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"blocks.1.conv.bias", "extra"}; !slices.Equal(loaded.Unlike, want) || loaded.Tensors != len(untouched)-1 {
		t.Errorf("%d tensors, unlike %q; want %d, %q", loaded.Tensors, loaded.Unlike, len(untouched)-1, want)
	}
	equal(t, snapshot(t, other), snapshot(t, m), func(n string) bool { return n == "blocks.1.conv.bias" })

	if _, err := other.Load(backbones.Weights{File: path, Drop: []string{"extr"}}); err == nil || !strings.Contains(err.Error(), `no tensor "extr"`) {
		t.Errorf("a misspelt drop: error %v", err)
	}
	if _, err := build(t, s, 1, "resnet18", "size=32").Load(backbones.Weights{File: path, Strict: true}); err == nil || !strings.Contains(err.Error(), "and 95 more") || !strings.Contains(err.Error(), "looks like convnet") {
		t.Errorf("weights of another network: error %v", err)
	}
}

// A network of 6x6 places whose weights are loaded into one of 8x8 must embed
// images of 128 pixels as the first does when it is given such images.
func TestPositionsAreResampled(t *testing.T) {
	const name = "deit_small_distilled_patch16_224"
	s := torch.NewScope()
	defer s.Close()
	from := build(t, s, 1, name, "size=96")
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := from.Save(path, false, false); err != nil {
		t.Fatal(err)
	}
	to := build(t, s, 2, name, "size=128")
	loaded, err := to.Load(backbones.Weights{File: path, Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(loaded.Resampled, []string{"pos_embed"}) {
		t.Errorf("resampled: %q", loaded.Resampled)
	}
	x := backbonetest.Tensor(s, torch.CPU, "x", 2, 3, 128, 128)
	if d := distance(floats(t, to.Forward(x, false)), floats(t, from.Forward(x, false))); !(d <= 1e-6) {
		t.Errorf("embeddings differ by %g", d)
	}
}

// ROADMAP trains a plain DeiT from a distilled one's weights: without the
// distillation token and its position.
func TestDistillationTokenIsLeftOutOnRequest(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	from := build(t, s, 1, "deit_small_distilled_patch16_224", "size=32")
	path := filepath.Join(t.TempDir(), "w.pth")
	if err := from.Save(path, false, false); err != nil {
		t.Fatal(err)
	}
	to := build(t, s, 2, "deit_small_patch16_224", "size=32")
	if _, err := to.Load(backbones.Weights{File: path, Strict: true}); err == nil || !strings.Contains(err.Error(), "drop=[dist_token]") {
		t.Errorf("error %v, want the way out", err)
	}
	loaded, err := to.Load(backbones.Weights{File: path, Strict: true, Drop: []string{"dist_token"}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(loaded.Dropped, []string{"dist_token"}) || loaded.Classifier || len(loaded.Resampled) > 0 {
		t.Errorf("%+v", loaded)
	}
	tensor := func(m *backbones.Model, name string) []float64 {
		i := slices.IndexFunc(m.State(), func(n nn.Named) bool { return n.Name == name })
		return floats(t, m.State()[i].Tensor)
	}
	const width = 384
	all := tensor(from, "pos_embed") // class, distillation, 2x2 places
	if want := append(slices.Clone(all[:width]), all[2*width:]...); !slices.Equal(tensor(to, "pos_embed"), want) {
		t.Error("the positions are not those of class and places")
	}
	if !slices.Equal(tensor(to, "blocks.3.mlp.fc1.weight"), tensor(from, "blocks.3.mlp.fc1.weight")) {
		t.Error("a block's weights were not loaded")
	}
}

func TestUnknownEnding(t *testing.T) {
	if err := backbones.WriteWeights(filepath.Join(t.TempDir(), "w.bin"), nil, false); !fault.IsInput(err) || !strings.Contains(err.Error(), ".pth, .pt or .safetensors") {
		t.Errorf("error %v", err)
	}
}

// Weights that are not finite are refused by name, as are those that float16
// cannot hold by an Embedder.
func TestUnsoundWeights(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	m := build(t, s, 1, "convnet", small["convnet"]...)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		tensors := snapshot(t, m)
		tensors[0].Tensor = tensorio.Of(slices.Repeat([]float32{bad}, len(tensors[0].Data)/4), tensors[0].Shape...)
		path := write(t, tensors, func(n string) string { return n })
		_, err := m.Load(backbones.Weights{File: path, Strict: false})
		faulttest.Refused(t, err, path, tensors[0].Name, "NaN or infinity")
	}
	weight := m.Parameters()[0].Tensor
	torch.NoGrad(func() { weight.CopyInPlace(s.Full(weight.Shape(), 1e6, torch.Float32, torch.CPU)) })
	if _, err := m.Embedder(s, torch.BFloat16); err != nil {
		t.Error(err)
	}
	_, err := m.Embedder(s, torch.Float16)
	faulttest.Refused(t, err, "float16", "bfloat16")
}

// A program may keep the network as "net" beside projection and pooling.
func TestParts(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	options := []string{"size=32", "dim=3", "pool=gem"}
	m := build(t, s, 1, "resnet18", options...)
	for _, trunk := range []string{"net.", "backbone."} {
		path := write(t, snapshot(t, m), func(n string) string {
			switch {
			case strings.HasPrefix(n, "head.projection."):
				return "fc." + strings.TrimPrefix(n, "head.projection.")
			case strings.HasPrefix(n, "head.pool."):
				return "pooling." + strings.TrimPrefix(n, "head.pool.")
			}
			return trunk + n
		})
		other := build(t, s, 2, "resnet18", options...)
		if _, err := other.Load(backbones.Weights{File: path, Strict: true}); err != nil {
			t.Fatal(err)
		}
		equal(t, snapshot(t, other), snapshot(t, m), nil)
	}
}
