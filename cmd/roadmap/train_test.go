package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"roadmap/configs"
	"roadmap/pkg/torch"
)

// tiny are overrides that make a run of seconds of the demonstration.
var tiny = []string{"data={name: glyphs, copies: 1, sizes: [0.7]}", "sampler={name: balanced, classes: 8, samples: 3}", "model.width=8",
	"train={steps: 60, log_every: 5, checkpoint_every: 10, device: cpu, threads: 1}"}

func trainArgs(folder string, more ...string) []string {
	return append(append([]string{"train", "glyphs_demo", "--out", folder}, tiny...), more...)
}

func sameFile(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}

func embedRun(t *testing.T, folder string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "embeddings.npy")
	if _, stderr, code := roadmap(t, "embed", "--run", folder, "--out", out, "--device", "cpu"); code != 0 {
		t.Fatalf("embed: code %d\n%s", code, stderr)
	}
	return out
}

// waitFor polls until a file is there.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for range 1200 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s did not come", path)
}

func TestTrainKilledAndResumedEndsWithTheSameEmbeddings(t *testing.T) {
	dir := t.TempDir()
	whole, killed := filepath.Join(dir, "whole"), filepath.Join(dir, "killed")
	stdout, stderr, code := roadmap(t, append(trainArgs(whole), "--json")...)
	if code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	result := object(t, stdout)
	metrics := result["metrics"].(map[string]any)
	before, after := metrics["before"].(map[string]any)["map@r"].(float64), metrics["after"].(map[string]any)["map@r"].(float64)
	if result["steps"] != 60.0 || !(after > before) {
		t.Errorf("60 steps brought mAP@R from %g to %g: %s", before, after, stdout)
	}

	first := program(t, trainArgs(killed)...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(killed, "checkpoints", "step-00000020.safetensors"))
	if err := first.Process.Kill(); err != nil { // SIGKILL, in the middle of an epoch
		t.Fatal(err)
	}
	if err := first.Wait(); err == nil {
		t.Fatal("the run ended before it was killed")
	}
	if _, stderr, code := roadmap(t, "train", "--resume", killed); code != 0 || !strings.Contains(stderr, "continuing") {
		t.Fatalf("resume: code %d\n%s", code, stderr)
	}
	sameFile(t, embedRun(t, whole), embedRun(t, killed))
	sameFile(t, filepath.Join(whole, "weights.safetensors"), filepath.Join(killed, "weights.safetensors"))
	sameFile(t, filepath.Join(whole, "metrics.json"), filepath.Join(killed, "metrics.json"))
}

// Ctrl-C in the middle, twice, and the bits are those of a run left alone.
func TestTrainInterrupted(t *testing.T) {
	dir := t.TempDir()
	whole, folder := filepath.Join(dir, "whole"), filepath.Join(dir, "run")
	const long = "train.steps=200" // enough for both signals to come before the end
	if _, stderr, code := roadmap(t, trainArgs(whole, long)...); code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	args := trainArgs(folder, long)
	for _, checkpoint := range []string{"step-00000010", "step-00000040"} {
		p := program(t, args...)
		var stderr bytes.Buffer
		p.Stderr = &stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, filepath.Join(folder, "checkpoints", checkpoint+".safetensors"))
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		err := p.Wait()
		if code := p.ProcessState.ExitCode(); code != codeInterrupted {
			t.Fatalf("code %d, %v\n%s", code, err, &stderr)
		}
		if !strings.Contains(stderr.String(), "checkpoint saved") || !strings.Contains(stderr.String(), "--resume "+folder) {
			t.Errorf("the message does not say how to go on:\n%s", &stderr)
		}
		args = []string{"train", "--resume", folder}
	}
	if _, stderr, code := roadmap(t, "train", "--resume", folder, "train.steps=5"); code != codeInput || !strings.Contains(stderr, "train.steps=5") {
		t.Errorf("resuming behind the end: code %d, %s", code, stderr)
	}
	if _, stderr, code := roadmap(t, "train", "--resume", folder); code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	for _, file := range []string{"weights.safetensors", "metrics.json", "config.yaml"} {
		sameFile(t, filepath.Join(whole, file), filepath.Join(folder, file))
	}
}

