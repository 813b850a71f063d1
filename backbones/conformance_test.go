package backbones_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/backbones"
	"roadmap/pkg/config"
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
// this machine: forward and backward, element by element, in both modes, at 224
// and 256 pixels; with parts frozen; and under autocast.
func TestConformance(t *testing.T) {
	for _, name := range backbones.Registry.Names() {
		if name == "convnet" || name == "torchscript" { // ours: TestGolden; not a network: TestScriptConformance
			continue
		}
		t.Run(name, func(t *testing.T) {
			pool, sizes, extra := "cls", []string{"224/224", "224/256", "256/256"}, []string{"224/224/frozen/%s/float32", "224/224/train/%s/bfloat16"}
			if strings.HasPrefix(name, "resnet") {
				pool, sizes = "avg", []string{"224/224", "224/256"}
				extra = append(extra, "224/224/affine/%s/float32")
			}
			if name == "deit_small_patch16_224" { // the CPU has no fast float16 convolutions backward
				extra = append(extra, "224/224/train/%s/float16")
			}
			head := pool + "/0/128"
			var cases []string
			for _, size := range sizes {
				for _, mode := range []string{"eval", "train"} {
					cases = append(cases, fmt.Sprintf("%s/%s/%s/%s/float32", name, size, mode, head))
				}
			}
			for _, e := range extra {
				cases = append(cases, name+"/"+fmt.Sprintf(e, head))
			}
			for i, file := range referenceCases(t, cases...) {
				t.Run(strings.TrimPrefix(cases[i], name+"/"), func(t *testing.T) { compare(t, file, cases[i], "") })
			}
		})
	}
}

// referenceCases has Python compute cases and opens their files.
func referenceCases(t *testing.T, cases ...string) []*tensorio.File {
	t.Helper()
	folder := t.TempDir()
	python(t, append([]string{"cases", folder}, cases...)...)
	files := make([]*tensorio.File, len(cases))
	for i := range cases {
		file, err := tensorio.Open(filepath.Join(folder, fmt.Sprint(i, ".safetensors")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		files[i] = file
	}
	return files
}

// TestScriptConformance runs torchvision's ResNet-18 as PyTorch scripted and
// traced it: forward and backward must be those of PyTorch itself, parameter by
// parameter, in the modes that each knows.
func TestScriptConformance(t *testing.T) {
	for how, modes := range map[string][]string{"script": {"eval", "train"}, "trace": {"eval"}} {
		t.Run(how, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "m.pt")
			python(t, "module", "resnet18", how, path)
			section, err := config.Assign("torchscript", "file="+path, "dim=128", "channels_last=true")
			if err != nil {
				t.Fatal(err)
			}
			var cases []string
			for _, mode := range modes {
				cases = append(cases, "resnet18/224/224/"+mode+"/avg/0/128/float32")
			}
			for i, file := range referenceCases(t, cases...) {
				compareWith(t, section, file, strings.Split(cases[i], "/"), "")
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
