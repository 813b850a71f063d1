package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/train"
)

func TestPretrainedWeightsAreAskedFor(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if _, err := run(t, folder, context.Background(), train.Observer{}, "train.steps=1"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "weights.safetensors")
	for _, c := range []struct {
		overrides []string
		want      string // of the error; "" for none
	}{
		{[]string{"weights=pretrained"}, "weights.file names none"},
		{[]string{"weights=pretrained", "weights.file=" + file}, ""},
		{[]string{"weights.file=" + file}, ""},
		{[]string{"weights=random"}, ""},
	} {
		r, err := train.New(recipe(t, c.overrides...), train.Observer{})
		if c.want == "" && err != nil || c.want != "" && (!fault.IsInput(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "weights=random")) {
			t.Errorf("%v: %v", c.overrides, err)
		}
		if err == nil {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A run says what it took over from the recipe, and its log too.
func TestAnotherComponentIsTold(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	var notes []string
	o := train.Observer{Note: func(text string) { notes = append(notes, text) }}
	if _, err := run(t, folder, context.Background(), o, "optimizer=sgd", "train.steps=1"); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "optimizer=sgd") || !strings.Contains(notes[0], "kept lr=1e-3") {
		t.Errorf("notes %q", notes)
	}
	if !bytes.Contains(read(t, folder, "log.jsonl"), []byte("kept lr=1e-3")) || !bytes.Contains(read(t, folder, "config.yaml"), []byte("name: sgd\n  lr: 0.001")) {
		t.Errorf("the folder does not tell of it:\n%s\n%s", read(t, folder, "log.jsonl"), read(t, folder, "config.yaml"))
	}
}

// The number of threads, on which the bits depend, is the run's own.
func TestThreadsAreKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	var threads []int
	ctx, observer := stopAt(3)
	observer.Begin = func(s train.Summary) { threads = append(threads, s.Threads) }
	if _, err := run(t, folder, ctx, observer, "train.threads=0"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(threads) != 1 || threads[0] < 1 || !bytes.Contains(read(t, folder, "config.yaml"), fmt.Appendf(nil, "threads: %d\n", threads[0])) {
		t.Fatalf("threads %v are not recorded:\n%s", threads, read(t, folder, "config.yaml"))
	}
	t.Setenv("OMP_NUM_THREADS", fmt.Sprint(threads[0]+1))
	if _, err := resume(t, folder, train.Observer{Begin: observer.Begin}); err != nil {
		t.Fatal(err)
	}
	if len(threads) != 2 || threads[1] != threads[0] {
		t.Errorf("the run began with %d threads and went on with %v", threads[0], threads[1:])
	}
}

func TestRunTellsWhatItIsAndHowItGoes(t *testing.T) {
	var summaries []train.Summary
	var evaluations []train.Evaluated
	o := train.Observer{
		Begin:     func(s train.Summary) { summaries = append(summaries, s) },
		Evaluated: func(e train.Evaluated) { evaluations = append(evaluations, e) },
	}
	if _, err := run(t, filepath.Join(t.TempDir(), "run"), context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if len(summaries) != 1 {
		t.Fatalf("%d summaries", len(summaries))
	}
	s := summaries[0]
	// convnet of width 8, four blocks: 8·9+8, three times 8·8·9+8, four norms of 2·8; projection 8·16+16
	const parameters = 80 + 3*584 + 4*16 + 144
	if s.Parameters != parameters || s.Dim != 16 || s.Batch != 24 || s.Epoch != 7 || s.Steps != 24 || s.Threads != 1 || s.Train.Images == 0 || s.Test.Classes == 0 || s.Weights != "" {
		t.Errorf("%+v", s)
	}
	var steps, left []int
	for i, e := range evaluations {
		steps, left = append(steps, e.Step), append(left, e.Left)
		if i > 0 && e.Before["r@1"] != evaluations[i-1].Metrics["r@1"] || i == 0 && e.Before != nil {
			t.Errorf("evaluation %d does not know the one before it: %+v", i, e)
		}
	}
	if !slices.Equal(steps, []int{0, 10, 20, 24}) || !slices.Equal(left, []int{3, 2, 1, 0}) {
		t.Errorf("evaluations after %v, still to come %v", steps, left)
	}
}

// The recipe of a run names its files in full, so that it goes on from any
// working directory.
func TestRunGoesOnElsewhere(t *testing.T) {
	dir := t.TempDir()
	for _, split := range []string{"train", "test"} {
		for class := range 8 {
			for i := range 3 {
				path := filepath.Join(dir, "photos", split, fmt.Sprintf("%s%d", split, class), fmt.Sprintf("%d.png", i))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, pngOf(t, uint8(class*30+i)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Chdir(dir)
	ctx, observer := stopAt(2)
	if _, err := run(t, "run", ctx, observer, "data={name: folder, root: photos}"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "run")
	t.Chdir(t.TempDir())
	if _, err := resume(t, folder, train.Observer{}, "train.steps=3"); err != nil {
		t.Error(err)
	}
}

func TestKeysOfOtherPrograms(t *testing.T) {
	for key, place := range map[string]string{
		"lr": "optimizer.lr", "epochs": "train.steps", "batch_size": "sampler.classes and sampler.samples", "workers": "train.workers",
		"train.lr": "optimizer.lr", "train.epochs": "train.steps", "num_workers": "train.workers",
	} {
		_, err := load(key + "=1")
		if want := fmt.Sprintf("unknown key %s; here it is %s", key, place); !fault.IsInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", key, err, want)
		}
	}
	if _, err := load("train.stesp=1"); err == nil || !strings.Contains(err.Error(), "did you mean train.steps?") {
		t.Errorf("a misspelt key: %v", err)
	}
	r, err := load("eval.metrics=r@1, r@5", "data={name: folder, root: ~/photos}")
	if err != nil || !slices.Equal(r.Eval.Metrics, []string{"r@1", "r@5"}) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestRunWithoutNegativesIsTold(t *testing.T) {
	dir := t.TempDir()
	for _, split := range []string{"train/a", "train/b", "test/c"} {
		for i := range 3 {
			path := filepath.Join(dir, split, fmt.Sprintf("%d.png", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, pngOf(t, uint8(50*i)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	var notes []string
	r, err := train.New(recipe(t, "data={name: folder, root: "+dir+"}", "sampler.classes=2"), train.Observer{Note: func(text string) { notes = append(notes, text) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, "test: all images are of one class") }) {
		t.Errorf("notes %q", notes)
	}
}

func load(overrides ...string) (*train.Recipe, error) {
	tree, err := config.Parse("small.yaml", []byte(small))
	if err != nil {
		return nil, err
	}
	return train.LoadRecipe(tree, overrides)
}

// pngOf is an image of one grey.
func pngOf(t *testing.T, grey uint8) []byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for i := range img.Pix {
		img.Pix[i] = grey + uint8(i%7)
	}
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
