// Command docs writes docs/training.md from the structs of a recipe: keys and
// defaults are those of the program, meanings the comments of the fields.
//
//	go run ./pkg/train/internal/docs
//
// A test compares the file with what it would write.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/template"

	"roadmap/backbones"
	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/optim"
	"roadmap/pkg/registry"
	"roadmap/pkg/train"
	"roadmap/sampler"
)

//go:embed training.md.tmpl
var page string

// name of the page in the checkout.
const name = "docs/training.md"

func main() {
	root := "." // the checkout
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	text, err := generate(root)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, name), text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// component is one that a section may name.
type component struct {
	Name, About string
	Keys        []key
}

type key struct{ Key, Default, Meaning string }

// generate returns the page.
func generate(root string) ([]byte, error) {
	known, err := read(root)
	if err != nil {
		return nil, err
	}
	recipe := train.NewRecipe()
	plain := map[string][]key{}
	for name, part := range map[string]any{"transform": &recipe.Transform, "weights": &recipe.Weights, "groups": &recipe.Groups, "train": &recipe.Train, "eval": &recipe.Eval} {
		if plain[name], err = known.keys(part); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	sections := map[string][]component{}
	for name, list := range map[string]func(comments) ([]component, error){
		"data": of(data.Registry), "sampler": of(sampler.Registry), "model": of(backbones.Registry),
		"optimizer": of(optim.Registry), "schedule": of(optim.Schedules),
	} {
		if sections[name], err = list(known); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	t, err := template.New("page").Parse(page)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = t.Execute(&text, map[string]any{"Plain": plain, "Sections": sections, "Recipe": recipe})
	return text.Bytes(), err
}

// of lists the components of a registry. Those of one struct with one set of
// defaults stand together.
func of[T any](r *registry.Registry[T]) func(comments) ([]component, error) {
	return func(c comments) (all []component, err error) {
		for _, name := range r.Names() {
			made, err := r.Make(name)
			if err != nil {
				return nil, err
			}
			keys, err := c.keys(made)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			t := reflect.TypeOf(made).Elem()
			if last := len(all) - 1; last >= 0 && all[last].About == c.about(t) && reflect.DeepEqual(all[last].Keys, keys) {
				all[last].Name += "`, `" + name
				continue
			}
			all = append(all, component{name, c.about(t), keys})
		}
		return all, nil
	}
}

// comments are the type declarations of the packages that recipes are made of,
// by package and name.
type comments map[string]*ast.TypeSpec

func read(root string) (comments, error) {
	c := comments{}
	for _, folder := range []string{"pkg/train", "pkg/data", "pkg/optim", "sampler", "backbones"} {
		paths, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, d := range file.Decls {
				c.add("roadmap/"+folder, d)
			}
		}
	}
	return c, nil
}

func (c comments) add(folder string, d ast.Decl) {
	group, ok := d.(*ast.GenDecl)
	if !ok {
		return
	}
	for _, s := range group.Specs {
		if t, ok := s.(*ast.TypeSpec); ok {
			if t.Doc == nil {
				t.Doc = group.Doc
			}
			c[folder+"."+t.Name.Name] = t
		}
	}
}

func (c comments) spec(t reflect.Type) *ast.TypeSpec { return c[t.PkgPath()+"."+t.Name()] }

// about is the first paragraph of a type's comment.
func (c comments) about(t reflect.Type) string {
	spec := c.spec(t)
	if spec == nil {
		return ""
	}
	first, _, _ := strings.Cut(spec.Doc.Text(), "\n\n")
	return strings.Join(strings.Fields(first), " ")
}

// keys lists the keys of a struct, with the values that it has.
func (c comments) keys(of any) ([]key, error) {
	pairs, err := config.Pairs(of)
	if err != nil {
		return nil, err
	}
	meanings := map[string]string{}
	if err := c.meanings(reflect.TypeOf(of).Elem(), "", meanings); err != nil {
		return nil, err
	}
	var all []key
	for _, p := range pairs {
		meaning := meanings[p.Key]
		if meaning == "" {
			return nil, errors.New("the key " + p.Key + " has no comment that says what it means")
		}
		value := p.Value
		if value == "''" || value == `""` {
			value = ""
		}
		if value != "" {
			value = "`" + value + "`"
		}
		all = append(all, key{p.Key, value, strings.ReplaceAll(meaning, "|", "\\|")})
	}
	return all, nil
}

// meanings collects the comments of the fields, by key.
func (c comments) meanings(t reflect.Type, prefix string, into map[string]string) error {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("yaml")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case !tagged || tag == "-":
		case tag == ",inline":
			if err := c.meanings(inner, prefix, into); err != nil {
				return err
			}
		case inner.Kind() == reflect.Struct && c.spec(inner) != nil && !isText(inner):
			if err := c.meanings(inner, prefix+tag+".", into); err != nil {
				return err
			}
		default:
			into[prefix+tag] = c.field(t, f.Name)
		}
	}
	return nil
}

// isText says whether a struct is written as a word.
func isText(t reflect.Type) bool {
	_, ok := reflect.New(t).Interface().(interface{ MarshalText() ([]byte, error) })
	return ok
}

// field is the comment of a field: behind it, or above it.
func (c comments) field(t reflect.Type, name string) string {
	spec := c.spec(t)
	if spec == nil {
		return ""
	}
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return ""
	}
	for _, f := range structure.Fields.List {
		for _, n := range f.Names {
			if n.Name != name {
				continue
			}
			text := f.Comment.Text()
			if text == "" {
				text = f.Doc.Text()
			}
			return strings.Join(strings.Fields(text), " ")
		}
	}
	return ""
}
