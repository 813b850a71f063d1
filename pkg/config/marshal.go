package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Marshal writes a struct as YAML: every key, in the order of its fields,
// maps sorted by key. Decoding the text gives the same configuration. Sections
// are written with the parameters that they hold; Resolve fills in the
// defaults first. Equal structs give equal bytes.
func Marshal(v any) ([]byte, error) {
	n, err := encodeStruct(reflect.ValueOf(v), "")
	if err != nil {
		return nil, err
	}
	return write(n)
}

// MarshalLike is Marshal with the comments that the tree's recipes have at the
// same keys and at their top.
func MarshalLike(v any, t *Tree) ([]byte, error) {
	n, err := encodeStruct(reflect.ValueOf(v), "")
	if err != nil {
		return nil, err
	}
	n.comment(t.root)
	text, err := write(n)
	if err == nil && t.root.head != "" {
		text = append([]byte(t.root.head+"\n\n"), text...)
	}
	return text, err
}

// comment gives the entries of a mapping the comments of another's.
func (n *node) comment(from *node) {
	for i, e := range n.entries {
		for _, f := range from.entries {
			if f.key != e.key {
				continue
			}
			n.entries[i].head, n.entries[i].line = f.head, f.line
			if e.value.kind == mapping {
				e.value.comment(f.value)
				if f.line != "" { // behind a word that has become a mapping
					n.entries[i].head, n.entries[i].line = strings.TrimLeft(f.head+"\n"+f.line, "\n"), ""
				}
			}
		}
	}
}

// Values returns the configuration of a struct as encoding/json takes it:
// maps, slices, strings, bools, nil and json.Number.
func Values(v any) (map[string]any, error) {
	n, err := encodeStruct(reflect.ValueOf(v), "")
	if err != nil {
		return nil, err
	}
	return n.plain().(map[string]any), nil
}

// Pair is one key of a struct and its value as YAML on one line.
type Pair struct {
	Key, Value string
}

// Pairs lists the keys of a struct in their order, for tables and logs. Keys
// of nested structs are dotted paths.
func Pairs(v any) ([]Pair, error) {
	n, err := encodeStruct(reflect.ValueOf(v), "")
	if err != nil {
		return nil, err
	}
	return n.pairs("", nil)
}

func (n *node) pairs(path string, into []Pair) ([]Pair, error) {
	for _, e := range n.entries {
		key := join(path, e.key)
		if e.value.kind == mapping {
			var err error
			if into, err = e.value.pairs(key, into); err != nil {
				return nil, err
			}
			continue
		}
		text, err := write(e.value)
		if err != nil {
			return nil, err
		}
		into = append(into, Pair{key, string(text[:len(text)-1])}) // without the line's end
	}
	return into, nil
}

// plain turns a node into what encoding/json takes.
func (n *node) plain() any {
	switch n.kind {
	case list:
		items := make([]any, len(n.items))
		for i, item := range n.items {
			items[i] = item.plain()
		}
		return items
	case mapping:
		entries := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			entries[e.key] = e.value.plain()
		}
		return entries
	}
	switch {
	case n.quoted:
		return n.text
	case n.isNull():
		return nil
	case n.text == "true" || n.text == "false":
		return n.text == "true"
	case json.Valid([]byte(n.text)):
		return json.Number(n.text)
	}
	return n.text
}

