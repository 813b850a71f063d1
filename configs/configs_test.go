package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

// Every recipe is YAML that can be loaded, and its head comment says what it
// is and how to run it. That its keys exist is tested where they are known.
func TestEveryRecipeLoadsAndIntroducesItself(t *testing.T) {
	names := Names()
	for _, name := range []string{"glyphs_demo", "omniglot_convnet"} {
		if !slices.Contains(names, name) {
			t.Errorf("no recipe %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tree, err := config.Load(name, Open)
			if err != nil {
				t.Fatal(err)
			}
			var nothing struct{}
			if err := tree.Decode(&nothing); !fault.IsInput(err) || !strings.HasPrefix(err.Error(), "embedded:configs/") {
				t.Errorf("a recipe whose keys nobody knows gives %v", err)
			}
			text, err := recipes.ReadFile(name + suffix)
			if err != nil {
				t.Fatal(err)
			}
			head, _, _ := strings.Cut(string(text), "\n\n")
			for _, line := range strings.Split(head, "\n") {
				if !strings.HasPrefix(line, "#") {
					t.Errorf("the head comment has the line %q", line)
				}
			}
			for _, part := range []string{"roadmap train " + name} {
				if !strings.Contains(head, part) {
					t.Errorf("the head comment does not say %q", part)
				}
			}
			if Summary(name) == "" || strings.Contains(Summary(name), "\n") {
				t.Errorf("summary %q", Summary(name))
			}
		})
	}
	if got := Summary("nothing"); got != "" {
		t.Errorf("summary of no recipe: %q", got)
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// load is the seed of a recipe and of those it builds on.
func load(t *testing.T, name string) (seed int, text string, err error) {
	t.Helper()
	tree, err := config.Load(name, Open)
	if err != nil {
		return 0, "", err
	}
	var r struct {
		Seed int    `yaml:"seed"`
		Text string `yaml:"text"`
	}
	err = tree.Decode(&r)
	return r.Seed, r.Text, err
}

func TestFilesBuildOnTheirNeighbours(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "configs", "low.yml"), "seed: 3\ntext: low")
	write(t, filepath.Join(root, "configs", "middle.yaml"), "base: low.yml\ntext: middle")
	top := write(t, filepath.Join(root, "top.yaml"), "base: configs/middle.yaml")
	seed, text, err := load(t, top)
	if err != nil || seed != 3 || text != "middle" {
		t.Errorf("seed %d, text %q, %v", seed, text, err)
	}
	absolute := write(t, filepath.Join(root, "far", "top.yaml"), "base: "+top)
	if seed, _, err := load(t, absolute); err != nil || seed != 3 {
		t.Errorf("by its full path: seed %d, %v", seed, err)
	}
	t.Chdir(root)
	if seed, _, err := load(t, "top.yaml"); err != nil || seed != 3 {
		t.Errorf("by its name alone: seed %d, %v", seed, err)
	}
}

func TestAFileBuildsOnAnEmbeddedRecipe(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "mine.yaml"), "base: glyphs_demo\nseed: 9")
	tree, err := config.Load(path, Open)
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Seed int `yaml:"seed"`
	}
	err = tree.Decode(&r)
	if r.Seed != 9 || err == nil || !strings.HasPrefix(err.Error(), "embedded:configs/glyphs_demo.yaml:") {
		t.Errorf("seed %d, %v", r.Seed, err)
	}
}

func TestErrors(t *testing.T) {
	root := t.TempDir()
	large := write(t, filepath.Join(root, "large.yaml"), strings.Repeat("#", maxBytes+1))
	cycle := write(t, filepath.Join(root, "cycle.yaml"), "base: ./cycle.yaml")
	lost := write(t, filepath.Join(root, "lost.yaml"), "seed: 1\nbase: lots.yaml")
	folder := filepath.Join(root, "folder.yaml")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, want string }{
		{"glyph_demo", `unknown recipe "glyph_demo"; did you mean glyphs_demo? (known: `},
		{"xyzzy", `unknown recipe "xyzzy" (known: `},
		{"", `unknown recipe "" (known: `},
		{filepath.Join(root, "none.yaml"), "none.yaml: there is no such file (embedded recipes are named without a path: "},
		{folder, "is a directory"},
		{large, "larger than 1048576 bytes: this is no recipe"},
		{cycle, "cycle.yaml:1:7: base: a recipe cannot build on itself"},
		{lost, "lost.yaml:2:7: base: recipe " + filepath.Join(root, "lots.yaml") + ": there is no such file"},
	} {
		_, _, err := load(t, c.name)
		if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.name, err, c.want)
		}
	}
}