// Photographs that cannot be trained on, and a loss that is not finite: one
// line each, and what was done is kept.
func TestTrainOnBadPhotographs(t *testing.T) {
	small := []string{"train", "roadmap_resnet50", "weights=random", "model={name: convnet, blocks: 2, width: 8, channels: 3, size: 32, dim: 8}", "transform={resize: 32, crop: 0}",
		"sampler={classes: 4, samples: 2}", "train={steps: 6, log_every: 1, checkpoint_every: 2, eval_every: 0, device: cpu}", "eval.metrics=[r@1]"}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, root string)
		more  []string
		code  int
		want  []string
	}{
		"cut short": {func(t *testing.T, root string) {
			for _, photo := range photosOf(t, root, "train") {
				if err := os.Truncate(photo, 900); err != nil {
					t.Fatal(err)
				}
			}
		}, nil, codeInput, []string{".jpg", "--resume"}},
		"a class of one": {func(t *testing.T, root string) {
			for _, photo := range photosOf(t, root, "train")[:3] { // of the four of the first class
				if err := os.Remove(photo); err != nil {
					t.Fatal(err)
				}
			}
		}, nil, codeInput, []string{"sampler", "lone"}},
		"no photograph at all": {func(t *testing.T, root string) {
			for _, photo := range append(photosOf(t, root, "train"), photosOf(t, root, "test")...) {
				if err := os.Remove(photo); err != nil {
					t.Fatal(err)
				}
			}
		}, nil, codeInput, []string{"no image under"}},
		"fewer than a batch": {nil, []string{"sampler.classes=7"}, codeInput, []string{"classes"}},
		"no number":          {nil, []string{"optimizer={name: sgd, lr: 1e30}"}, codeFailed, []string{"step ", "images [", "lower optimizer.lr", "--resume"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, folder := groceries(t), filepath.Join(t.TempDir(), "run")
			if c.spoil != nil {
				c.spoil(t, root)
			}
			stdout, stderr, code := roadmap(t, slices.Concat(small, []string{"data.root=" + root, "--out", folder, "-q"}, c.more)...)
			lines := strings.Count(stderr, "\n") - strings.Count(stderr, "takes another's place in the recipe") // the notes on what was kept
			if code != c.code || stdout != "" || lines != 1 {
				t.Errorf("code %d, want %d and one line of standard error; output %q\n%s", code, c.code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q lacks %q", stderr, want)
				}
			}
		})
	}
}

// photosOf lists the photographs of a split, class by class.
func photosOf(t *testing.T, root, split string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, split, "*", "*.jpg"))
	if err != nil || len(files) != 24 {
		t.Fatalf("%d photographs, %v", len(files), err)
	}
	return files
}

func TestTrainErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	blank := filepath.Join(dir, "blank.yaml")
	if err := os.WriteFile(blank, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	gpus, _ := torch.CUDADevices()
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no recipe":        {[]string{"train"}, []string{"glyphs_demo"}},
		"unknown recipe":   {[]string{"train", "glyph_demo"}, []string{"glyphs_demo"}},
		"missing file":     {[]string{"train", "no/such.yaml"}, []string{"no/such.yaml"}},
		"unknown key":      {[]string{"train", "glyphs_demo", "loss.lamda=0.3"}, []string{"loss.lamda", "lambda"}},
		"wrong type":       {[]string{"train", "glyphs_demo", "train.steps=many"}, []string{"train.steps"}},
		"two recipes":      {[]string{"train", "glyphs_demo", "omniglot_convnet"}, []string{"two recipes"}},
		"missing folder":   {[]string{"train", "glyphs_demo", "data={name: folder, root: " + dir + "/none}"}, []string{dir + "/none"}},
		"empty dataset":    {[]string{"train", "glyphs_demo", "data={name: folder, root: " + empty + "}"}, []string{empty}},
		"empty recipe":     {[]string{"train", blank}, []string{blank, "names no dataset"}},
		"no size":          {trainArgs(filepath.Join(dir, "r"), "transform.resize=0"), []string{": transform: images of a batch", "give resize"}},
		"too small":        {trainArgs(filepath.Join(dir, "r"), "transform.resize=12"), []string{"4 blocks need images of at least 16 pixels"}},
		"no classes":       {trainArgs(filepath.Join(dir, "r"), "sampler.classes=0"), []string{": sampler: classes is 0"}},
		"no weights":       {trainArgs(filepath.Join(dir, "r"), "weights.file=none.pth"), []string{"weights.file=none.pth", "give one"}},
		"unwritable run":   {trainArgs(filepath.Join(file, "run")), []string{"--out"}},
		"batch too large":  {trainArgs(filepath.Join(dir, "r"), "sampler.classes=3000"), []string{"classes"}},
		"resume nothing":   {[]string{"train", "--resume", empty}, []string{empty}},
		"accept of a new":  {[]string{"train", "glyphs_demo", "--accept-changes"}, []string{"--resume"}},
		"embed nothing":    {[]string{"embed", "--out", filepath.Join(dir, "e.npy")}, []string{"--run"}},
		"embed to a .txt":  {[]string{"embed", "--run", dir, "--out", filepath.Join(dir, "e.txt")}, []string{".npy"}},
		"embed no run":     {[]string{"embed", "--run", empty, "--out", filepath.Join(dir, "e.npy")}, []string{empty}},
		"embed odd option": {[]string{"embed", "--model", "convnet", "--data", "glyphs", "--set", "dim=3", "--out", filepath.Join(dir, "e.npy")}, []string{"model.key=value"}},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := roadmap(t, c.args...)
			if code != codeInput || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("code %d, standard output %q, standard error %q; want code 2 and one line", code, stdout, stderr)
			}
			for _, want := range c.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q lacks %q", stderr, want)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "r")); err == nil {
		t.Error("a run folder was made for a run that cannot begin")
	}
	t.Run("no GPU", func(t *testing.T) {
		if len(gpus) > 0 {
			t.Skip("this machine has a GPU")
		}
		_, stderr, code := roadmap(t, append(trainArgs(filepath.Join(dir, "gpu")), "--device", "cuda")...)
		if code != codeInput || !strings.Contains(stderr, "--device cpu") {
			t.Errorf("code %d: %s", code, stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "gpu")); err == nil {
			t.Error("a run folder was made for a run that cannot begin")
		}
	})
}

