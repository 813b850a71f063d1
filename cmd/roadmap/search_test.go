package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Paths alone, under their header, are enough to name neighbours.
func TestSearchPathsAlone(t *testing.T) {
	dir := t.TempDir()
	queries := saveNPY(t, "Q.npy", []float32{1, 0, 0, 1, 1, 0.5}, 3, 2)
	paths := textFile(t, dir, "P.csv", "path\na.png\nb.png\nc.png\n")
	out := filepath.Join(dir, "found.csv")
	if _, stderr, code := roadmap(t, "search", "--queries", queries, "--query-paths", paths, "--k", "1", "--out", out); code != codeDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if text, err := os.ReadFile(out); err != nil || !strings.Contains(string(text), ",a.png,c.png\r\n") {
		t.Errorf("found %q (%v), want c.png as the neighbour of a.png", text, err)
	}
	bare := textFile(t, dir, "bare.csv", "a.png\nb.png\nc.png\n")
	if _, stderr, code := roadmap(t, "search", "--queries", queries, "--query-paths", bare, "--k", "1", "--out", out, "--force"); code != codeInput || !strings.Contains(stderr, "one of them path") {
		t.Errorf("no header: code %d, %s", code, stderr)
	}
}
