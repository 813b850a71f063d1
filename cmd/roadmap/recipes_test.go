package main

import (
	"archive/zip"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
)

// groceries unpacks a few photographs of the Grocery Store dataset as
// ROOT/train/CLASS and ROOT/test/CLASS: four of each of six classes.
func groceries(t *testing.T) string {
	t.Helper()
	archive, err := zip.OpenReader(datatest.Shared(t, "grocerystore/grocerystore-96px.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	root := t.TempDir()
	taken := map[string]int{}
	for _, f := range archive.File {
		split, _, _ := strings.Cut(f.Name, "/")
		folder := filepath.Join(root, split, path.Base(path.Dir(f.Name)))
		if !strings.HasSuffix(f.Name, ".jpg") || !slices.Contains([]string{"train", "test"}, split) ||
			taken[folder] == 4 || taken[folder] == 0 && taken[split] == 6 {
			continue
		}
		if taken[folder]++; taken[folder] == 1 {
			taken[split]++
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		from, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		photo, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, path.Base(f.Name)), photo, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The recipes of the paper's networks take steps on photographs.
func TestRecipesOfThePaper(t *testing.T) {
	if testing.Short() {
		t.Skip("trains three large networks")
	}
	root := groceries(t)
	for recipe, width := range map[string]float64{"roadmap_resnet50": 512, "roadmap_resnet50_max_ln": 2048, "roadmap_deit_small": 384} {
		t.Run(recipe, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "run")
			stdout, stderr, code := roadmap(t, "train", recipe, "data.root="+root, "weights=random", "transform={resize: 72, crop: 64}", "sampler={classes: 4, samples: 2}",
				"train={steps: 2, device: cpu}", "eval.metrics=[r@1, map@r]", "--out", folder, "--json")
			if code != 0 {
				t.Fatalf("code %d\n%s", code, stderr)
			}
			if steps := object(t, stdout)["steps"]; steps != 2.0 {
				t.Errorf("%v steps", steps)
			}
			out := filepath.Join(t.TempDir(), "e.npy")
			stdout, stderr, code = roadmap(t, "embed", "--run", folder, "--out", out, "--json")
			if result := object(t, stdout); code != 0 || result["dim"] != width || result["images"] != 24.0 {
				t.Errorf("embed: code %d, %v\n%s", code, result, stderr)
			}
		})
	}
}
