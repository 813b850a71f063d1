package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"roadmap/pkg/fault"
)

// Every recipe is YAML, builds on a recipe that exists, and begins with a
// comment that says what it is, what to expect and how to run it. That its
// keys are right is tested where they are known.
func TestEveryRecipeIntroducesItself(t *testing.T) {
	names := Names()
	for _, name := range []string{"glyphs_demo", "omniglot_convnet"} {
		if !slices.Contains(names, name) {
			t.Errorf("no recipe %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			source, text, err := Open(name, "")
			if err != nil {
				t.Fatal(err)
			}
			if source != "embedded:configs/"+name+".yaml" {
				t.Errorf("source %q", source)
			}
			var keys map[string]any
			if err := yaml.Load(text, &keys); err != nil {
				t.Fatal(err)
			}
			if base, ok := keys["base"].(string); ok {
				if _, _, err := Open(base, source); err != nil {
					t.Error(err)
				}
			}
			head, _, _ := strings.Cut(string(text), "\n\n")
			for _, line := range strings.Split(head, "\n") {
				if !strings.HasPrefix(line, "#") {
					t.Errorf("the head comment has the line %q", line)
				}
			}
			for _, part := range []string{"# Expected: ", "roadmap train " + name} {
				if !strings.Contains(head, part) {
					t.Errorf("the head comment does not say %q", part)
				}
			}
			if summary := Summary(name); summary == "" || !strings.HasPrefix(head, "# "+summary+"\n") {
				t.Errorf("summary %q", summary)
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

// A file names its neighbours from where it lies, whatever folder the program
// was started in; what an embedded recipe names, or the user, is as it stands.
func TestOpenFindsFiles(t *testing.T) {
	root := t.TempDir()
	low := write(t, filepath.Join(root, "configs", "low.yml"), "low")
	top := write(t, filepath.Join(root, "top.yaml"), "top")
	t.Chdir(root)
	for _, c := range []struct{ name, from, source, text string }{
		{top, "", top, "top"},
		{"top.yaml", "", "top.yaml", "top"},
		{"./top.yaml", "", "top.yaml", "top"},
		{"configs/low.yml", "top.yaml", "configs/low.yml", "low"},
		{"configs/low.yml", top, low, "low"},
		{"low.yml", low, low, "low"},
		{"low.yml", "configs/other.yaml", "configs/low.yml", "low"},
		{"../top.yaml", "configs/low.yml", "top.yaml", "top"},
		{top, "configs/low.yml", top, "top"},
		{"top.yaml", "embedded:configs/glyphs_demo.yaml", "top.yaml", "top"},
	} {
		source, text, err := Open(c.name, c.from)
		if err != nil || source != c.source || string(text) != c.text {
			t.Errorf("Open(%q, %q) = %q, %q, %v; want %q, %q", c.name, c.from, source, text, err, c.source, c.text)
		}
	}
	source, _, err := Open("glyphs_demo", top)
	if err != nil || source != "embedded:configs/glyphs_demo.yaml" {
		t.Errorf("an embedded recipe as the base of a file: %q, %v", source, err)
	}
}

func TestOpenErrors(t *testing.T) {
	root := t.TempDir()
	large := write(t, filepath.Join(root, "large.yaml"), strings.Repeat("#", maxBytes+1))
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
	} {
		_, _, err := Open(c.name, "")
		if !fault.IsInput(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.name, err, c.want)
		}
	}
}
