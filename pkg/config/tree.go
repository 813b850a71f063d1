// Package config reads recipes, the settings and hyperparameters of a run: YAML
// text decoded strictly into structs, with overrides from the command line as
// Hydra and OmegaConf have them. A key that the struct does not have, a key given twice, a value of another type
// and a number that is not finite are errors with file, line and column, the
// key in full ("loss.lamda") and the nearest valid one. Overrides such as
// "loss.lambda=0.3" are laid over a recipe before it is decoded, and a decoded
// struct is written back, defaults included, with Marshal.
//
// The fields of a struct that carry a yaml tag are its configuration, all
// others are left alone. A key that is absent keeps the value that the field
// had. A struct may have a method Validate() error, called once its keys are
// read. Every error caused by the text of a recipe or override is an input
// error (package fault).
package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"roadmap/pkg/fault"
)

// Tree is a recipe before it has types: one file, or several laid over each
// other, and the overrides laid over those.
type Tree struct {
	root *node
}

// Empty is a recipe without a key, for overrides alone.
func Empty() *Tree { return &Tree{root: &node{kind: mapping}} }

// Parse reads one YAML document, a mapping. The source, usually the file's
// name, stands in errors. Anchors, aliases, merge keys and explicit tags are
// refused: a recipe inherits with "base" (see Load).
func Parse(source string, text []byte) (*Tree, error) {
	root, err := reader{source, true}.read(text)
	if err != nil {
		return nil, err
	}
	if root.isNull() {
		root = &node{kind: mapping, at: place{source: source}}
	}
	if root.kind != mapping {
		return nil, fault.Inputf("%s: want keys with values such as \"seed: 1\", got %s", root.at, root.describe())
	}
	return &Tree{root: root}, nil
}

// maxDepth bounds how deep values may be nested; recipes need four levels.
const maxDepth = 32

type kind int

const (
	scalar kind = iota
	list
	mapping
)

// node is one value of a tree. Nodes are shared between trees, so they are
// never changed once they are built.
type node struct {
	kind    kind
	text    string  // of a scalar, without its quotes
	quoted  bool    // the scalar stood in quotes (or a block), hence is a text
	items   []*node // of a list
	head    string  // comment at the top of the file; of its mapping alone
	entries []entry // of a mapping, keys distinct, in the order of the file; of a component's name, those that it inherits
	at      place
}

type entry struct {
	key   string
	at    place
	value *node

	head, line string // comments: in the lines above, and behind it

	inherited bool // given for another component of the section; see merge
}

// place says where a value was written: a line and column of a file, or, with
// line 0, a source that has no lines, such as an override.
type place struct {
	source       string
	line, column int
}

func (p place) String() string {
	if p.line == 0 {
		return p.source
	}
	return fmt.Sprintf("%s:%d:%d", p.source, p.line, p.column)
}

// get returns the value of a key of a mapping, nil where there is none.
func (n *node) get(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
}

// without returns the mapping with one key left out.
func (n *node) without(key string) *node {
	rest := &node{kind: mapping, at: n.at, head: n.head}
	for _, e := range n.entries {
		if e.key != key {
			rest.entries = append(rest.entries, e)
		}
	}
	return rest
}

// isNull reports YAML's plain nothing: no value, ~ or null.
func (n *node) isNull() bool {
	return n.kind == scalar && !n.quoted && isNull(n.text)
}

func isNull(text string) bool {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// describe says what a value is, for "want …, got …".
func (n *node) describe() string {
	switch {
	case n.kind == list:
		return "a list"
	case n.kind == mapping:
		return "a mapping"
	case n.isNull():
		return "no value"
	case n.quoted:
		return fmt.Sprintf("%q in quotes", n.text)
	default:
		return n.text
	}
}

// reader turns YAML into nodes whose places name its source.
type reader struct {
	source string
	lines  bool // places have lines and columns
}

func (r reader) place(line, column int) place {
	if !r.lines {
		return place{source: r.source}
	}
	return place{r.source, line, column}
}

// read reads one document.
func (r reader) read(text []byte) (*node, error) {
	var document yaml.Node
	if err := yaml.Load(text, &document); err != nil {
		if isBlank(text) {
			return &node{kind: scalar, at: r.place(0, 0)}, nil
		}
		return nil, r.syntaxError(err)
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, fault.Inputf("%s: not one YAML document", r.source)
	}
	n, err := r.convert(document.Content[0], maxDepth)
	if err == nil {
		n.head = cmp.Or(document.HeadComment, document.Content[0].HeadComment)
	}
	return n, err
}

// isBlank reports whether a text holds nothing but blank lines and comments,
// which the YAML library answers with an error.
func isBlank(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

// syntaxError puts the library's position in front of its message.
func (r reader) syntaxError(err error) error {
	at, message := r.place(0, 0), strings.TrimPrefix(err.Error(), "yaml: ")
	var syntax *yaml.LoadError
	if errors.As(err, &syntax) {
		at = r.place(syntax.Mark.Line, syntax.Mark.Column)
		message = strings.TrimPrefix(syntax.Message, "yaml: ")
	}
	return fault.Inputf("%s: not valid YAML: %s", at, message)
}

// convert copies the library's node, up to depth levels, into ours.
func (r reader) convert(y *yaml.Node, depth int) (*node, error) {
	at := r.place(y.Line, y.Column)
	if depth == 0 {
		return nil, fault.Inputf("%s: values nested deeper than %d levels", at, maxDepth)
	}
	if y.Kind == yaml.AliasNode || y.Anchor != "" {
		return nil, fault.Inputf("%s: anchors (&) and aliases (*) are not used in recipes: write the value out, or inherit with \"base: RECIPE\"", at)
	}
	if y.Style&yaml.TaggedStyle != 0 {
		return nil, fault.Inputf("%s: the tag %s is not used in recipes: leave it out", at, y.Tag)
	}
	n := &node{at: at}
	switch y.Kind {
	case yaml.ScalarNode:
		const textStyles = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
		n.kind, n.text, n.quoted = scalar, y.Value, y.Style&textStyles != 0
		return n, nil
	case yaml.SequenceNode:
		n.kind = list
		for _, item := range y.Content {
			value, err := r.convert(item, depth-1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, value)
		}
		return n, nil
	case yaml.MappingNode:
		n.kind = mapping
		return n, r.fill(n, y.Content, depth)
	}
	return nil, fault.Inputf("%s: neither a value, a list nor a mapping", at)
}

// fill reads the alternating keys and values of a mapping.
func (r reader) fill(n *node, content []*yaml.Node, depth int) error {
	first := map[string]place{}
	for i := 0; i+1 < len(content); i += 2 {
		key, err := r.convert(content[i], depth-1)
		if err != nil {
			return err
		}
		if key.kind != scalar {
			return fault.Inputf("%s: a key must be one word, got %s", key.at, key.describe())
		}
		if key.text == "<<" && !key.quoted {
			return fault.Inputf("%s: merge keys (<<) are not used in recipes: inherit with \"base: RECIPE\"", key.at)
		}
		if before, double := first[key.text]; double {
			return fault.Inputf("%s: key %s is given twice, first in line %d: remove one of them", key.at, key.text, before.line)
		}
		first[key.text] = key.at
		value, err := r.convert(content[i+1], depth-1)
		if err != nil {
			return err
		}
		n.entries = append(n.entries, entry{key: key.text, at: key.at, value: value,
			head: content[i].HeadComment, line: cmp.Or(content[i+1].LineComment, content[i].LineComment)})
	}
	return nil
}
