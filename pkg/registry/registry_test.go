package registry

import (
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault"
)

type part struct{ size int }

func parts() *Registry[*part] {
	r := New[*part]("part")
	r.Register("wheel", func() *part { return &part{size: 4} })
	r.Register("axle", func() *part { return &part{size: 2} })
	return r
}

func TestMakeConstructsANewComponentEachTime(t *testing.T) {
	r := parts()
	first, err := r.Make("wheel")
	if err != nil {
		t.Fatal(err)
	}
	if first.size != 4 {
		t.Errorf("defaults of the constructor are lost: %+v", first)
	}
	first.size = 99
	second, err := r.Make("wheel")
	if err != nil {
		t.Fatal(err)
	}
	if second.size != 4 {
		t.Error("two components of one name share their settings")
	}
}

func TestNamesAreSorted(t *testing.T) {
	if got := parts().Names(); !slices.Equal(got, []string{"axle", "wheel"}) {
		t.Errorf("Names() = %v", got)
	}
}

func TestUnknownNameIsAnInputErrorThatHelps(t *testing.T) {
	_, err := parts().Make("whell")
	if !fault.IsInput(err) {
		t.Fatalf("%v is not an input error", err)
	}
	for _, part := range []string{`part "whell"`, `did you mean "wheel"`, "axle, wheel"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
	_, err = parts().Make("carburettor")
	if strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a far word got a suggestion: %v", err)
	}
}

func TestRegisterPanicsAtStart(t *testing.T) {
	for name, register := range map[string]func(*Registry[*part]){
		"double name": func(r *Registry[*part]) { r.Register("wheel", func() *part { return nil }) },
		"empty name":  func(r *Registry[*part]) { r.Register("", func() *part { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			register(parts())
		})
	}
}

func TestNearest(t *testing.T) {
	words := []string{"balanced", "batch", "epsilon", "learning_rate", "rho", "supap", "tau"}
	cases := []struct {
		word, want string // want "": no suggestion
	}{
		{"suppap", "supap"},                // one letter too many
		{"uspap", "supap"},                 // two neighbours swapped count once
		{"Tau", "tau"},                     // letter case
		{"learning-rate", "learning_rate"}, // separator
		{"learningrate", "learning_rate"},
		{"eps", "epsilon"}, // beginning of a longer word
		{"rh", "rho"},      // a short word may differ by one letter
		{"xyz", ""},
		{"", ""},
		{"temperature", ""},
	}
	for _, c := range cases {
		got, ok := Nearest(c.word, words)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("Nearest(%q) = %q, %v; want %q", c.word, got, ok, c.want)
		}
	}
	if got, _ := Nearest("ta", []string{"tau", "tab"}); got != "tau" {
		t.Errorf("a tie went to the later word %q", got)
	}
	if _, ok := Nearest("tau", nil); ok {
		t.Error("a suggestion out of no words")
	}
}

func TestDistance(t *testing.T) {
	cases := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"", "abc", 3}, {"abc", "", 3},
		{"kitten", "sitting", 3}, // k→s, e→i, +g
		{"ab", "ba", 1},          // one swap
		{"naïve", "naive", 1},    // runes, not bytes
	}
	for _, c := range cases {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d (symmetry)", c.b, c.a, got, c.want)
		}
	}
}
