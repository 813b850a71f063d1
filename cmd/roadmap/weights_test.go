package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"os/exec"
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

// repeating is a .pth of 100 tensors that each repeat one float32 sixteen
// million times: 6.4 GB of elements in a few kilobytes.
func repeating(t *testing.T) string {
	t.Helper()
	var program bytes.Buffer
	program.WriteString("\x80\x02}(")
	for i := range 100 {
		fmt.Fprintf(&program, "U\x03t%02dctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x01tQK\x00"+
			"J\x00\x00\xf4\x00\x85K\x00\x85\x89}tR", i)
	}
	program.WriteString("u.")
	path := filepath.Join(t.TempDir(), "repeating.pth")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	z := zip.NewWriter(out)
	for name, content := range map[string]string{"data.pkl": program.String(), "data/0": "\x00\x00\x80\x3f"} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "archive/" + name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return path
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
		{[]string{"convert", repeating(t), out}, "its tensors share storage"},
		{[]string{"convert", path, filepath.Join(dir, "out.bin")}, ".safetensors"},
		{[]string{"convert", path, out, "--strip", "net."}, "does not begin with it"},
		{[]string{"convert", path, out, "--drop", "nothing"}, "no such tensor"},
		{[]string{"convert", path, out, "--dtype", "int8"}, "float16"},
		{[]string{"convert", path, out, "--model", "resnet18"}, "100 missing from the file (conv1.weight, "},
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

// TestWeightsConformance converts a state_dict that torchvision's ResNet-18
// saved, classifier included, to every format and back: PyTorch loads each with
// strict=True and finds every tensor bit-equal.
func TestWeightsConformance(t *testing.T) {
	interpreter := os.Getenv("ROADMAP_PYTHON")
	if interpreter == "" {
		t.Skip("ROADMAP_PYTHON names no Python with torchvision; make conformance does")
	}
	dir := t.TempDir()
	python := func(program string, files ...string) {
		t.Helper()
		cmd := exec.Command(interpreter, append([]string{"-c", program}, files...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	python(`
import torch, torchvision
torch.manual_seed(0)
net = torchvision.models.resnet18()
with torch.no_grad():
    for t in net.state_dict().values():
        t.normal_() if t.is_floating_point() else t.fill_(3)
torch.save({"epoch": 1, "state_dict": {"module." + k: v for k, v in net.state_dict().items()}}, "theirs.pth")
`)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, words := range [][]string{
		{at("theirs.pth"), at("all.safetensors"), "--strip", "module."},
		{at("all.safetensors"), at("all.pth")},
		{at("theirs.pth"), at("trunk.pth"), "--model", "resnet18"},
		{at("theirs.pth"), at("trunk.safetensors"), "--model", "resnet18"},
	} {
		if _, stderr, code := roadmap(t, append([]string{"weights", "convert"}, words...)...); code != codeDone {
			t.Fatalf("%v: code %d, %s", words, code, stderr)
		}
	}
	python(`
import sys, torch, torchvision
from safetensors.torch import load_file
want = {k.removeprefix("module."): v for k, v in torch.load("theirs.pth")["state_dict"].items()}
for name in sys.argv[1:]:
    net = torchvision.models.resnet18()
    if name.startswith("trunk"):
        net.fc = torch.nn.Identity()
    net.load_state_dict(load_file(name) if name.endswith(".safetensors") else torch.load(name), strict=True)
    for k, v in net.state_dict().items():
        assert v.dtype == want[k].dtype and torch.equal(v, want[k]), (name, k)
`, "all.safetensors", "all.pth", "trunk.pth", "trunk.safetensors")
}
