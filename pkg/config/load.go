package config

import (
	"fmt"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// baseKey is the key of the recipe that another one builds on.
const baseKey = "base"

// maxBases bounds a chain of recipes that build on each other.
const maxBases = 8

// Open finds a recipe by name. The name comes from the recipe called from
// ("" for the first one), so that a file may name its neighbours. The source
// names the recipe in errors and tells two recipes apart.
type Open func(name, from string) (source string, text []byte, err error)

// Load reads a recipe and, below it, those that it names with "base: RECIPE":
// mappings are joined, any other value of the upper recipe replaces that of
// the lower one, and a section that names another component keeps the parameters
// that it has too (see Tree.Override). A recipe that is its own base is refused.
func Load(name string, open Open) (*Tree, error) {
	var layers []*node // the recipe itself first, its last base last
	var chain []string // their sources
	var asked *node    // the value of "base" that led to the next one
	for from := ""; ; {
		source, text, err := open(name, from)
		if err != nil && asked != nil {
			err = fmt.Errorf("%s: base: %w", asked.at, err)
		}
		if err != nil {
			return nil, err
		}
		if slices.Contains(chain, source) {
			return nil, fault.Inputf("%s: base: a recipe cannot build on itself (%s)", asked.at, strings.Join(append(chain, source), " → "))
		}
		if chain = append(chain, source); len(chain) > maxBases {
			return nil, fault.Inputf("%s: base: more than %d recipes build on each other (%s)", asked.at, maxBases, strings.Join(chain, " → "))
		}
		tree, err := Parse(source, text)
		if err != nil {
			return nil, err
		}
		layers = append(layers, tree.root.without(baseKey))
		if asked = tree.root.get(baseKey); asked == nil {
			return &Tree{root: stack(layers)}, nil
		}
		if asked.kind != scalar || asked.isNull() || asked.text == "" {
			return nil, fault.Inputf("%s: base: want the name of a recipe, got %s", asked.at, asked.describe())
		}
		name, from = asked.text, source
	}
}

// stack lays the first of the layers over the second, and so on.
func stack(layers []*node) *node {
	root := layers[len(layers)-1]
	for _, layer := range slices.Backward(layers[:len(layers)-1]) {
		root = union(root, layer)
	}
	return root
}
