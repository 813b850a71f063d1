package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/losses"
)

const root = "../../.."

// The page and its figures are what the command would write today.
func TestPageIsUpToDate(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the command writes; run: go run ./losses/internal/docs", name)
		}
	}
}

// Every loss stands on the page with its paper, and every parameter with its
// meaning.
func TestPageIsComplete(t *testing.T) {
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	page := string(files["docs/losses.md"])
	for _, name := range losses.Names() {
		if !strings.Contains(page, "\n### `"+name+"`\n") || !strings.Contains(page, losses.Source(name)) {
			t.Errorf("%s or its paper is missing", name)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| `") && strings.HasSuffix(strings.TrimSpace(line), "|  |") {
			t.Errorf("a parameter without a meaning: %s", line)
		}
	}
}
