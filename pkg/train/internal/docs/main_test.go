package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/train"
)

const root = "../../../.."

// The page is what the command would write today.
func TestPageIsUpToDate(t *testing.T) {
	want, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the command writes; run: go run ./pkg/train/internal/docs", name)
	}
}

// Every example of the page is a recipe that the program reads.
func TestExamplesAreRecipes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 11 {
		t.Errorf("%d examples", len(examples))
	}
	for _, e := range examples {
		example := string(e[1])
		if !strings.Contains(example, "data:") {
			example += "data: glyphs\n"
		}
		if !strings.Contains(example, "transform:") && !strings.Contains(example, "base:") {
			example += "transform: {resize: 28, channels: 1}\n"
		}
		open := func(name, from string) (string, []byte, error) {
			if name == "example" {
				return "example.yaml", []byte(example), nil
			}
			text, err := os.ReadFile(filepath.Join(root, "configs", name+".yaml"))
			return name + ".yaml", text, err
		}
		tree, err := config.Load("example", open)
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
			continue
		}
		recipe, err := train.LoadRecipe(tree, nil)
		if err == nil {
			err = recipe.Resolve()
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, example)
		}
	}
}
