package main

import (
	"image"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/tensorio"
)

// files makes embeddings with labels and a list, and returns their folder.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := tensorio.Save(filepath.Join(dir, "e.npy"), false, func(w io.Writer) error {
		return tensorio.WriteNPY(w, tensorio.Of([]float32{1, 0, 0, 1, 1, 1, 1, 2}, 4, 2))
	})
	if err != nil {
		t.Fatal(err)
	}
	textFile(t, dir, "labels.csv", "row,path,label\n0,a,x\n1,b,x\n2,c,y\n3,d,y\n")
	textFile(t, dir, "same.txt", "x\nx\nx\nx\n")
	return dir
}

// writePNG makes an image.
func writePNG(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := png.Encode(file, image.NewGray(image.Rect(0, 0, 32, 32))); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every verb that writes a file refuses one that it reads, under whatever name,
// and leaves it as it is.
func TestNoVerbWritesWhatItReads(t *testing.T) {
	dir := files(t)
	embeddings, labels := filepath.Join(dir, "e.npy"), filepath.Join(dir, "labels.csv")
	again := filepath.Join(dir, "again.npy")
	if err := os.Symlink(embeddings, again); err != nil {
		t.Fatal(err)
	}
	weights := weightsFile(t)
	if err := os.Symlink(weights, strings.TrimSuffix(weights, ".pth")+".csv"); err != nil { // where embed would write its list
		t.Fatal(err)
	}
	image := writePNG(t, dir, "photo.png")
	list := textFile(t, dir, "list.csv", "path,label\n"+image+",a\n")
	recipe := textFile(t, filepath.Dir(labels), "config.yaml", "base: glyphs_demo\n")
	for _, c := range []struct {
		read string
		args []string
	}{
		{list, []string{"embed", "--model", "convnet", "--data", list, "--transform", "resize=28,channels=1", "--out", filepath.Join(dir, "list.npy")}},
		{list, []string{"embed", "--model", "convnet", "--data", list, "--transform", "resize=28,channels=1", "--out", filepath.Join(dir, "x", "..", "list.npy")}},
		{weights, []string{"embed", "--model", "convnet", "--weights", weights, "--data", list, "--out", strings.TrimSuffix(weights, ".pth") + ".npy"}},
		{embeddings, []string{"search", "--queries", embeddings, "-k", "1", "--out", embeddings}},
		{embeddings, []string{"search", "--queries", again, "-k", "1", "--out", embeddings}},
		{embeddings, []string{"search", "--queries", embeddings, "-k", "1", "--out", again}},
		{labels, []string{"search", "--queries", embeddings, "-k", "1", "--query-paths", labels, "--out", labels}},
		{labels, []string{"eval", "--embeddings", embeddings, "--labels", labels, "--metrics", "r@1", "--per-query", labels}},
		{labels, []string{"eval", "--embeddings", embeddings, "--labels", labels, "--level", "kind=" + labels, "--metrics", "r@1", "--per-query", labels}},
		{embeddings, []string{"loss", "supap", "--embeddings", embeddings, "--labels", labels, "--grad", embeddings}},
		{weights, []string{"weights", "convert", weights, weights}},
		{recipe, []string{"train", recipe, "--out", dir}},
	} {
		before, err := os.ReadFile(c.read)
		if err != nil {
			t.Fatal(err)
		}
		_, stderr, code := roadmap(t, append(c.args, "--force")...)
		after, err := os.ReadFile(c.read)
		if code != codeInput || !strings.Contains(stderr, "would be written, but") || !strings.Contains(stderr, "also read") {
			t.Errorf("%q: code %d, %s", c.args, code, stderr)
		}
		if err != nil || string(before) != string(after) {
			t.Errorf("%q: %s changed: %v", c.args, c.read, err)
		}
	}
	// Beside them it may write.
	if _, stderr, code := roadmap(t, "search", "--queries", embeddings, "-k", "1", "--out", filepath.Join(dir, "found.npy")); code != codeDone {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestConvertNeedsTheProjection(t *testing.T) {
	whole, dir := weightsFile(t), t.TempDir()
	shape := []string{"--model", "convnet", "--set", "model.blocks=1", "--set", "model.width=2", "--set", "model.size=2"}
	trunk, out := filepath.Join(dir, "trunk.pth"), filepath.Join(dir, "out.pth")
	if _, stderr, code := roadmap(t, append([]string{"weights", "convert", whole, trunk, "--drop", "module.head.projection.weight", "--drop", "module.head.projection.bias", "--drop", "module.extra"}, "--strip", "module.")...); code != codeDone {
		t.Fatalf("code %d, %s", code, stderr)
	}
	_, stderr, code := roadmap(t, append([]string{"weights", "convert", trunk, out, "--set", "model.dim=3"}, shape...)...)
	if _, err := os.Stat(out); code != codeInput || !strings.Contains(stderr, "no head.projection.weight") || !strings.Contains(stderr, "model.dim=0") || err == nil {
		t.Errorf("code %d, %s", code, stderr)
	}
	if _, stderr, code := roadmap(t, append([]string{"weights", "convert", trunk, out, "--set", "model.dim=0"}, shape...)...); code != codeDone {
		t.Errorf("without a projection: code %d, %s", code, stderr)
	}
}

func TestEvalWithoutNegativesIsTold(t *testing.T) {
	dir := files(t)
	args := []string{"eval", "--embeddings", filepath.Join(dir, "e.npy"), "--metrics", "r@1", "--labels"}
	if _, stderr, code := roadmap(t, append(args, filepath.Join(dir, "same.txt"))...); code != codeDone || !strings.Contains(stderr, "warning: all labels are equal") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if _, stderr, code := roadmap(t, append(args, filepath.Join(dir, "labels.csv"))...); code != codeDone || strings.Contains(stderr, "warning") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

// The program starts itself anew with libgomp's spinning bounded, unless the
// user has said something about it.
func TestSpinningIsBounded(t *testing.T) {
	for _, c := range []struct{ set, want string }{{"", spinCount}, {"GOMP_SPINCOUNT=7", "GOMP_SPINCOUNT=7"}, {"OMP_WAIT_POLICY=active", "OMP_WAIT_POLICY=active"}} {
		cmd := program(t, "probe", "environment")
		for _, name := range spinSettings {
			cmd.Env = slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		}
		if c.set != "" {
			cmd.Env = append(cmd.Env, c.set)
		}
		out, err := cmd.Output()
		if err != nil || string(out) != c.want+"\n" {
			t.Errorf("%q: %q, %v; want %q", c.set, out, err, c.want)
		}
	}
	for verb, want := range map[string]bool{"train": true, "embed": true, "eval": true, "search": true, "loss": true, "data": false, "doctor": false} {
		if computing[verb] != want {
			t.Errorf("%s computes: %v", verb, !want)
		}
	}
}

func TestPrintConfigKeepsComments(t *testing.T) {
	mine := textFile(t, t.TempDir(), "mine.yaml", "# Mine: a recipe.\n\n# what it learns on\ndata: glyphs\ntransform: {resize: 28, channels: 1}\nmodel: {name: convnet, channels: 1, size: 28}\ntrain:\n  # long enough\n  steps: 7 # a week\n")
	stdout, stderr, code := roadmap(t, "train", mine, "train.steps=8", "--print-config")
	if code != codeDone {
		t.Fatal(stderr)
	}
	for _, want := range []string{"# Mine: a recipe.\n", "# what it learns on\ndata:\n", "  # long enough\n  steps: 8 # a week\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

func TestCompletionAndManPage(t *testing.T) {
	stdout, stderr, code := roadmap(t, "man")
	if code != codeDone || !strings.HasPrefix(stdout, ".") || !strings.Contains(stdout, "print\\-config") && !strings.Contains(stdout, "print-config") {
		t.Errorf("code %d, %s%.200s", code, stderr, stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "pwsh"} {
		if stdout, stderr, code := roadmap(t, "completion", shell); code != codeDone || !strings.Contains(stdout, "roadmap") && shell != "pwsh" || stdout == "" {
			t.Errorf("%s: code %d, %s%.200s", shell, code, stderr, stdout)
		}
	}
	if stdout, _, code := roadmap(t, "tr", "--generate-shell-completion"); code != codeDone || !strings.Contains(stdout, "train") {
		t.Errorf("completing tr: code %d, %q", code, stdout)
	}
}
