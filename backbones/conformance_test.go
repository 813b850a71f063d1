package backbones_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// python runs testdata/reference.py with the interpreter named by
// ROADMAP_PYTHON, which has torch, torchvision, timm and safetensors. Without
// one the test is left out: `make conformance` has it.
func python(t *testing.T, args ...string) {
	t.Helper()
	interpreter := os.Getenv("ROADMAP_PYTHON")
	if interpreter == "" {
		t.Skip("ROADMAP_PYTHON names no Python with torchvision and timm; make conformance does")
	}
	out, err := exec.Command(interpreter, append([]string{filepath.Join("testdata", "reference.py")}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("reference.py %v: %v\n%s", args, err, out)
	}
}

// TestConformance compares every network with the original, in this run and on
// this machine: forward and backward, in both modes, at 224 and 256 pixels.
func TestConformance(t *testing.T) {
	for _, name := range backbones.Registry.Names() {
		if name == "convnet" || name == "torchscript" { // ours: TestGolden; not a network: TestScript
			continue
		}
		t.Run(name, func(t *testing.T) {
			pool, sizes := "cls", []string{"224/224", "224/256", "256/256"}
			if strings.HasPrefix(name, "resnet") {
				pool, sizes = "avg", []string{"224/224", "224/256"}
			}
			var cases []string
			for _, size := range sizes {
				for _, mode := range []string{"eval", "train"} {
					cases = append(cases, fmt.Sprintf("%s/%s/%s/%s/0/128/float32", name, size, mode, pool))
				}
			}
			path := filepath.Join(t.TempDir(), "cases.safetensors")
			python(t, append([]string{"cases", path}, cases...)...)
			file, err := tensorio.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			for _, c := range cases {
				t.Run(strings.TrimPrefix(c, name+"/"), func(t *testing.T) { compare(t, file, c, c+"/") })
			}
		})
	}
}

// TestWeightsConformance takes a state_dict with random values that PyTorch
// saved through our loader and saver, and PyTorch loads what came out with
// strict=True and finds every tensor bit-equal.
func TestWeightsConformance(t *testing.T) {
	for _, name := range backbones.Registry.Names() {
		if name == "convnet" || name == "torchscript" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(file string) string { return filepath.Join(dir, file) }
			python(t, "weights", name, at("theirs.pth"))
			s := torch.NewScope()
			defer s.Close()
			m := build(t, s, 1, name, "dim=3")
			loaded, err := m.Load(backbones.Weights{File: at("theirs.pth"), Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if !loaded.Classifier || len(loaded.Initial) != 2 || len(loaded.Resampled) > 0 {
				t.Errorf("%+v", loaded)
			}
			for _, file := range []string{"ours.pth", "ours.safetensors"} {
				if err := m.Save(at(file), false, false); err != nil {
					t.Fatal(err)
				}
			}
			python(t, "check", name, at("ours.pth"), at("ours.safetensors"), at("theirs.pth"))
		})
	}
}
