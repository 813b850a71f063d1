package train_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch/torchtest"
	"roadmap/pkg/train"
)

// What a run keeps from step to step, beyond network and optimiser, is in its
// checkpoints too.
func TestResumeWithAllThatIsKept(t *testing.T) {
	for name, overrides := range map[string][]string{
		"memory of batches":  {"loss={name: supap, memory: {batches: 3, start_step: 2}}"},
		"memory of all":      {"loss={name: contrastive, memory: {size: dataset, combine: sum}}"},
		"proxies":            {"loss=normsoftmax", "groups.proxy_lr=10"},
		"moving average":     {"train.ema=0.8"},
		"gradient scaling":   {"train.precision=float16", "train.clip_norm=1"},
		"16 bits":            {"train.precision=bfloat16"},
		"spared norms, head": {"groups={head_lr: 2, spare_norms: true}", "optimizer={name: sgd, lr: 0.1, momentum: 0.9, nesterov: true}"},
	} {
		t.Run(name, func(t *testing.T) {
			torchtest.NoLeak(t)
			whole, folder := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
			if _, err := run(t, whole, context.Background(), train.Observer{}, overrides...); err != nil {
				t.Fatal(err)
			}
			ctx, observer := stopAt(9)
			if _, err := run(t, folder, ctx, observer, overrides...); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
			if _, err := resume(t, folder, train.Observer{}); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"weights.safetensors", "metrics.json", "checkpoints/step-00000024.safetensors"} {
				if !bytes.Equal(read(t, whole, file), read(t, folder, file)) {
					t.Errorf("%s differs from that of the uninterrupted run", file)
				}
			}
		})
	}
}

// values reads a tensor of a file, as one of tensorio's readers gives it.
func values[T any](t *testing.T, path, name string, as func(tensorio.Tensor) ([]T, error)) []T {
	t.Helper()
	file, err := tensorio.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tensor, err := file.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := as(tensor) // perhaps the file itself, mapped
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(all)
}

func numbers(t *testing.T, path, name string) []float64 {
	t.Helper()
	return values(t, path, name, tensorio.Tensor.Float64s)
}

func TestProxiesAreTrained(t *testing.T) {
	dir := t.TempDir()
	still, moving := filepath.Join(dir, "still"), filepath.Join(dir, "moving")
	for folder, rate := range map[string]string{still: "0", moving: "1"} {
		if _, err := run(t, folder, context.Background(), train.Observer{}, "loss=proxynca", "groups.proxy_lr="+rate, "train.steps=6"); err != nil {
			t.Fatal(err)
		}
	}
	const file, name = "checkpoints/step-00000006.safetensors", "loss.proxies"
	a, b := numbers(t, filepath.Join(still, file), name), numbers(t, filepath.Join(moving, file), name)
	if len(a) == 0 || len(a)%16 != 0 || len(a) != len(b) {
		t.Fatalf("%d and %d numbers of proxies", len(a), len(b))
	}
	moved := 0
	for i := range a {
		if a[i] != b[i] {
			moved++
		}
	}
	if moved < len(a)/4 {
		t.Errorf("%d of %d numbers of the proxies moved", moved, len(a))
	}
}

// Three steps of 24 images fill a memory of two batches once and a half.
func TestMemoryHoldsTheNewestImages(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if _, err := run(t, folder, context.Background(), train.Observer{}, "loss={name: roadmap, memory: {batches: 2}}", "train.steps=3"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "checkpoints/step-00000003.safetensors")
	if counters := values(t, file, "loss.memory.counters", tensorio.Tensor.Int64s); counters[0] != 72 || counters[1] != 3 {
		t.Errorf("stored and steps: %v, want 72 and 3", counters)
	}
	rows := numbers(t, file, "loss.memory.embeddings")
	if len(rows) != 48*16 {
		t.Fatalf("%d numbers are kept, want those of 48 embeddings of 16", len(rows))
	}
	for i := range 48 {
		square := 0.
		for _, v := range rows[16*i : 16*(i+1)] {
			square += v * v
		}
		if square < 0.999 || square > 1.001 {
			t.Errorf("row %d of the memory has a squared length of %g", i, square)
		}
	}
}

func TestMovingAverageIsWhatIsKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if _, err := run(t, folder, context.Background(), train.Observer{}, "train.ema=0.8"); err != nil {
		t.Fatal(err)
	}
	const name = "head.projection.weight"
	end := filepath.Join(folder, "checkpoints/step-00000024.safetensors")
	kept, average, last := numbers(t, filepath.Join(folder, "weights.safetensors"), name), numbers(t, end, "average."+name), numbers(t, end, "model."+name)
	differ := false
	for i := range kept {
		if kept[i] != average[i] {
			t.Fatalf("weight %d is %g in the weights, %g on average", i, kept[i], average[i])
		}
		differ = differ || kept[i] != last[i]
	}
	if !differ {
		t.Error("the average is that of no more than the last step")
	}
}

func TestWeightsToStartFrom(t *testing.T) {
	torchtest.NoLeak(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	before, err := run(t, first, context.Background(), train.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "start.safetensors")
	if err := os.WriteFile(file, read(t, first, "weights.safetensors"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, observer := stopAt(2)
	if _, err := run(t, second, ctx, observer, "weights.file="+file, "seed=9"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil { // a run that goes on needs it no more
		t.Fatal(err)
	}
	after, err := resume(t, second, train.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(before.Metrics["after"], after.Metrics["before"]) {
		t.Errorf("the first run ended with %v, the second began with %v", before.Metrics["after"], after.Metrics["before"])
	}
	_, err = train.New(recipe(t, "weights.file="+filepath.Join(first, "weights.safetensors"), "model.width=9"), train.Observer{})
	if !fault.IsInput(err) || !strings.Contains(err.Error(), "blocks.0.conv.weight") {
		t.Errorf("weights of a network of another width: %v", err)
	}
}
