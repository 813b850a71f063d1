package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Check refuses fields of a struct, and of those inlined in it, that are not in
// the set that their tag "in" states, and what their Validate refuses:
//
//	`in:"(0,inf)"`          numbers of an interval, its ends in [ ] or out ( )
//	`in:"{paper,released}"` words
//
// A nil pointer is unset and not looked at; every element of a slice, of which
// there must be one, is. Infinite ends stand for what float32 holds, and 0
// outside an interval for its smallest normal number, so that a parameter and
// its reciprocal mean the same in float32 and float64. Decode checks what it has
// set.
func Check(v any) error {
	s, err := structBehind(v)
	if err != nil {
		return err
	}
	if err := checkFields(s); err != nil {
		return err
	}
	return ownValidate(s)
}

func checkFields(s reflect.Value) error {
	fields, err := fieldsOf(s)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if f.in == "" {
			continue
		}
		if err := checkField(f.key, fmt.Sprint(f.value.Interface()), f.value, f.in); err != nil {
			return err
		}
	}
	return nil
}

// checkField checks a value; given is the whole field in print.
func checkField(key, given string, v reflect.Value, in string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return checkField(key, fmt.Sprint(v.Elem().Interface()), v.Elem(), in)
	case reflect.Slice:
		if v.Len() == 0 {
			return Invalid(key, "is []; give at least one")
		}
		for i := range v.Len() {
			if err := checkField(key, given, v.Index(i), in); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		words := strings.Split(strings.Trim(in, "{}"), ",")
		for _, w := range words {
			if v.String() == w {
				return nil
			}
		}
		last := len(words) - 1
		return Invalid(key, "is %q; give %s or %s", v.String(), strings.Join(words[:last], ", "), words[last])
	}
	low, high, err := interval(in)
	if err != nil {
		return fmt.Errorf("config: %s: %w", key, err)
	}
	x := 0.0
	switch {
	case v.CanInt():
		x = float64(v.Int())
	case v.CanFloat():
		x = v.Float()
	default:
		return fmt.Errorf("config: %s: a %s has no interval", key, v.Type())
	}
	if low.includes(x, 1) && high.includes(x, -1) {
		return nil
	}
	want := fmt.Sprintf("a number between %s and %s", low, high)
	if v.CanInt() {
		want = fmt.Sprintf("at least %s", low)
		if !math.IsInf(high.at, 1) {
			want += fmt.Sprintf(" and at most %s", high)
		}
	} else if low.at == 0 && low.open {
		want = "a number above 0, between " + low.String() + " and " + high.String()
	}
	return Invalid(key, "is %s; give %s", given, want)
}

// end is one end of an interval.
type end struct {
	at   float64
	open bool
}

// value is the number that an end stands for.
func (e end) value() float64 {
	switch {
	case math.IsInf(e.at, 0):
		return math.Copysign(math.MaxFloat32, e.at)
	case e.at == 0 && e.open:
		return 0x1p-126 // the smallest normal number of float32
	}
	return e.at
}

// includes says whether x is on the inner side of the end, which is up for +1.
func (e end) includes(x, direction float64) bool {
	d := (x - e.value()) * direction
	return d > 0 || d == 0 && (!e.open || e.value() != e.at)
}

func (e end) String() string { return fmt.Sprintf("%.3g", e.value()) }

// interval reads "[0,1)".
func interval(text string) (low, high end, err error) {
	a, b, found := strings.Cut(text, ",")
	if !found || len(a) < 2 || len(b) < 2 {
		return low, high, fmt.Errorf("%q is not an interval", text)
	}
	low.open, high.open = a[0] == '(', b[len(b)-1] == ')'
	if low.at, err = strconv.ParseFloat(a[1:], 64); err != nil {
		return low, high, err
	}
	high.at, err = strconv.ParseFloat(b[:len(b)-1], 64)
	return low, high, err
}
