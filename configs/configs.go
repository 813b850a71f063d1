// Package configs holds the recipes that come with the program, one YAML file
// each, and finds those of the user. Every recipe begins with a comment: what
// it is, its paper and table, the figures to expect and the command to run it.
package configs

import (
	"embed"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

//go:embed *.yaml
var recipes embed.FS

const suffix = ".yaml"

// maxBytes is far more than any recipe has: a larger file is something else.
const maxBytes = 1 << 20

// Names lists the embedded recipes, sorted.
func Names() []string {
	files, err := fs.Glob(recipes, "*"+suffix)
	if err != nil { // of a malformed pattern alone
		return nil
	}
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = strings.TrimSuffix(file, suffix)
	}
	slices.Sort(names)
	return names
}

// Summary is the first line of a recipe's head comment.
func Summary(name string) string {
	text, err := recipes.ReadFile(name + suffix)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(strings.TrimPrefix(line, "#"))
}

// Open reads a recipe for config.Load. A name with a path separator or the
// ending .yaml or .yml is a file, relative to the folder of the file from that
// asks for it; any other name is an embedded recipe. The source is the file's
// path, or embedded:configs/NAME.yaml.
func Open(name, from string) (source string, text []byte, err error) {
	if isPath(name) {
		if from != "" && !filepath.IsAbs(name) && !isEmbedded(from) {
			name = filepath.Join(filepath.Dir(from), name)
		}
		text, err = readFile(name)
		return filepath.Clean(name), text, err
	}
	text, err = recipes.ReadFile(name + suffix)
	if err == nil {
		return embedded(name), text, nil
	}
	names, hint := Names(), ""
	if near, ok := registry.Nearest(name, names); ok {
		hint = "; did you mean " + near + "?"
	}
	return "", nil, fault.Inputf("unknown recipe %q%s (known: %s; a file is named with its ending, as my.yaml)", name, hint, strings.Join(names, ", "))
}

func isPath(name string) bool {
	return strings.ContainsAny(name, `/\`) || strings.HasSuffix(name, suffix) || strings.HasSuffix(name, ".yml")
}

// embedded is the source of an embedded recipe. The file system is told apart
// by its mark, so that a user's own folder configs is not taken for it.
func embedded(name string) string { return "embedded:configs/" + name + suffix }

func isEmbedded(source string) bool { return strings.HasPrefix(source, "embedded:") }

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Inputf("recipe %s: there is no such file (embedded recipes are named without a path: %s)", path, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fault.Inputf("recipe: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return nil, fault.Inputf("recipe: %w", err)
	}
	if len(text) > maxBytes {
		return nil, fault.Inputf("recipe %s: larger than %d bytes: this is no recipe", path, maxBytes)
	}
	return text, nil
}
