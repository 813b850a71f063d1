package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Decode sets the struct that into points at from the tree. Fields may be
// bools, numbers, strings, time.Duration, slices, arrays, maps with string
// keys, structs (a word stands for the key name of one that has it), pointers (null makes them nil), Section, and types with
// UnmarshalText. On an error the struct may be set in part.
func (t *Tree) Decode(into any) error {
	target, err := structBehind(into)
	if err != nil {
		return err
	}
	return t.root.decodeInto(target, into)
}

// decodeInto is Decode; a struct with a method Elsewhere(key) string says where
// a setting lives that an unknown key means, "" for none.
func (n *node) decodeInto(target reflect.Value, into any) error {
	err := decodeStruct(n, "", target)
	unknown := (*unknownKeyError)(nil)
	if knows, ok := into.(interface{ Elsewhere(key string) string }); ok && errors.As(err, &unknown) {
		if place := knows.Elsewhere(unknown.key); place != "" {
			return fault.Inputf("%s: unknown key %s; here it is %s", unknown.at, unknown.key, place)
		}
	}
	return err
}

// unknownKeyError is about a key that there is not.
type unknownKeyError struct {
	at   place
	key  string // in full
	hint string
}

func (e *unknownKeyError) Error() string {
	return fmt.Sprintf("%s: unknown key %s%s", e.at, e.key, e.hint)
}

// structBehind returns the struct that a pointer points at.
func structBehind(pointer any) (reflect.Value, error) {
	v := reflect.ValueOf(pointer)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}, fmt.Errorf("config: want a pointer to a struct, got %T", pointer)
	}
	return v.Elem(), nil
}

var (
	sectionType  = reflect.TypeFor[Section]()
	durationType = reflect.TypeFor[time.Duration]()
)

// decode sets target from a value; path is its key in full, for errors.
func decode(n *node, path string, target reflect.Value) error {
	if target.Kind() == reflect.Pointer {
		return decodePointer(n, path, target)
	}
	if text, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return decodeText(n, path, text)
	}
	switch target.Type() {
	case sectionType:
		return decodeSection(n, path, target.Addr().Interface().(*Section))
	case durationType:
		return decodeDuration(n, path, target)
	}
	switch target.Kind() {
	case reflect.Bool:
		return decodeBool(n, path, target)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt(n, path, target)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return decodeUint(n, path, target)
	case reflect.Float32, reflect.Float64:
		return decodeFloat(n, path, target)
	case reflect.String:
		if n.kind != scalar || n.isNull() {
			return wrongType(n, path, "a text")
		}
		target.SetString(atHome(n.text))
		return nil
	case reflect.Slice:
		return decodeSlice(n, path, target)
	case reflect.Array:
		return decodeArray(n, path, target)
	case reflect.Map:
		return decodeMap(n, path, target)
	case reflect.Struct:
		if n.kind == scalar && !n.isNull() && hasName(target.Type()) {
			n = nest([]string{nameKey}, n.bare())
		}
		if n.kind != mapping {
			return wrongType(n, path, "a mapping of keys")
		}
		return decodeStruct(n, path, target)
	}
	return fmt.Errorf("config: %s: a recipe cannot hold the type %s", path, target.Type())
}

// atHome puts the user's home folder in the place of a leading "~/".
func atHome(path string) string {
	rest, short := strings.CutPrefix(path, "~/")
	if home, err := os.UserHomeDir(); short && err == nil {
		return filepath.Join(home, rest)
	}
	return path
}

// hasName says whether a word may stand for a struct, as its key name.
func hasName(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == nameKey {
			return true
		}
	}
	return false
}

// wrongType names what stands where something else is meant.
func wrongType(n *node, path, want string) error {
	return fault.Inputf("%s: %s: want %s, got %s", n.at, path, want, n.describe())
}

