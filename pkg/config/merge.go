package config

import (
	"cmp"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// nameKey is the key that names the component of a section.
const nameKey = "name"

// Override lays assignments "key=value" over the tree. The key is a dotted
// path from the top ("optimizer.milestones"), the value is YAML ("[10, 20]");
// nothing after the "=" is the empty text.
//
// An assignment to a section's name ("loss=roadmap") keeps the section's
// parameters when the name stays the same. When it changes, those that the new
// component has too, and takes, are kept, and the others dropped: see
// Section.Inherited. An assignment to a part outranks one to the whole, whatever
// their order; among equals the later one holds.
func (t *Tree) Override(assignments ...string) error {
	return t.assign("override", ", such as loss.lambda=0.3", assignments)
}

// assign is Override; what and example word its errors.
func (t *Tree) assign(what, example string, assignments []string) error {
	type assignment struct {
		path  []string
		value *node
	}
	parsed := make([]assignment, 0, len(assignments))
	for _, text := range assignments {
		path, value, err := parseAssignment(text, what, example)
		if err != nil {
			return err
		}
		parsed = append(parsed, assignment{path, value})
	}
	slices.SortStableFunc(parsed, func(a, b assignment) int { return len(a.path) - len(b.path) })
	root := t.root
	for _, a := range parsed {
		root = union(root, nest(a.path, a.value))
	}
	t.root = root
	return nil
}

func parseAssignment(text, what, example string) (path []string, value *node, err error) {
	source := what + ` "` + text + `"`
	key, right, ok := strings.Cut(text, "=")
	if !ok {
		return nil, nil, fault.Inputf("%s: want key=value%s", source, example)
	}
	path = strings.Split(strings.TrimSpace(key), ".")
	if slices.Contains(path, "") {
		return nil, nil, fault.Inputf("%s: the key has an empty part; want key=value%s", source, example)
	}
	if len(path) >= maxDepth {
		return nil, nil, fault.Inputf("%s: the key has more than %d parts", source, maxDepth-1)
	}
	if strings.TrimSpace(right) == "" {
		return path, &node{kind: scalar, quoted: true, at: place{source: source}}, nil
	}
	value, err = reader{source, false}.read([]byte(right))
	return path, value, err
}

// nest wraps a value into the mappings that its path runs through.
func nest(path []string, value *node) *node {
	for _, key := range slices.Backward(path) {
		value = &node{kind: mapping, at: value.at, entries: []entry{{key: key, at: value.at, value: value}}}
	}
	return value
}

// merge lays one value over another: mappings are joined key by key, anything
// else is replaced. A bare word beside a mapping is a section in short form. A
// section that names another component inherits the parameters of the one
// below; which of them it can use is known when it is decoded.
func merge(under, over *node) *node {
	switch {
	case over.isNull() || under.isNull() || over.kind == list || under.kind == list:
		return over
	case over.kind == scalar && under.kind == scalar:
		return heir(over, under)
	case over.kind == scalar:
		if name := under.get(nameKey); name != nil && name.text == over.text {
			return union(under, nest([]string{nameKey}, over))
		}
		return heir(over, under)
	case under.kind == scalar:
		under = &node{kind: mapping, at: over.at, entries: append([]entry{{key: nameKey, at: under.at, value: under.bare()}}, under.entries...)}
	}
	a, b := under.get(nameKey), over.get(nameKey)
	if a != nil && b != nil && a.text != b.text {
		under = &node{kind: mapping, at: over.at, entries: append([]entry{{key: nameKey, at: b.at, value: b.bare()}}, inherit(under, over)...)}
	}
	return union(under, over)
}

// bare is a word without what it inherits.
func (n *node) bare() *node {
	return &node{kind: scalar, text: n.text, quoted: n.quoted, at: n.at}
}

// heir is a component's name with the parameters of the section it replaces.
func heir(name, under *node) *node {
	n := name.bare()
	n.entries = inherit(under, name)
	return n
}

// inherit returns the parameters of a section for the component that takes its place.
func inherit(under, over *node) []entry {
	all := slices.Clone(under.entries)
	all = slices.DeleteFunc(all, func(e entry) bool { return e.key == nameKey })
	if under.kind == scalar && under.text == over.text {
		return all
	}
	for i := range all {
		all[i].inherited = true
	}
	return all
}

// union joins two mappings; keys keep the order in which they first appear.
func union(under, over *node) *node {
	joined := &node{kind: mapping, at: under.at, head: cmp.Or(over.head, under.head), entries: slices.Clone(under.entries)}
	index := make(map[string]int, len(joined.entries))
	for i, e := range joined.entries {
		index[e.key] = i
	}
	for _, e := range over.entries {
		if i, ok := index[e.key]; ok {
			below := joined.entries[i]
			e.value = merge(below.value, e.value)
			e.head, e.line = cmp.Or(e.head, below.head), cmp.Or(e.line, below.line)
			joined.entries[i] = e
		} else {
			joined.entries = append(joined.entries, e)
		}
	}
	return joined
}
