package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// field is one key of a struct.
type field struct {
	key   string
	index []int // the way to it through inlined structs
}

// fieldsOf lists the keys of a struct in their order: its exported fields with
// a yaml tag, those of structs tagged `yaml:",inline"` in their place. A tag
// that cannot work is a mistake in the program.
func fieldsOf(t reflect.Type) ([]field, error) {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("yaml")
		if !tagged || tag == "-" {
			continue
		}
		key, options, _ := strings.Cut(tag, ",")
		switch {
		case !f.IsExported():
			return nil, fmt.Errorf("config: field %s.%s has a yaml tag but is not exported", t, f.Name)
		case options == "inline" && f.Type.Kind() == reflect.Struct:
			inner, err := fieldsOf(f.Type)
			if err != nil {
				return nil, err
			}
			for _, in := range inner {
				fields = append(fields, field{in.key, append([]int{i}, in.index...)})
			}
		case options != "" || key == "":
			return nil, fmt.Errorf("config: field %s.%s: the tag %q is neither a key nor an inlined struct", t, f.Name, tag)
		default:
			fields = append(fields, field{key, []int{i}})
		}
	}
	keys := keysOf(fields)
	slices.Sort(keys)
	for i := range keys {
		if i > 0 && keys[i] == keys[i-1] {
			return nil, fmt.Errorf("config: %s has two fields with the key %q", t, keys[i])
		}
	}
	return fields, nil
}

func keysOf(fields []field) []string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.key
	}
	return keys
}
