package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Section is one component of a recipe, a loss or a dataset: its name and its
// parameters, which are decoded later, into the struct that the name stands
// for. In YAML it is the name alone or a mapping with it:
//
//	loss: supap
//	loss: {name: supap, tau: 0.02}
//
// A mapping without a name keeps the name that the field had before.
type Section struct {
	Name string

	parameters *node  // mapping without the name; nil: none
	path       string // key in the recipe, for errors
	at         place  // of the name, for errors
	inherited  string // what Resolve made of the parameters of another component
}

// Inherited says, once a section is resolved, what became of the parameters
// that a recipe gives to another component, in whose place this one stands:
// "kept lr=0.001; dropped momentum". It is "" where there are none.
func (s Section) Inherited() string { return s.inherited }

// Named is the section of a component with its default parameters.
func Named(name string) Section { return Section{Name: name} }

// Assign is the section of a component with parameters from assignments
// "key=value", as in the options of a command; errors call them parameters.
// See Tree.Override.
func Assign(name string, assignments ...string) (Section, error) {
	t := Empty()
	if err := t.assign("parameter", "", assignments); err != nil {
		return Section{}, err
	}
	return Section{Name: name, parameters: t.root}, nil
}

// SectionOf is the section that makes this component again: its name and all
// of its parameters, defaults included.
func SectionOf(name string, component any) (Section, error) {
	parameters, err := encodeStruct(reflect.ValueOf(component), name)
	if err != nil {
		return Section{}, err
	}
	return Section{Name: name, parameters: parameters}, nil
}

// Map replaces the text that the section gives to a parameter, if it does.
func (s *Section) Map(key string, f func(text string) string) {
	if s.parameters == nil {
		return
	}
	changed := *s.parameters
	changed.entries = slices.Clone(changed.entries)
	for i, e := range changed.entries {
		if e.key == key && e.value.kind == scalar && !e.value.isNull() {
			changed.entries[i].value = &node{kind: scalar, text: f(e.value.text), quoted: true, at: e.value.at}
		}
	}
	s.parameters = &changed
}

// Decode sets the component's struct from the section's parameters and, where
// it has a method Validate() error, calls it. Parameters that are not given
// keep their values; unknown ones are input errors.
func (s Section) Decode(into any) error {
	target, err := structBehind(into)
	if err != nil {
		return fmt.Errorf("component %q: %w", s.Name, err)
	}
	parameters := s.parameters
	if parameters == nil {
		parameters = &node{kind: mapping, at: s.at}
	}
	return decodeStruct(parameters, s.path, target)
}

// settle returns the section with the parameters that its component takes: its
// own and, of those it inherits, the ones that it has too and whose values suit
// it beside the others.
func settle[T any](r *registry.Registry[T], s Section) (Section, error) {
	if s.parameters == nil {
		return s, nil
	}
	own := &node{kind: mapping, at: s.parameters.at}
	var inherited, kept, dropped []entry
	for _, e := range s.parameters.entries {
		if e.inherited {
			inherited = append(inherited, e)
		} else {
			own.entries = append(own.entries, e)
		}
	}
	for _, e := range inherited {
		component, err := r.Make(s.Name)
		if err != nil {
			return s, s.locate(err)
		}
		more := &node{kind: mapping, at: own.at, entries: append(slices.Clone(own.entries), e)}
		if (Section{Name: s.Name, parameters: more, path: s.path, at: s.at}).Decode(component) != nil {
			dropped = append(dropped, e)
			continue
		}
		own, kept = more, append(kept, e)
	}
	s.parameters = own
	var err error
	if len(inherited) > 0 {
		s.inherited, err = inheritance(kept, dropped)
	}
	return s, err
}

// inheritance words what became of inherited parameters.
func inheritance(kept, dropped []entry) (string, error) {
	var parts []string
	for _, list := range []struct {
		what    string
		entries []entry
	}{{"kept", kept}, {"dropped", dropped}} {
		if len(list.entries) == 0 {
			continue
		}
		pairs, err := (&node{kind: mapping, entries: list.entries}).pairs("", nil)
		if err != nil {
			return "", err
		}
		words := make([]string, len(pairs))
		for i, p := range pairs {
			words[i] = p.Key + "=" + p.Value
		}
		parts = append(parts, list.what+" "+strings.Join(words, ", "))
	}
	return strings.Join(parts, "; "), nil
}

// Build makes the component that a section names and sets its parameters.
func Build[T any](r *registry.Registry[T], s Section) (T, error) {
	var none T
	if s.Name == "" {
		return none, s.locate(fault.Inputf("no name given (known: %s)", strings.Join(r.Names(), ", ")))
	}
	s, err := settle(r, s)
	if err != nil {
		return none, err
	}
	component, err := r.Make(s.Name)
	if err != nil {
		return none, s.locate(err)
	}
	if err := s.Decode(component); err != nil {
		return none, err
	}
	return component, nil
}

// Resolve is Build, and writes every parameter of the component, defaults
// included, back into the section, for Marshal.
func Resolve[T any](r *registry.Registry[T], s *Section) (T, error) {
	settled, err := settle(r, *s)
	if err != nil {
		var none T
		return none, err
	}
	*s = settled
	component, err := Build(r, *s)
	if err != nil {
		return component, err
	}
	full, err := SectionOf(s.Name, component)
	if err != nil {
		var none T
		return none, err
	}
	full.path, full.at, full.inherited = s.path, s.at, s.inherited
	*s = full
	return component, nil
}

// locate puts the section's place and key in front of an error.
func (s Section) locate(err error) error {
	if s.path != "" {
		err = fmt.Errorf("%s: %w", s.path, err)
	}
	if s.at.source != "" {
		err = fmt.Errorf("%s: %w", s.at, err)
	}
	return err
}

func decodeSection(n *node, path string, target *Section) error {
	const want = "the name of a component, or a mapping with its name and parameters"
	switch {
	case n.kind == scalar && !n.isNull() && n.text != "":
		*target = Section{Name: n.text, path: path, at: n.at}
		if len(n.entries) > 0 {
			target.parameters = &node{kind: mapping, at: n.at, entries: n.entries}
		}
		return nil
	case n.kind != mapping:
		return wrongType(n, path, want)
	}
	s := Section{Name: target.Name, parameters: n.without(nameKey), path: path, at: n.at}
	if name := n.get(nameKey); name != nil {
		if name.kind != scalar || name.isNull() || name.text == "" {
			return wrongType(name, join(path, nameKey), "the name of a component")
		}
		s.Name, s.at = name.text, name.at
	}
	if s.Name == "" {
		return fault.Inputf("%s: %s: want %s, got a mapping without a name", n.at, path, want)
	}
	*target = s
	return nil
}