// decodeStruct sets the fields whose keys are given, lets nested structs check
// themselves even where their key is absent, and then the struct itself.
func decodeStruct(n *node, path string, target reflect.Value) error {
	fields, err := fieldsOf(target)
	if err != nil {
		return err
	}
	known := make(map[string]field, len(fields))
	for _, f := range fields {
		known[f.key] = f
	}
	for _, e := range n.entries {
		f, ok := known[e.key]
		if !ok {
			return unknownKey(e, path, keysOf(fields))
		}
		if err := decode(e.value, join(path, e.key), f.value); err != nil {
			return err
		}
		delete(known, e.key)
	}
	for _, f := range fields {
		inner := f.value
		if _, absent := known[f.key]; !absent || inner.Kind() != reflect.Struct || inner.Type() == sectionType {
			continue
		}
		if _, text := inner.Addr().Interface().(encoding.TextUnmarshaler); text {
			continue
		}
		if err := decodeStruct(&node{kind: mapping, at: n.at}, join(path, f.key), inner); err != nil {
			return err
		}
	}
	return validate(n, path, target)
}

// validate checks the target as its tags say, and by its own Validate and that
// of structs inlined in it.
func validate(n *node, path string, target reflect.Value) error {
	err := checkFields(target)
	if err == nil {
		err = ownValidate(target)
	}
	if err == nil {
		return nil
	}
	at := n.at
	if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
		at = n.placeOf(invalid.Key)
	}
	if path != "" {
		err = fmt.Errorf("%s: %w", path, err)
	}
	if at.source != "" {
		err = fmt.Errorf("%s: %w", at, err)
	}
	return fault.Input(err)
}

func ownValidate(target reflect.Value) error {
	for i := range target.NumField() {
		if f := target.Type().Field(i); f.IsExported() && f.Tag.Get("yaml") == ",inline" {
			if err := ownValidate(behind(target.Field(i))); err != nil {
				return err
			}
		}
	}
	if target.CanAddr() { // the methods of its pointer are its own too
		target = target.Addr()
	}
	if checked, ok := target.Interface().(interface{ Validate() error }); ok {
		return checked.Validate()
	}
	return nil
}

// InvalidError is what Validate returns about the value of one key, so that the
// error can name the file and line where that value stands.
type InvalidError struct {
	Key string // of the struct whose Validate it is: "tau", or "augment.shift" of a struct inside
	err error
}

// Invalid makes an InvalidError whose text is the key and then the message:
// Invalid("tau", "is %g; give a number above 0", tau).
func Invalid(key, format string, args ...any) error {
	return fault.Input(&InvalidError{key, fmt.Errorf(format, args...)})
}

func (e *InvalidError) Error() string { return e.Key + " " + e.err.Error() }
func (e *InvalidError) Unwrap() error { return e.err }

// placeOf is the place of a key, or of the innermost mapping around it that the
// recipe has, where the value is a default.
func (n *node) placeOf(key string) place {
	first, rest, nested := strings.Cut(key, ".")
	for _, e := range n.entries {
		if e.key == first && nested {
			return e.value.placeOf(rest)
		}
		if e.key == first {
			return e.at
		}
	}
	return n.at
}

