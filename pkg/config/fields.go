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
	value reflect.Value
	in    string // the set that its value must be in; see Check
}

// fieldsOf lists the keys of a struct in their order: its exported fields with
// a yaml tag, those of structs tagged `yaml:",inline"` in their place, also
// where an interface or a pointer holds one. A tag that cannot work is a
// mistake in the program.
func fieldsOf(v reflect.Value) ([]field, error) {
	var fields []field
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("yaml")
		if !tagged || tag == "-" {
			continue
		}
		key, options, _ := strings.Cut(tag, ",")
		inlined := behind(v.Field(i))
		switch {
		case !f.IsExported():
			return nil, fmt.Errorf("config: field %s.%s has a yaml tag but is not exported", t, f.Name)
		case options == "inline" && key == "" && inlined.Kind() == reflect.Struct:
			inner, err := fieldsOf(inlined)
			if err != nil {
				return nil, err
			}
			fields = append(fields, inner...)
		case options != "" || key == "":
			return nil, fmt.Errorf("config: field %s.%s: the tag %q is neither a key nor an inlined struct", t, f.Name, tag)
		default:
			fields = append(fields, field{key, v.Field(i), f.Tag.Get("in")})
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

// behind is what an interface or a pointer holds.
func behind(v reflect.Value) reflect.Value {
	for (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer) && !v.IsNil() {
		v = v.Elem()
	}
	return v
}
