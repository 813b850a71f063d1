package train_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
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
func resume(t *testing.T, folder string, o train.Observer, overrides ...string) (*train.Result, error) {
	t.Helper()
	return resumeAs(t, folder, false, o, overrides...)
}

func resumeAs(t *testing.T, folder string, accept bool, o train.Observer, overrides ...string) (*train.Result, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := config.Parse("config.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := train.LoadRecipe(tree, overrides)
	if err != nil {
		t.Fatal(err)
	}
	f, err := train.OpenFolder(folder)
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.Resume(again, f, accept, o)
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
	if u, v := result.Metrics["before"]["map@r"], result.Metrics["after"]["map@r"]; !(u > 0 && v > 0 && u != v) {
		t.Errorf("mAP@R went from %g to %g", u, v)
	}
	if _, err := run(t, b, context.Background(), train.Observer{}, "train.workers=3", "train.cache=0"); err != nil {
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
	if _, err := resume(t, folder, train.Observer{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "no checkpoint can be used") || !strings.Contains(err.Error(), "empty that folder") {
		t.Errorf("all checkpoints broken: %v", err)
	}
}

// Weights that an update made infinite are never saved over good ones.
func TestWeightsThatAreNotFiniteAreNoCheckpoint(t *testing.T) {
	torchtest.NoLeak(t)
	folder := filepath.Join(t.TempDir(), "run")
	_, err := run(t, folder, context.Background(), train.Observer{}, "optimizer.lr=1e38", "schedule=constant", "schedule.warmup_steps=0", "train.checkpoint_every=1")
	if err == nil || fault.IsInput(err) || !strings.Contains(err.Error(), "lower optimizer.lr") {
		t.Fatalf("got %v", err)
	}
	regular, err := filepath.Glob(filepath.Join(folder, "checkpoints", "step-*"))
	if err != nil || len(regular) != 0 {
		t.Errorf("regular checkpoints %v, %v", regular, err)
	}
}

// photos makes a folder of twelve classes of four images, the last six to test
// on, and returns it with overrides for a run of twelve steps.
func photos(t *testing.T) (root string, overrides []string) {
	t.Helper()
	root = t.TempDir()
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
	return root, []string{"data={name: folder, root: " + root + "}", "sampler={name: balanced, classes: 2, samples: 2, batches: 3}",
		"train={steps: 12, log_every: 1, checkpoint_every: 0, eval_every: 5, device: cpu, threads: 1, cache: 0}"}
}

// An image that breaks while the run goes on, whether it is trained on or
// evaluated, stops it; once it is whole again the run ends as if nothing had been.
func TestBrokenImageLosesNoStep(t *testing.T) {
	for name, c := range map[string]struct {
		victim string
		least  int // step of the checkpoint
		says   string
	}{
		"to train on":    {"class00", 4, "step "},
		"to evaluate by": {"class11", 5, "evaluation after step 5"},
	} {
		t.Run(name, func(t *testing.T) {
			torchtest.NoLeak(t)
			root, overrides := photos(t)
			whole, folder := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
			if _, err := run(t, whole, context.Background(), train.Observer{}, overrides...); err != nil {
				t.Fatal(err)
			}
			victim := filepath.Join(root, c.victim, "0.png")
			good := read(t, victim)
			observer := train.Observer{Step: func(done, _ int, _ float64) {
				if done == 4 { // cut short while the run goes on
					if err := os.WriteFile(victim, good[:len(good)/2], 0o644); err != nil {
						t.Error(err)
					}
				}
			}}
			_, err := run(t, folder, context.Background(), observer, overrides...)
			faulttest.Refused(t, err, victim, c.says, "--resume "+folder, "data.on_error=skip")
			logged(t, folder, `"kind":"stop"`)
			if err := os.WriteFile(victim, good, 0o644); err != nil {
				t.Fatal(err)
			}
			var first int
			result, err := resume(t, folder, train.Observer{Step: func(done, _ int, _ float64) {
				if first == 0 {
					first = done
				}
			}})
			if err != nil || result.Steps != 12 || first <= c.least {
				t.Fatalf("resumed at step %d: %+v, %v", first, result, err)
			}
			sameEnd(t, whole, folder)
		})
	}
}

// sameEnd compares what two runs left, the evaluations in their logs included.
func sameEnd(t *testing.T, whole, folder string) {
	t.Helper()
	for _, file := range []string{"weights.safetensors", "metrics.json"} {
		if !bytes.Equal(read(t, whole, file), read(t, folder, file)) {
			t.Errorf("%s differs from that of the uninterrupted run", file)
		}
	}
	if want, got := evaluations(t, whole), evaluations(t, folder); want != got {
		t.Errorf("the log has the evaluations\n%sthat of the uninterrupted run\n%s", got, want)
	}
}

// evaluations are the lines of a log that tell of one.
func evaluations(t *testing.T, folder string) string {
	t.Helper()
	var all []byte
	for line := range bytes.Lines(read(t, folder, "log.jsonl")) {
		if bytes.Contains(line, []byte(`"kind":"eval"`)) {
			all = append(all, line...)
		}
	}
	return string(all)
}

// logged wants a log to say something.
func logged(t *testing.T, folder, want string) {
	t.Helper()
	if log := read(t, folder, "log.jsonl"); !bytes.Contains(log, []byte(want)) {
		t.Errorf("the log does not say %s:\n%s", want, log)
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

// A disk that is full before the checkpoint of step 12, or before the
// evaluation after step 10, costs the steps since step 6 and nothing else.
func TestDiskFullKeepsTheCheckpointsThatAre(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := run(t, whole, context.Background(), train.Observer{}); err != nil {
		t.Fatal(err)
	}
	for name, at := range map[string]int{"checkpoint": 11, "evaluation": 9} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "run")
			fill := smallDisk(t, folder, 1<<20)
			ctx, observer := stopAt(6)
			if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			before := read(t, folder, "checkpoints", "step-00000006.safetensors")
			_, err := resume(t, folder, train.Observer{Step: func(done, _ int, _ float64) {
				if done == at {
					fill()
				}
			}})
			says(t, err, "no space left", "make room", "--resume "+folder+" goes on from the checkpoint of step 6")
			if !bytes.Equal(before, read(t, folder, "checkpoints", "step-00000006.safetensors")) {
				t.Error("the checkpoint changed")
			}
			rest, err := filepath.Glob(filepath.Join(folder, "checkpoints", "*"))
			if err != nil || len(rest) != 1 {
				t.Errorf("left in the folder: %v", rest)
			}
			if err := os.Remove(filepath.Join(folder, "ballast")); err != nil {
				t.Fatal(err)
			}
			if _, err := resume(t, folder, train.Observer{}); err != nil {
				t.Fatal(err)
			}
			sameEnd(t, whole, folder)
		})
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
		"unknown metric":          {[]string{"eval.metrics=[r@0]"}, `eval.metrics: "r@0"`},
		"no metric":               {[]string{"eval.metrics=[]"}, "eval: metrics is empty"},
		"small images":            {[]string{"transform.resize=12"}, "4 blocks need images of at least 16 pixels"},
		"parts of patches":        {[]string{"model={name: vit_small_patch16_224}", "transform.channels=3"}, "multiple of 16, such as 32"},
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

func TestLoneClassIsNamed(t *testing.T) {
	root, overrides := photos(t)
	for _, name := range []string{"1.png", "2.png", "3.png"} {
		if err := os.Remove(filepath.Join(root, "class03", name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := train.New(recipe(t, overrides...), train.Observer{})
	faulttest.Refused(t, err, "1 of 6 classes", "the first is class03)")
}

func TestSizeBesideTheTransformIsTold(t *testing.T) {
	var notes []string
	r, err := train.New(recipe(t, "model.size=56"), train.Observer{Note: func(s string) { notes = append(notes, s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(notes) != 1 || !strings.Contains(notes[0], "model.size is 56") {
		t.Errorf("notes %q", notes)
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