func unknownKey(e entry, path string, keys []string) error {
	full := join(path, e.key)
	if near, ok := registry.Nearest(e.key, keys); ok {
		return fault.Input(&unknownKeyError{e.at, full, "; did you mean " + join(path, near) + "?"})
	}
	if len(keys) == 0 {
		return fault.Input(&unknownKeyError{e.at, full, ": no keys are taken here"})
	}
	return fault.Input(&unknownKeyError{e.at, full, " (known: " + strings.Join(keys, ", ") + ")"})
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// decodePointer decodes into a new value, so that a default that several
// structs share is never written to.
func decodePointer(n *node, path string, target reflect.Value) error {
	if n.isNull() {
		target.SetZero()
		return nil
	}
	fresh := reflect.New(target.Type().Elem())
	if !target.IsNil() {
		fresh.Elem().Set(target.Elem())
	}
	if err := decode(n, path, fresh.Elem()); err != nil {
		return err
	}
	target.Set(fresh)
	return nil
}

func decodeText(n *node, path string, target encoding.TextUnmarshaler) error {
	if n.kind != scalar || n.isNull() {
		return wrongType(n, path, "a word or number")
	}
	if err := target.UnmarshalText([]byte(n.text)); err != nil {
		return fault.Inputf("%s: %s: %w", n.at, path, err)
	}
	return nil
}

func decodeDuration(n *node, path string, target reflect.Value) error {
	d, err := time.ParseDuration(n.text)
	if n.kind != scalar || err != nil {
		return wrongType(n, path, "a duration with its unit, such as 30s or 1h30m")
	}
	target.SetInt(int64(d))
	return nil
}

func decodeBool(n *node, path string, target reflect.Value) error {
	if n.kind != scalar || n.quoted || n.text != "true" && n.text != "false" {
		return wrongType(n, path, "true or false")
	}
	target.SetBool(n.text == "true")
	return nil
}

func decodeInt(n *node, path string, target reflect.Value) error {
	i, err := strconv.ParseInt(n.text, 10, 64)
	if n.kind != scalar || n.quoted || err != nil {
		return wrongType(n, path, "a whole number")
	}
	if target.OverflowInt(i) {
		return wrongType(n, path, fmt.Sprintf("a whole number of %d bits", target.Type().Bits()))
	}
	target.SetInt(i)
	return nil
}

func decodeUint(n *node, path string, target reflect.Value) error {
	u, err := strconv.ParseUint(n.text, 10, 64)
	if n.kind != scalar || n.quoted || err != nil {
		return wrongType(n, path, "a whole number, 0 or more")
	}
	if target.OverflowUint(u) {
		return wrongType(n, path, fmt.Sprintf("a whole number of %d bits, 0 or more", target.Type().Bits()))
	}
	target.SetUint(u)
	return nil
}

// decodeFloat takes decimal numbers alone: ParseFloat also reads hexadecimal
// ones and words such as "infinity".
func decodeFloat(n *node, path string, target reflect.Value) error {
	if n.kind != scalar || n.quoted {
		return wrongType(n, path, "a number")
	}
	if !isFinite(n.text) {
		return wrongType(n, path, "a finite number")
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if math.IsInf(f, 0) || target.OverflowFloat(f) {
		return wrongType(n, path, fmt.Sprintf("a number that float%d can hold", target.Type().Bits()))
	}
	if err != nil || strings.ContainsAny(n.text, "xX_pP") {
		return wrongType(n, path, "a number")
	}
	target.SetFloat(f)
	return nil
}

// isFinite is false for the spellings of infinity and not-a-number, YAML's
// and everybody else's.
func isFinite(text string) bool {
	switch strings.TrimLeft(strings.ToLower(text), "+-.") {
	case "inf", "infinity", "nan":
		return false
	}
	return true
}

// decodeSlice reads a list, which an override may give without its brackets:
// eval.metrics=r@1,r@5.
func decodeSlice(n *node, path string, target reflect.Value) error {
	if n.kind == scalar && !n.isNull() && !n.quoted && n.at.line == 0 {
		n = n.split()
	}
	if n.kind != list {
		return wrongType(n, path, "a list in brackets")
	}
	if len(n.items) == 0 {
		target.SetZero()
		return nil
	}
	fresh := reflect.MakeSlice(target.Type(), len(n.items), len(n.items))
	if err := decodeItems(n, path, fresh); err != nil {
		return err
	}
	target.Set(fresh)
	return nil
}

// split makes a list of words between commas.
func (n *node) split() *node {
	parts := &node{kind: list, at: n.at}
	for word := range strings.SplitSeq(n.text, ",") {
		parts.items = append(parts.items, &node{kind: scalar, text: strings.TrimSpace(word), at: n.at})
	}
	return parts
}

func decodeArray(n *node, path string, target reflect.Value) error {
	if n.kind != list {
		return wrongType(n, path, fmt.Sprintf("a list of %d", target.Len()))
	}
	if len(n.items) != target.Len() {
		return fault.Inputf("%s: %s: want a list of %d, got %d", n.at, path, target.Len(), len(n.items))
	}
	return decodeItems(n, path, target)
}

func decodeItems(n *node, path string, target reflect.Value) error {
	for i, item := range n.items {
		if err := decode(item, fmt.Sprintf("%s[%d]", path, i), target.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func decodeMap(n *node, path string, target reflect.Value) error {
	if target.Type().Key().Kind() != reflect.String {
		return fmt.Errorf("config: %s: a recipe cannot hold the type %s", path, target.Type())
	}
	if n.kind != mapping {
		return wrongType(n, path, "a mapping of keys")
	}
	fresh := reflect.MakeMapWithSize(target.Type(), len(n.entries))
	for _, e := range n.entries {
		value := reflect.New(target.Type().Elem()).Elem()
		if err := decode(e.value, join(path, e.key), value); err != nil {
			return err
		}
		fresh.SetMapIndex(reflect.ValueOf(e.key).Convert(target.Type().Key()), value)
	}
	target.Set(fresh)
	return nil
}
