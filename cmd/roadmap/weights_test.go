package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/pkg/config"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// weightsFile saves a small network under a prefix, with one tensor more.
func weightsFile(t *testing.T) string {
	t.Helper()
	section, err := config.Assign("convnet", "blocks=1", "width=2", "size=2", "dim=3")
	if err != nil {
		t.Fatal(err)
	}
	backbone, err := config.Build(backbones.Registry, section)
	if err != nil {
		t.Fatal(err)
	}
	s := torch.NewScope()
	defer s.Close()
	model, err := backbone.Build(s, torch.CPU, 1)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := model.State().Under("module.").Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	tensors = append(tensors, tensorio.Named{Name: "module.extra", Tensor: tensorio.Of([]float32{1, 0.1}, 2)})
	path := filepath.Join(t.TempDir(), "in.pth")
	if err := backbones.WriteWeights(path, tensors, false); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWeightsInspect(t *testing.T) {
	path := weightsFile(t)
	stdout, _, code := roadmap(t, "weights", "inspect", path, "--json")
	o := object(t, stdout)
	// conv 2·9 + 2, norm 4·2 + 1, head 3·2 + 3, extra 2
	if code != codeDone || o["format"] != "torch" || o["elements"] != float64(18+2+9+9+2) || len(o["tensors"].([]any)) != 10 {
		t.Errorf("code %d, %v", code, o)
	}
	stdout, _, code = roadmap(t, "weights", "inspect", path)
	for _, want := range []string{"module.blocks.0.conv.weight", "[2 1 3 3]", "float32", "10 tensors, 40 elements"} {
		if code != codeDone || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %q in\n%s", code, want, stdout)
		}
	}
}

func TestWeightsConvert(t *testing.T) {
	path := weightsFile(t)
	dir := t.TempDir()
	shape := []string{"--model", "convnet", "--set", "model.blocks=1", "--set", "model.width=2", "--set", "model.size=2", "--set", "model.dim=3"}
	for _, c := range []struct {
		out   string
		args  []string
		names []string // some of those expected
		count int
		dtype tensorio.DType
	}{
		{"a.safetensors", nil, []string{"module.extra", "module.blocks.0.conv.weight"}, 10, tensorio.Float32},
		{"b.pth", []string{"--strip", "module.", "--drop", "extra", "--dtype", "bfloat16"}, []string{"blocks.0.conv.weight", "head.projection.bias"}, 9, tensorio.BFloat16},
		{"c.pt", append([]string{"--drop", "module.extra", "--dtype", "float16"}, shape...), []string{"blocks.0.conv.weight", "head.projection.bias"}, 9, tensorio.Float16},
	} {
		out := filepath.Join(dir, c.out)
		stdout, stderr, code := roadmap(t, append([]string{"weights", "convert", path, out, "--json"}, c.args...)...)
		if code != codeDone || object(t, stdout)["tensors"] != float64(c.count) {
			t.Fatalf("%s: code %d, %s%s", c.out, code, stdout, stderr)
		}
		file, err := tensorio.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range c.names {
			if i := slices.Index(file.Names(), name); i < 0 || file.Entries()[i].DType != c.dtype {
				t.Errorf("%s: no %s of %v", c.out, name, c.dtype)
			}
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWeightsRefusals(t *testing.T) {
	path := weightsFile(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "out.pth")
	taken := filepath.Join(dir, "taken.pth")
	if err := os.WriteFile(taken, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"inspect", filepath.Join(dir, "none.pth")}, "no such file"},
		{[]string{"inspect", taken}, "taken.pth"},
		{[]string{"convert", path, taken}, "taken.pth"},
		{[]string{"convert", path, filepath.Join(dir, "out.bin")}, ".safetensors"},
		{[]string{"convert", path, out, "--strip", "net."}, "does not begin with it"},
		{[]string{"convert", path, out, "--drop", "nothing"}, "no such tensor"},
		{[]string{"convert", path, out, "--dtype", "int8"}, "float16"},
		{[]string{"convert", path, out, "--model", "resnet18"}, "layer1.0.conv1.weight"},
		{[]string{"convert", path, out, "--model", "resnet19"}, "resnet18"},
		{[]string{"convert", path, out, "--set", "model.dim=1"}, "--set belongs to --model"},
	} {
		_, stderr, code := roadmap(t, append([]string{"weights"}, c.args...)...)
		if code != codeInput || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: code %d, want %q in %q", c.args, code, c.want, stderr)
		}
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Error("a refused conversion left a file")
	}
}
