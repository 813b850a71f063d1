package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch/torchtest"
	"roadmap/pkg/train"
)

// small is a run of a second over several epochs, with everything that a
// resumed run must find again: augmentation, schedule, evaluations.
const small = `
seed: 5
data: {name: glyphs, copies: 1, sizes: [0.7]}
transform: {resize: 28, channels: 1, augment: {rotate: 10, shift: 0.05}}
sampler: {name: balanced, classes: 8, samples: 3, batches: 7}
model: {name: convnet, width: 8, dim: 16}
loss: roadmap
optimizer: {name: adamw, lr: 1e-3}
schedule: {name: cosine, warmup_steps: 3}
train: {steps: 24, log_every: 4, checkpoint_every: 6, eval_every: 10, device: cpu, threads: 1}
eval: {metrics: [r@1, map@r], batch: 128}
`

func recipe(t *testing.T, overrides ...string) *train.Recipe {
	t.Helper()
	tree, err := config.Parse("small.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.LoadRecipe(tree, overrides)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run trains in a fresh folder until done or until stop, if given, says so.
func run(t *testing.T, folder string, ctx context.Context, o train.Observer, overrides ...string) (*train.Result, error) {
	t.Helper()
	r, err := train.New(recipe(t, overrides...), o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := train.CreateFolder(folder, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(f); err != nil {
		t.Fatal(err)
	}
	return r.Train(ctx)
}

// resume goes on with the run in a folder.
func resume(t *testing.T, folder string, o train.Observer) (*train.Result, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := config.Parse("config.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := train.LoadRecipe(tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := train.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.Resume(again, f, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Train(context.Background())
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// stopAt cancels a context after a step.
func stopAt(step int) (context.Context, train.Observer) {
	ctx, cancel := context.WithCancel(context.Background())
	return ctx, train.Observer{Step: func(done, _ int, _ float64) {
		if done == step {
			cancel()
		}
	}}
}

func TestSameRecipeSameBytes(t *testing.T) {
	torchtest.NoLeak(t)
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	result, err := run(t, a, context.Background(), train.Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if result.Steps != 24 || len(result.Metrics) != 2 {
		t.Errorf("result %+v", result)
	}
	if u, v := result.Metrics["untrained"]["map@r"], result.Metrics["trained"]["map@r"]; !(u > 0 && v > 0 && u != v) {
		t.Errorf("mAP@R went from %g to %g", u, v)
	}
	if _, err := run(t, b, context.Background(), train.Observer{}, "train.workers=3", "train.cache_mb=0"); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, a, "weights.safetensors"), read(t, b, "weights.safetensors")) {
		t.Error("the number of workers or the cache changed the weights")
	}
	if !bytes.Equal(read(t, a, "metrics.json"), read(t, b, "metrics.json")) {
		t.Error("the number of workers or the cache changed the metrics")
	}
	if _, err := run(t, c, context.Background(), train.Observer{}, "seed=6"); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(read(t, a, "weights.safetensors"), read(t, c, "weights.safetensors")) {
		t.Error("another seed gave the same weights")
	}
}

func TestResumedRunEndsWithTheSameBits(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	if _, err := run(t, whole, context.Background(), train.Observer{}); err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]int{"in the second epoch": 9, "at a checkpoint": 12, "at the end of an epoch": 14, "at an evaluation": 20} {
		t.Run(name, func(t *testing.T) {
			torchtest.NoLeak(t)
			folder := filepath.Join(t.TempDir(), "run")
			ctx, observer := stopAt(stop)
			_, err := run(t, folder, ctx, observer)
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "--resume "+folder) {
				t.Fatalf("interrupted: %v", err)
			}
			if _, err := os.Stat(filepath.Join(folder, "checkpoints", fmt.Sprintf("step-%08d.safetensors", stop))); err != nil {
				t.Error(err)
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

func TestCrashLosesNoLineAndRepeatsNone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	ctx, observer := stopAt(12)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// As after a crash at step 15: lines that the checkpoint knows nothing of, one of them cut short.
	log, err := os.OpenFile(filepath.Join(folder, "log.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.WriteString(`{"kind":"step","step":16,"loss":1}` + "\n" + `{"kind":"step","st`); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := resume(t, folder, train.Observer{}); err != nil {
		t.Fatal(err)
	}
	var steps []int
	for line := range bytes.Lines(read(t, folder, "log.jsonl")) {
		var e train.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if e.Kind == "step" {
			steps = append(steps, e.Step)
			if e.Loss == nil || e.GradNorm == nil || !(*e.Loss > 0) || !(*e.GradNorm > 0) || !(e.LR > 0 && e.LR <= 1e-3) {
				t.Errorf("log line %s", line)
			}
		}
	}
	if want := []int{4, 8, 12, 16, 20, 24}; len(steps) != len(want) || steps[3] != 16 || steps[5] != 24 {
		t.Errorf("logged steps %v, want %v", steps, want)
	}
}

func TestBrokenCheckpointFallsBack(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	ctx, observer := stopAt(13)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	newest := filepath.Join(folder, "checkpoints", "step-00000013.safetensors")
	if err := os.Truncate(newest, 1000); err != nil {
		t.Fatal(err)
	}
	var notes []string
	result, err := resume(t, folder, train.Observer{Note: func(s string) { notes = append(notes, s) }})
	if err != nil || result.Steps != 24 {
		t.Fatalf("%+v, %v", result, err)
	}
	if len(notes) == 0 || !strings.Contains(notes[0], "step-00000013") {
		t.Errorf("notes %q do not name the broken checkpoint", notes)
	}

	// With every checkpoint broken there is nothing to go on from.
	files, err := filepath.Glob(filepath.Join(folder, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Truncate(f, 10); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := resume(t, folder, train.Observer{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "no checkpoint can be used") {
		t.Errorf("all checkpoints broken: %v", err)
	}
}

func TestNotFiniteLossStopsWithStepImagesAndCheckpoint(t *testing.T) {
	torchtest.NoLeak(t)
	folder := filepath.Join(t.TempDir(), "run")
	_, err := run(t, folder, context.Background(), train.Observer{}, "loss={name: smoothap, tau: 1e-45}")
	if err == nil || fault.IsInput(err) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"step ", "images [", "glyphs", "lower optimizer.lr", "stopped-"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	stopped, globErr := filepath.Glob(filepath.Join(folder, "checkpoints", "stopped-*.safetensors"))
	if globErr != nil || len(stopped) != 1 {
		t.Fatalf("checkpoints of the stop: %v", stopped)
	}
	file, err := tensorio.Open(stopped[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !file.Has("model.blocks.0.conv.weight") || !file.Has("optimizer.blocks.0.conv.weight.exp_avg") {
		t.Errorf("the checkpoint holds %v", file.Names())
	}
	for _, name := range file.Names() {
		if strings.Contains(name, "running_") || strings.Contains(name, "num_batches") || strings.HasPrefix(name, "random.") {
			continue // these have seen the batch, or are whole numbers
		}
		tensor, err := file.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values, err := tensor.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("%s holds %g: these are not the weights before the step", name, v)
			}
		}
	}
	if !bytes.Contains(read(t, folder, "log.jsonl"), []byte(`"kind":"stop"`)) {
		t.Error("the log does not tell of the stop")
	}
}

// Weights that an update made infinite are never saved over good ones.
func TestWeightsThatAreNotFiniteAreNoCheckpoint(t *testing.T) {
	torchtest.NoLeak(t)
	folder := filepath.Join(t.TempDir(), "run")
	_, err := run(t, folder, context.Background(), train.Observer{}, "optimizer.lr=1e38", "schedule=constant", "train.checkpoint_every=1")
	if err == nil || fault.IsInput(err) || !strings.Contains(err.Error(), "lower optimizer.lr") {
		t.Fatalf("got %v", err)
	}
	regular, err := filepath.Glob(filepath.Join(folder, "checkpoints", "step-*"))
	if err != nil || len(regular) != 0 {
		t.Errorf("regular checkpoints %v, %v", regular, err)
	}
}

func TestBrokenImageLosesNoStep(t *testing.T) {
	torchtest.NoLeak(t)
	root := t.TempDir()
	for class := range 12 {
		dir := filepath.Join(root, fmt.Sprintf("class%02d", class))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			img := image.NewGray(image.Rect(0, 0, 28, 28))
			for at := range img.Pix {
				img.Pix[at] = byte(at*(class+1) + i*7)
			}
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.png", i)))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(png.Encode(f, img), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	photos := []string{"data={name: folder, root: " + root + "}", "sampler={name: balanced, classes: 2, samples: 2, batches: 3}",
		"train={steps: 12, log_every: 1, checkpoint_every: 0, eval_every: 0, device: cpu, threads: 1, cache_mb: 0}"}
	whole, folder := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
	if _, err := run(t, whole, context.Background(), train.Observer{}, photos...); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(root, "class00", "0.png")
	good := read(t, victim)
	observer := train.Observer{Step: func(done, _ int, _ float64) {
		if done == 4 { // cut short while the run goes on
			if err := os.WriteFile(victim, good[:len(good)/2], 0o644); err != nil {
				t.Error(err)
			}
		}
	}}
	_, err := run(t, folder, context.Background(), observer, photos...)
	if err == nil || !strings.Contains(err.Error(), victim) || !strings.Contains(err.Error(), "--resume "+folder) {
		t.Fatalf("with a truncated image: %v", err)
	}
	if err := os.WriteFile(victim, good, 0o644); err != nil {
		t.Fatal(err)
	}
	var first int
	result, err := resume(t, folder, train.Observer{Step: func(done, _ int, _ float64) {
		if first == 0 {
			first = done
		}
	}})
	if err != nil || result.Steps != 12 || first < 5 {
		t.Fatalf("resumed at step %d: %+v, %v", first, result, err)
	}
	if !bytes.Equal(read(t, whole, "weights.safetensors"), read(t, folder, "weights.safetensors")) {
		t.Error("the mended run ended with other weights")
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other", "thesis.tex"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		force bool
		want  string
	}{
		{filepath.Join(file, "run"), false, "not a directory"},
		{filepath.Join(dir, "other"), false, "--force"},
		{filepath.Join(dir, "other"), true, "not a run's"},
		{"/proc/run", false, "cannot be made"},
	} {
		if _, err := train.CreateFolder(c.path, c.force); !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s (force %v): %v, want %q", c.path, c.force, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "other", "thesis.tex")); err != nil {
		t.Error("a file that is not a run's was removed")
	}
	if _, err := train.OpenFolder(dir); !fault.IsInput(err) {
		t.Errorf("a folder without a run was opened: %v", err)
	}
	f, err := train.CreateFolder(filepath.Join(dir, "run"), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.ConfigPath(), []byte("seed: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := train.OpenFolder(f.Path); !fault.IsInput(err) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a folder in use was opened: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.ConfigPath()); err != nil {
		t.Fatal(err)
	}
	if again, err := train.CreateFolder(f.Path, false); err != nil {
		t.Errorf("a folder in which no run ever began is refused: %v", err)
	} else if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := train.CreateFolder(f.Path, true)
	if err != nil {
		t.Fatalf("replacing a run with force: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDiskFullKeepsTheCheckpointsThatAre(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	full := smallDisk(t, folder, 1<<20)
	ctx, observer := stopAt(6)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	before := read(t, folder, "checkpoints", "step-00000006.safetensors")
	full()
	_, err := resume(t, folder, train.Observer{})
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "make room") {
		t.Fatalf("on a full disk: %v", err)
	}
	if !bytes.Equal(before, read(t, folder, "checkpoints", "step-00000006.safetensors")) {
		t.Error("the checkpoint changed")
	}
	rest, err := filepath.Glob(filepath.Join(folder, "checkpoints", "*"))
	if err != nil || len(rest) != 1 {
		t.Errorf("left in the folder: %v", rest)
	}
}

func TestRecipesThatCannotRun(t *testing.T) {
	for name, c := range map[string]struct {
		overrides []string
		want      string
	}{
		"unknown key":             {[]string{"loss.lamda=0.3"}, "lambda"},
		"unknown loss":            {[]string{"loss=roadmp"}, "roadmap"},
		"wrong type":              {[]string{"optimizer.lr=fast"}, "optimizer.lr"},
		"no steps":                {[]string{"train.steps=0"}, "steps"},
		"too many threads":        {[]string{"train.threads=100000"}, "threads"},
		"precision":               {[]string{"train.precision=float8"}, "give auto, float32"},
		"moving average":          {[]string{"train.ema=1"}, "ema"},
		"weights":                 {[]string{"weights.file=/nowhere.pth"}, "/nowhere.pth"},
		"metric for a loss":       {[]string{"loss=ap"}, "without gradient"},
		"memory of proxies":       {[]string{"loss={name: proxynca, memory: {batches: 2}}"}, "memory"},
		"no dataset":              {[]string{"data={name: \"\"}"}, "data"},
		"batch beyond the data":   {[]string{"sampler.classes=2000"}, "classes"},
		"channels":                {[]string{"transform.channels=3"}, "channels"},
		"unknown metric":          {[]string{"eval.metrics=[r@0]"}, "r@0"},
		"missing folder":          {[]string{"data={name: folder, root: /nowhere}"}, "/nowhere"},
		"metric beyond the data":  {[]string{"eval.metrics=[r@100000]"}, "r@100000"},
		"device without hardware": {[]string{"train.device=cuda:63"}, "cuda:63"},
	} {
		t.Run(name, func(t *testing.T) {
			torchtest.NoLeak(t)
			tree, err := config.Parse("small.yaml", []byte(small))
			if err != nil {
				t.Fatal(err)
			}
			r, err := train.LoadRecipe(tree, c.overrides)
			if err == nil {
				_, err = train.New(r, train.Observer{})
			}
			if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: got %v, want one line with %q", c.overrides, err, c.want)
			}
		})
	}
}

func TestConfigIsWrittenResolved(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	ctx, observer := stopAt(1)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	text := string(read(t, folder, "config.yaml"))
	for _, key := range []string{"device: cpu", "threads: 1", "rho: 100", "beta1: 0.9", "jitter:", "head_lr: 1", "lone:"} {
		if !strings.Contains(text, key) {
			t.Errorf("config.yaml lacks the default %q:\n%s", key, text)
		}
	}
	if recipe, _, err := train.OpenTrained(folder); !fault.IsInput(err) || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("an unfinished run gave weights: %v, %v", recipe, err)
	}
}
