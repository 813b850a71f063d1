package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// Embeddings that are not finite are not written.
func TestEmbedRefusesNaN(t *testing.T) {
	out := filepath.Join(t.TempDir(), "e.npy")
	_, stderr, code := roadmap(t, "embed", "--model", "convnet", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--device", "cpu",
		"--transform", "resize=28,channels=1,mean=0,std=1e-36", "--precision", "float16", "--out", out)
	if code != codeInput || !strings.Contains(stderr, "regular/0.7/0 has NaN or infinity") || !strings.Contains(stderr, "use bfloat16 or float32") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(files) > 0 {
		t.Errorf("left %v", files)
	}
}

// In 16 bits the verb says how far from float32 the embeddings are; in float32
// there is nothing to say.
func TestEmbedSaysHowItDeviates(t *testing.T) {
	base := []string{"embed", "--model", "convnet", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--device", "cpu", "--batch", "32"}
	embed := func(precision string, more ...string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "e.npy")
		stdout, stderr, code := roadmap(t, append(append(base, "--precision", precision, "--out", out), more...)...)
		if code != codeDone {
			t.Fatalf("%s: code %d, %s", precision, code, stderr)
		}
		return stdout
	}
	d, _ := object(t, embed("bfloat16", "--json"))["deviation"].(map[string]any)
	if d == nil || d["images"] != 32.0 || !(d["least"].(float64) > 0.99) || !(d["mean"].(float64) >= d["least"].(float64)) || !(d["least"].(float64) < 1) {
		t.Errorf("deviation %v", d)
	}
	if text := embed("bfloat16"); !strings.Contains(text, "cosine to float32, over the first 32: 0.99") {
		t.Errorf("printed %q", text)
	}
	if _, there := object(t, embed("float32", "--json"))["deviation"]; there {
		t.Error("float32 deviates from itself")
	}
}