// Settings that no machine can hold are refused before anything is allocated,
// with the bytes that they would take.
func TestSettingsOutOfReach(t *testing.T) {
	for setting, want := range map[string]string{
		"transform.resize=1000000":                "resize is 1000000: an image would take",
		"transform={resize: 0, crop: 9999999999}": "crop is 9999999999: an image would take",
		"data.copies=1000000000":                  "would take",
		"model.width=1000000000":                  "of shape [1000000000 1 3 3] would take 67.1GiB",
		"model.dim=1000000000":                    "of shape [1000000000 8] would take 59.6GiB",
		"train.cache=4000000TiB":                  "cache is 4000000TiB",
		"train.cache=9223372036854775807B":        "want an amount of memory",
		"loss.memory.batches=1000000000000":       "embeddings of 64 dimensions would take",
		"loss.memory.size=9000000000000000000":    "would take",
		"loss.budget=99999999999GiB":              "want an amount of memory",
		"sampler.classes=4611686018427387905":     "classes",
		"train.workers=9223372036854775807":       "workers is",
		"sampler.batches=9223372036854775807":     "",
	} {
		t.Run(setting, func(t *testing.T) {
			_, stderr, code := roadmap(t, trainArgs(filepath.Join(t.TempDir(), "run"), setting)...)
			if code != codeInput || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("code %d, %q; want code 2 and %q", code, stderr, want)
			}
		})
	}
}

func TestTrainPrintsConfigThatTrainReads(t *testing.T) {
	stdout, stderr, code := roadmap(t, "train", "glyphs_demo", "loss.lambda=0.25", "--print-config")
	if code != 0 || !strings.Contains(stdout, "lambda: 0.25") || !strings.Contains(stdout, "rho: 100") {
		t.Fatalf("code %d\n%s\n%s", code, stdout, stderr)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(path, []byte(stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	again, stderr, code := roadmap(t, "train", path, "--print-config")
	if code != 0 || again != stdout {
		t.Errorf("code %d: the printed recipe reads back as another one\n%s\n%s", code, again, stderr)
	}
	one, _, _ := roadmap(t, "train", "glyphs_demo", "--print-config", "--json")
	if object(t, one)["seed"] != 1.0 {
		t.Errorf("--json: %s", one)
	}
}

// Every recipe of the program has keys and components that exist, and values
// that they accept.
func TestTrainKnowsItsRecipes(t *testing.T) {
	for _, name := range configs.Names() {
		if stdout, stderr, code := roadmap(t, "train", name, "--print-config"); code != 0 || configs.Summary(name) == "" {
			t.Errorf("%s: code %d\n%s%s", name, code, stdout, stderr)
		}
	}
	if stdout, _, code := roadmap(t, "train", "--list"); code != 0 || !strings.Contains(stdout, "omniglot_convnet") {
		t.Errorf("--list: code %d, %s", code, stdout)
	}
}

func TestEmbedWritesRowsAndList(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "e.npy")
	args := []string{"embed", "--model", "convnet", "--set", "model.dim=8", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]",
		"--transform", "resize=28,channels=1", "--device", "cpu", "--json"}
	stdout, stderr, code := roadmap(t, append(args, "--out", out)...)
	if code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	result := object(t, stdout)
	list, err := os.ReadFile(filepath.Join(dir, "e.csv"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(list), "\r\n"), "\r\n")
	if lines[0] != "row,path,label,class,category" || float64(len(lines)-1) != result["images"] || result["dim"] != 8.0 {
		t.Errorf("list begins %q and has %d lines; result %s", lines[0], len(lines), stdout)
	}
	if _, stderr, code := roadmap(t, append(args, "--out", out)...); code != codeInput || !strings.Contains(stderr, "--force") {
		t.Errorf("writing over a file: code %d, %s", code, stderr)
	}
	if _, stderr, code := roadmap(t, append(args, "--out", out, "--force")...); code != 0 {
		t.Errorf("--force: code %d, %s", code, stderr)
	}
	tensors := filepath.Join(dir, "t.safetensors")
	if _, stderr, code := roadmap(t, append(args, "--out", tensors, "--batch", "7")...); code != 0 {
		t.Errorf("safetensors: code %d, %s", code, stderr)
	}
}

func TestDoctor(t *testing.T) {
	stdout, stderr, code := roadmap(t, "doctor", "--json")
	if code != 0 {
		t.Fatalf("code %d\n%s", code, stderr)
	}
	var h health
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		t.Fatal(err)
	}
	if !h.Healthy || h.Memory == 0 || h.Threads < 1 || len(h.Findings) < 5 {
		t.Errorf("%+v", h)
	}
	if text, _, _ := roadmap(t, "doctor"); !strings.Contains(text, "cpu arithmetic") {
		t.Errorf("doctor printed %q", text)
	}
}