// write prints a node: mappings in block style, lists on one line unless they
// hold mappings.
func write(n *node) ([]byte, error) {
	text, err := yaml.Dump(n.yaml(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("config: write YAML: %w", err)
	}
	return text, nil
}

func (n *node) yaml() *yaml.Node {
	switch n.kind {
	case list:
		y := &yaml.Node{Kind: yaml.SequenceNode}
		if !slices.ContainsFunc(n.items, func(item *node) bool { return item.kind == mapping }) {
			y.Style = yaml.FlowStyle
		}
		for _, item := range n.items {
			y.Content = append(y.Content, item.yaml())
		}
		return y
	case mapping:
		y := &yaml.Node{Kind: yaml.MappingNode}
		if len(n.entries) == 0 {
			y.Style = yaml.FlowStyle
		}
		for _, e := range n.entries {
			key, value := (&node{kind: scalar, text: e.key, quoted: true}).yaml(), e.value.yaml()
			key.HeadComment, value.LineComment = e.head, e.line
			y.Content = append(y.Content, key, value)
		}
		return y
	}
	y := &yaml.Node{Kind: yaml.ScalarNode, Value: n.text}
	if n.quoted {
		y.Tag = "!!str" // the writer quotes it where it would read as anything else
	}
	return y
}

// encodeStruct turns a struct, or a pointer to one, into a mapping.
func encodeStruct(v reflect.Value, path string) (*node, error) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("config: %s: want a struct, got %s", path, v.Kind())
	}
	fields, err := fieldsOf(v)
	if err != nil {
		return nil, err
	}
	n := &node{kind: mapping}
	for _, f := range fields {
		value, err := encode(f.value, join(path, f.key))
		if err != nil {
			return nil, err
		}
		n.entries = append(n.entries, entry{key: f.key, value: value})
	}
	return n, nil
}

func plainScalar(text string) *node { return &node{kind: scalar, text: text} }
func textScalar(text string) *node  { return &node{kind: scalar, text: text, quoted: true} }

// encode turns a value into a node, the inverse of decode.
func encode(v reflect.Value, path string) (*node, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return plainScalar("null"), nil
		}
		return encode(v.Elem(), path)
	}
	if own, ok := addressed(v).(encoding.TextMarshaler); ok {
		text, err := own.MarshalText()
		if err != nil {
			return nil, fmt.Errorf("config: %s: %w", path, err)
		}
		return wordScalar(string(text)), nil
	}
	switch v.Type() {
	case sectionType:
		return encodeSection(v.Interface().(Section)), nil
	case durationType:
		return plainScalar(v.Interface().(time.Duration).String()), nil
	}
	switch v.Kind() {
	case reflect.Bool:
		return plainScalar(strconv.FormatBool(v.Bool())), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return plainScalar(strconv.FormatInt(v.Int(), 10)), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return plainScalar(strconv.FormatUint(v.Uint(), 10)), nil
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("config: %s: %v is not finite", path, f)
		}
		return plainScalar(strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits())), nil
	case reflect.String:
		return textScalar(v.String()), nil
	case reflect.Slice, reflect.Array:
		return encodeList(v, path)
	case reflect.Map:
		return encodeMap(v, path)
	case reflect.Struct:
		return encodeStruct(v, path)
	}
	return nil, fmt.Errorf("config: %s: a recipe cannot hold the type %s", path, v.Type())
}

// addressed returns a pointer to a copy of v, which has all of its methods.
func addressed(v reflect.Value) any {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p.Interface()
}

// wordScalar writes a word or number of a type that reads itself, bare unless
// it would read as nothing at all.
func wordScalar(text string) *node {
	if isNull(text) {
		return textScalar(text)
	}
	return plainScalar(text)
}

func encodeSection(s Section) *node {
	if s.parameters == nil || len(s.parameters.entries) == 0 {
		return textScalar(s.Name)
	}
	name := entry{key: nameKey, value: textScalar(s.Name)}
	return &node{kind: mapping, entries: append([]entry{name}, s.parameters.entries...)}
}

func encodeList(v reflect.Value, path string) (*node, error) {
	n := &node{kind: list}
	for i := range v.Len() {
		item, err := encode(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			return nil, err
		}
		n.items = append(n.items, item)
	}
	return n, nil
}

func encodeMap(v reflect.Value, path string) (*node, error) {
	if v.Type().Key().Kind() != reflect.String {
		return nil, fmt.Errorf("config: %s: a recipe cannot hold the type %s", path, v.Type())
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	n := &node{kind: mapping}
	for _, key := range keys {
		value, err := encode(v.MapIndex(key), join(path, key.String()))
		if err != nil {
			return nil, err
		}
		n.entries = append(n.entries, entry{key: key.String(), value: value})
	}
	return n, nil
}
