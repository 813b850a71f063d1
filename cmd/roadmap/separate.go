package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/train"
)

// outputs are the options that name files to write; the others may name files to
// read.
var outputs = map[string]bool{"out": true, "grad": true, "grad-gallery": true, "per-query": true, "fix": true}

// separate refuses files to be written that the verb reads: those that its
// options name, a run's that --run names, and more. Every verb calls it before
// it writes.
func separate(c *call, out []string, more ...string) error {
	for _, read := range append(named(c), more...) {
		for _, path := range out {
			if oneFile(path, read) {
				return fault.Inputf("%s would be written, but it is also read (as %s); choose another name for what is written", path, read)
			}
		}
	}
	return nil
}

// oneFile says whether two paths lead to the same file.
func oneFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && !x.IsDir() && os.SameFile(x, y)
}

// named is what the verb's options may name to be read: each value, and what
// it has behind an equals sign, between commas and before a colon.
func named(c *call) (paths []string) {
	add := func(value string) {
		paths = append(paths, value)
		_, setting, _ := strings.Cut(value, "=")
		for _, text := range []string{value, setting} {
			for part := range strings.SplitSeq(text, ",") {
				split := strings.LastIndex(part, ":")
				if paths = append(paths, part); split > 0 {
					paths = append(paths, part[:split])
				}
			}
		}
	}
	for _, flag := range c.Flags {
		name := flag.Names()[0]
		if outputs[name] || !c.IsSet(name) {
			continue
		}
		switch flag.(type) {
		case *cli.StringFlag:
			add(c.String(name))
		case *cli.StringSliceFlag:
			for _, value := range c.StringSlice(name) {
				add(value)
			}
		}
	}
	if run := c.String("run"); run != "" {
		f := train.Folder{Path: run}
		paths = append(paths, f.ConfigPath(), f.WeightsPath())
		if recipe, err := train.ReadRecipe(run, nil); err == nil {
			paths = append(paths, sources(recipe)...)
		}
	}
	return paths
}

// sources are the texts in a recipe that may name what it reads.
func sources(recipe *train.Recipe) (paths []string) {
	sections := struct {
		Data  config.Section `yaml:"data"`
		Model config.Section `yaml:"model"`
	}{recipe.Data, recipe.Model}
	values, err := config.Values(sections)
	if err != nil {
		return []string{recipe.Weights.File}
	}
	return texts(values, []string{recipe.Weights.File})
}

func texts(value any, into []string) []string {
	switch v := value.(type) {
	case string:
		into = append(into, v)
	case []any:
		for _, inner := range v {
			into = texts(inner, into)
		}
	case map[string]any:
		for _, inner := range v {
			into = texts(inner, into)
		}
	}
	return into
}

// separateFolder refuses a run folder that holds something the run reads:
// --force would empty it.
func separateFolder(folder string, read []string) error {
	whole, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil // there is none yet
	}
	if whole, err = filepath.Abs(whole); err != nil {
		return err
	}
	for _, path := range read {
		resolved, err := filepath.EvalSymlinks(path)
		if path == "" || err != nil {
			continue
		}
		if resolved, err = filepath.Abs(resolved); err != nil {
			return err
		}
		if resolved == whole || strings.HasPrefix(resolved, whole+string(filepath.Separator)) {
			return fault.Inputf("run folder %s: it would be written, but %s in it is also read; choose another folder with --out", folder, path)
		}
	}
	return nil
}
