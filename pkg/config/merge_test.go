package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault"
)

// written is the tree as YAML with all mappings and lists on one line, and what
// a section inherits in parentheses.
func written(t *testing.T, tree *Tree) string {
	t.Helper()
	return flow(tree.root)
}

func flow(n *node) string {
	var parts []string
	switch n.kind {
	case list:
		for _, item := range n.items {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case mapping:
		for _, e := range n.entries {
			part := e.key + ": " + flow(e.value)
			if e.inherited {
				part = "(" + part + ")"
			}
			parts = append(parts, part)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	for _, e := range n.entries {
		parts = append(parts, " ("+e.key+": "+flow(e.value)+")")
	}
	if n.quoted {
		return fmt.Sprintf("%q", n.text)
	}
	return n.text + strings.Join(parts, "")
}

func TestOverride(t *testing.T) {
	const under = "seed: 1\nloss: {name: roadmap, lambda: 0.5}\nmodel: convnet\noptimizer: {name: adam, milestones: [1, 2]}\ntrain: {steps: 600}"
	for _, c := range []struct {
		name      string
		overrides string // separated by " ; "
		want      string // the changed entry
	}{
		{"value", "seed=2", "seed: 2"},
		{"part", "loss.lambda=0.3", "loss: {name: roadmap, lambda: 0.3}"},
		{"new part", "loss.tau=0.02", "loss: {name: roadmap, lambda: 0.5, tau: 0.02}"},
		{"other component inherits parameters", "loss=supap", "loss: supap (lambda: 0.5)"},
		{"same component keeps parameters", "loss=roadmap", "loss: {name: roadmap, lambda: 0.5}"},
		{"other component by its key", "loss.name=supap", "loss: {name: supap, (lambda: 0.5)}"},
		{"other component with parameters", "loss={name: supap, tau: 0.02}", "loss: {name: supap, (lambda: 0.5), tau: 0.02}"},
		{"name, then part", "loss=supap ; loss.tau=0.02", "loss: {name: supap, (lambda: 0.5), tau: 0.02}"},
		{"part, then name: the part holds", "loss.tau=0.02 ; loss=supap", "loss: {name: supap, (lambda: 0.5), tau: 0.02}"},
		{"part of a short section", "model.dim=64", "model: {name: convnet, dim: 64}"},
		{"short section replaced", "model=resnet50", "model: resnet50"},
		{"list as a whole", "optimizer.milestones=[10,20]", "optimizer: {name: adam, milestones: [10, 20]}"},
		{"part of a plain mapping", "train.steps=10 ; train.workers=2", "train: {steps: 10, workers: 2}"},
		{"new mapping", "eval.batch=8", "eval: {batch: 8}"},
		{"later one holds", "seed=2 ; seed=3", "seed: 3"},
		{"nothing is the empty text", "model.weights=", `model: {name: convnet, weights: ""}`},
		{"null", "loss.lambda=null", "loss: {name: roadmap, lambda: null}"},
		{"an equals sign in the value", "model.weights=a=b", "model: {name: convnet, weights: a=b}"},
		{"quotes make a text", `seed="2"`, `seed: "2"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := mustParse(t, under)
			if err := tree.Override(strings.Split(c.overrides, " ; ")...); err != nil {
				t.Fatal(err)
			}
			got := written(t, tree)
			if !strings.Contains("{"+strings.TrimSuffix(strings.TrimPrefix(got, "{"), "}")+", ", c.want+", ") {
				t.Errorf("got %s, want it to contain %s", got, c.want)
			}
			if !strings.HasPrefix(got, "{seed: ") {
				t.Errorf("the order of keys changed: %s", got)
			}
		})
	}
}

func TestOverrideErrorsNameTheOverride(t *testing.T) {
	for _, c := range []struct{ override, want string }{
		{"train.stepps=3", `override "train.stepps=3": unknown key train.stepps; did you mean train.steps?`},
		{"trian.steps=3", `override "trian.steps=3": unknown key trian; did you mean train?`},
		{"train.steps=many", `override "train.steps=many": train.steps: want a whole number, got many`},
		{"train.steps=", `override "train.steps=": train.steps: want a whole number, got "" in quotes`},
		{"train.steps.first=3", `override "train.steps.first=3": train.steps: want a whole number, got a mapping`},
		{"metrics.0=r@1", `override "metrics.0=r@1": metrics: want a list in brackets, got a mapping`},
		{"train.steps=-3", `override "train.steps=-3": train: steps must be at least 0, got -3`},
		{"loss=", `override "loss=": loss: want the name of a component, or a mapping with its name and parameters, got "" in quotes`},
		{"seed", `override "seed": want key=value, such as loss.lambda=0.3`},
		{"=3", `override "=3": the key has an empty part; want key=value, such as loss.lambda=0.3`},
		{"train..steps=3", `override "train..steps=3": the key has an empty part; want key=value, such as loss.lambda=0.3`},
		{"crop=[1,", `override "crop=[1,": not valid YAML: did not find expected node content`},
		{strings.Repeat("a.", 40) + "a=1", `override "` + strings.Repeat("a.", 40) + `a=1": the key has more than 31 parts`},
	} {
		t.Run(c.override, func(t *testing.T) {
			_, err := decodeRecipe("train:\n  steps: 1\nmetrics: [r@1]", c.override)
			wantInputError(t, err, c.want)
		})
	}
}

// library opens recipes out of a map of texts.
func library(texts map[string]string) Open {
	return func(name, from string) (string, []byte, error) {
		text, ok := texts[name]
		if !ok {
			return "", nil, fault.Inputf("no recipe %q (known: %v)", name, slices.Sorted(maps.Keys(texts)))
		}
		return name + ".yaml", []byte(text), nil
	}
}

func TestLoadInherits(t *testing.T) {
	tree, err := Load("fast", library(map[string]string{
		"fast":  "base: short\nloss: {tau: 0.1}\nmodel: resnet50",
		"short": "train: {steps: 10}\nbase: plain\nseed: 2",
		"plain": "seed: 1\nloss: supap\nmodel: {name: convnet, dim: 64}\ntrain: {steps: 600, workers: 2}\nmetrics: [r@1]",
	}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "{seed: 2, loss: {name: supap, tau: 0.1}, model: resnet50 (dim: 64), train: {steps: 10, workers: 2}, metrics: [r@1]}"
	if got := written(t, tree); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// An error still names the file in which the value stands.
	err = tree.Decode(&struct {
		Seed, Loss, Model, Metrics any
		Train                      training `yaml:"train"`
		S                          bool     `yaml:"seed"`
	}{})
	wantInputError(t, err, "short.yaml:3:7: seed: want true or false, got 2")
}

func TestLoadErrors(t *testing.T) {
	chain := map[string]string{}
	for i := range 9 {
		chain[fmt.Sprint("r", i)] = fmt.Sprint("base: r", i+1)
	}
	for _, c := range []struct {
		name  string
		texts map[string]string
		want  string
	}{
		{"unknown", nil, `no recipe "r0" (known: [])`},
		{"unknown base", map[string]string{"r0": "seed: 1\nbase: r2"}, `r0.yaml:2:7: base: no recipe "r2" (known: [r0])`},
		{"own base", map[string]string{"r0": "base: r0"}, "r0.yaml:1:7: base: a recipe cannot build on itself (r0.yaml → r0.yaml)"},
		{"cycle", map[string]string{"r0": "base: r1", "r1": "base: r0"}, "r1.yaml:1:7: base: a recipe cannot build on itself (r0.yaml → r1.yaml → r0.yaml)"},
		{"long chain", chain, "r7.yaml:1:7: base: more than 8 recipes build on each other (r0.yaml → r1.yaml → r2.yaml → r3.yaml → r4.yaml → r5.yaml → r6.yaml → r7.yaml → r8.yaml)"},
		{"no name", map[string]string{"r0": "base: "}, "r0.yaml:1:6: base: want the name of a recipe, got no value"},
		{"list", map[string]string{"r0": "base: [r1]"}, "r0.yaml:1:7: base: want the name of a recipe, got a list"},
		{"broken base", map[string]string{"r0": "base: r1", "r1": "a: b: c"}, "r1.yaml:1:5: not valid YAML: mapping values are not allowed in this context"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load("r0", library(c.texts))
			wantInputError(t, err, c.want)
		})
	}
}
