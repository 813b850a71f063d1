// Command docs writes docs/losses.md from the registry and the source of
// package losses: what the registry knows (names, papers, parameters and
// defaults) and what the comments say (formulas and meanings) stand there once.
// It draws the figures with the losses themselves.
//
//	go run ./losses/internal/docs
//
// A test compares the files with what it would write.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/template"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/config"
)

//go:embed losses.md.tmpl
var page string

func main() {
	root := "." // the checkout
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	files, err := generate(root)
	if err == nil {
		err = write(root, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write(root string, files map[string][]byte) error {
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the files by their path in the checkout.
func generate(root string) (map[string][]byte, error) {
	source, err := read(filepath.Join(root, "losses"), filepath.Join(root, "losses/score"), filepath.Join(root, "losses/criterion"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, name := range losses.Names() {
		e, err := source.entry(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		entries = append(entries, e)
	}
	files, err := figures()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	t, err := template.New("page").Parse(page)
	if err != nil {
		return nil, err
	}
	options, err := source.shared()
	if err != nil {
		return nil, err
	}
	if err := t.Execute(&text, map[string]any{"Losses": entries, "Options": options}); err != nil {
		return nil, err
	}
	files["docs/losses.md"] = text.Bytes()
	return files, nil
}

// entry is a loss on the page.
type entry struct {
	Name, Source, Text string
	Proxies, Metric    bool
	Parameters         []parameter
}

type parameter struct{ Key, Default, Meaning string }

// source is the comments of the structs of package losses, by name.
type source map[string]*ast.TypeSpec

func read(folders ...string) (source, error) {
	var paths []string
	for _, folder := range folders {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	types := source{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range group.Specs {
				if t, ok := s.(*ast.TypeSpec); ok {
					if t.Doc == nil {
						t.Doc = group.Doc
					}
					types[t.Name.Name] = t
				}
			}
		}
	}
	return types, nil
}

// entry describes a loss and its own parameters, those of inlined structs
// included.
func (s source) entry(name string) (entry, error) {
	loss, _, err := losses.New(name)
	if err != nil {
		return entry{}, err
	}
	traits := losses.Traits(loss)
	e := entry{Name: name, Source: losses.Source(name), Proxies: traits.Proxies, Metric: traits.Metric}
	t := reflect.TypeOf(loss).Elem()
	if e.Text, err = s.text(t.Name()); err != nil {
		return e, err
	}
	defaults, err := values(loss)
	if err != nil {
		return e, err
	}
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case f.Tag.Get("yaml") == ",inline":
			inner, err := s.text(f.Name)
			if err != nil {
				return e, err
			}
			if strings.Contains(inner, "\n\t") { // it has a formula of its own
				e.Text += "\n" + inner
			}
			e.Parameters = append(e.Parameters, s.parameters(f.Type, "", defaults)...)
		default:
			e.Parameters = append(e.Parameters, s.parameter(t.Name(), f, "", defaults))
		}
	}
	return e, nil
}

// shared describes the options that all losses have.
func (s source) shared() ([]parameter, error) {
	config, err := criterion.Registry.Make("supap")
	if err != nil {
		return nil, err
	}
	defaults, err := values(config)
	if err != nil {
		return nil, err
	}
	options := s.parameters(reflect.TypeFor[score.Options](), "", defaults)
	return append(options, s.parameters(reflect.TypeFor[criterion.Memory](), "memory.", defaults)...), nil
}

func values(loss any) (map[string]string, error) {
	pairs, err := config.Pairs(loss)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, p := range pairs {
		all[p.Key] = p.Value
	}
	return all, nil
}

// parameters lists the fields of a struct; those of nested ones are dotted.
func (s source) parameters(t reflect.Type, prefix string, defaults map[string]string) []parameter {
	var all []parameter
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("yaml") == "" {
			continue
		}
		key := prefix + f.Tag.Get("yaml")
		if f.Type.Kind() == reflect.Struct {
			all = append(all, s.parameters(f.Type, key+".", defaults)...)
			continue
		}
		all = append(all, s.parameter(t.Name(), f, prefix, defaults))
	}
	return all
}

func (s source) parameter(structure string, f reflect.StructField, prefix string, defaults map[string]string) parameter {
	key := prefix + f.Tag.Get("yaml")
	value := defaults[key]
	if value == "null" {
		value = "unset"
	}
	return parameter{Key: key, Default: value, Meaning: s.meaning(structure, f.Name)}
}

// meaning is the comment of a field.
func (s source) meaning(structure, field string) string {
	for _, f := range s[structure].Type.(*ast.StructType).Fields.List {
		for _, name := range f.Names {
			if name.Name == field {
				text := f.Comment.Text()
				if text == "" {
					text = f.Doc.Text()
				}
				return strings.Join(strings.Fields(text), " ")
			}
		}
	}
	return ""
}

// text is a struct's comment as Markdown.
func (s source) text(structure string) (string, error) {
	spec, ok := s[structure]
	if !ok || spec.Doc.Text() == "" {
		return "", fmt.Errorf("type %s has no comment", structure)
	}
	var p comment.Parser
	printer := comment.Printer{}
	return string(printer.Markdown(p.Parse(spec.Doc.Text()))), nil
}
