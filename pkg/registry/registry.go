// Package registry holds the named components of the program: losses,
// samplers, datasets, backbones, optimisers. Each registers itself from its
// own file, so that adding one touches that file and nothing else.
package registry

import (
	"fmt"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// Registry maps names to constructors of T. Registration happens in init
// functions, hence on one goroutine; afterwards it is only read.
type Registry[T any] struct {
	what         string // what is registered, as errors call it: "loss", "sampler"
	constructors map[string]func() T
}

// New returns an empty registry; what names its contents in errors ("loss").
func New[T any](what string) *Registry[T] {
	return &Registry[T]{what: what, constructors: map[string]func() T{}}
}

// Register adds a constructor, which sets the component's defaults. A double
// or empty name is a mistake in the program and panics at its start.
func (r *Registry[T]) Register(name string, construct func() T) {
	if name == "" {
		panic(fmt.Sprintf("registry: a %s without a name", r.what))
	}
	if _, double := r.constructors[name]; double {
		panic(fmt.Sprintf("registry: %s %q is registered twice", r.what, name))
	}
	r.constructors[name] = construct
}

// Make constructs the component of that name. An unknown name is an input
// error with the nearest name and the list of all.
func (r *Registry[T]) Make(name string) (T, error) {
	if construct, ok := r.constructors[name]; ok {
		return construct(), nil
	}
	var none T
	names, hint := r.Names(), ""
	if near, ok := Nearest(name, names); ok {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return none, fault.Inputf("unknown %s %q%s (known: %s)", r.what, name, hint, strings.Join(names, ", "))
}

// Names lists the registered names, sorted.
func (r *Registry[T]) Names() []string {
	names := make([]string, 0, len(r.constructors))
	for name := range r.constructors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
