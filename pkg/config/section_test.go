package config

import (
	"fmt"
	"strings"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

type loss interface{ value() string }

type supap struct {
	Tau float64 `yaml:"tau"`
	Rho float64 `yaml:"rho"`
}

func (l *supap) value() string { return fmt.Sprintf("tau %g rho %g", l.Tau, l.Rho) }
func (l *supap) Validate() error {
	if l.Tau <= 0 {
		return Invalid("tau", "must be above 0, got %g", l.Tau)
	}
	return nil
}

type plain struct{}

func (plain) value() string { return "plain" }

func losses() *registry.Registry[loss] {
	r := registry.New[loss]("loss")
	r.Register("supap", func() loss { return &supap{Tau: 0.01, Rho: 100} })
	r.Register("ap", func() loss { return &plain{} })
	r.Register("broken", func() loss { return plain{} })
	return r
}

func sectionOf(t *testing.T, text string, overrides ...string) Section {
	t.Helper()
	r, err := decodeRecipe(text, overrides...)
	if err != nil {
		t.Fatal(err)
	}
	return r.Loss
}

func TestBuild(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"loss: supap", "tau 0.01 rho 100"},
		{"loss: {name: supap, tau: 0.02}", "tau 0.02 rho 100"},
		{"loss: {tau: 0.02}", "tau 0.02 rho 100"}, // the schema's default name
		{"", "tau 0.01 rho 100"},
		{"loss: ap", "plain"},
	} {
		got, err := Build(losses(), sectionOf(t, c.text))
		if err != nil {
			t.Fatalf("%q: %v", c.text, err)
		}
		if got.value() != c.want {
			t.Errorf("%q: got %s, want %s", c.text, got.value(), c.want)
		}
	}
}

func TestBuildErrors(t *testing.T) {
	for _, c := range []struct{ text, override, want string }{
		{"loss: suppap", "", `r.yaml:1:7: loss: unknown loss "suppap"; did you mean "supap"? (known: ap, broken, supap)`},
		{"loss:\n  tau: 1\n  name: suppap", "", `r.yaml:3:9: loss: unknown loss "suppap"; did you mean "supap"? (known: ap, broken, supap)`},
		{"loss: {name: supap, tua: 0.02}", "", "r.yaml:1:21: unknown key loss.tua; did you mean loss.tau?"},
		{"loss: {name: supap, tau: hot}", "", "r.yaml:1:26: loss.tau: want a number, got hot"},
		{"loss: {name: supap, tau: -1}", "", "r.yaml:1:21: loss: tau must be above 0, got -1"},
		{"loss: {name: ap, tau: 1}", "", "r.yaml:1:18: unknown key loss.tau: no keys are taken here"},
		{"loss: supap", "loss.tua=0.02", `override "loss.tua=0.02": unknown key loss.tua; did you mean loss.tau?`},
		{"loss: supap", "loss=app", `override "loss=app": loss: unknown loss "app"; did you mean "ap"? (known: ap, broken, supap)`},
	} {
		t.Run(c.text+c.override, func(t *testing.T) {
			overrides := []string{c.override}
			if c.override == "" {
				overrides = nil
			}
			_, err := Build(losses(), sectionOf(t, c.text, overrides...))
			wantInputError(t, err, c.want)
		})
	}
	_, err := Build(losses(), Section{})
	wantInputError(t, err, "no name given (known: ap, broken, supap)")
	if _, err := Build(losses(), Named("broken")); err == nil || fault.IsInput(err) {
		t.Errorf("a component that cannot be configured gave %v", err)
	}
}

func TestAssign(t *testing.T) {
	s, err := Assign("supap", "tau=0.5", "rho=2")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Build(losses(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got.value() != "tau 0.5 rho 2" {
		t.Errorf("got %s", got.value())
	}
	for _, c := range []struct{ name, assignment, want string }{
		{"supap", "tua=1", `parameter "tua=1": unknown key tua; did you mean tau?`},
		{"supap", "tau=-1", `parameter "tau=-1": tau must be above 0, got -1`},
		{"ap", "tau=1", `parameter "tau=1": unknown key tau: no keys are taken here`},
		{"supap", "name=ap", `parameter "name=ap": unknown key name (known: tau, rho)`},
	} {
		s, err := Assign(c.name, c.assignment)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Build(losses(), s)
		wantInputError(t, err, c.want)
	}
	_, err = Assign("supap", "tau")
	wantInputError(t, err, `parameter "tau": want key=value`)
}

func TestResolveFillsInDefaults(t *testing.T) {
	s := sectionOf(t, "loss: {name: supap, tau: 0.02}")
	if _, err := Resolve(losses(), &s); err != nil {
		t.Fatal(err)
	}
	text, err := Marshal(struct {
		Loss Section `yaml:"loss"`
	}{s})
	if err != nil {
		t.Fatal(err)
	}
	if want := "loss:\n  name: supap\n  tau: 0.02\n  rho: 100\n"; string(text) != want {
		t.Errorf("got %q, want %q", text, want)
	}
	again, err := Build(losses(), sectionOf(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if again.value() != "tau 0.02 rho 100" {
		t.Errorf("read back: %s", again.value())
	}
	bad := sectionOf(t, "loss: nothing")
	if _, err := Resolve(losses(), &bad); !fault.IsInput(err) || !strings.Contains(err.Error(), "r.yaml:1:7") {
		t.Errorf("got %v", err)
	}
}

// margin shares tau with supap, with another range and another default.
type margin struct {
	Tau   float64 `yaml:"tau" in:"[0,1]"`
	Width float64 `yaml:"width"`
}

func (l *margin) value() string { return fmt.Sprintf("tau %g width %g", l.Tau, l.Width) }

func TestAnotherComponentKeepsWhatItShares(t *testing.T) {
	r := losses()
	r.Register("margin", func() loss { return &margin{Tau: 0.5, Width: 3} })
	for _, c := range []struct {
		text, overrides, want, inherited string
	}{
		{"loss: {name: supap, tau: 0.02, rho: 7}", "loss=margin", "tau 0.02 width 3", "kept tau=0.02; dropped rho=7"},
		{"loss: {name: supap, tau: 0.02, rho: 7}", "loss=margin loss.tau=0.1", "tau 0.1 width 3", "dropped rho=7"},
		{"loss: {name: supap, tau: 0.02}", "loss.name=margin", "tau 0.02 width 3", "kept tau=0.02"},
		{"loss: {name: supap, tau: 2}", "loss=margin", "tau 0.5 width 3", "dropped tau=2"}, // out of its range
		{"loss: {tau: 0.02}", "loss=margin", "tau 0.02 width 3", "kept tau=0.02"},          // of the default component
		{"loss: {name: margin, tau: 0, width: 5}", "loss=supap", "tau 0.01 rho 100", "dropped tau=0, width=5"},
		{"loss: {name: supap, tau: 0.02}", "loss=ap", "plain", "dropped tau=0.02"},
		{"loss: {name: supap, tau: 0.02}", "loss=supap", "tau 0.02 rho 100", ""},
		{"loss: supap", "loss=margin", "tau 0.5 width 3", ""},
	} {
		s := sectionOf(t, c.text, strings.Fields(c.overrides)...)
		got, err := Resolve(r, &s)
		if err != nil {
			t.Errorf("%s %s: %v", c.text, c.overrides, err)
			continue
		}
		if got.value() != c.want || s.Inherited() != c.inherited {
			t.Errorf("%s %s: %s, %q; want %s, %q", c.text, c.overrides, got.value(), s.Inherited(), c.want, c.inherited)
		}
		if again, err := Resolve(r, &s); err != nil || again.value() != c.want || s.Inherited() != c.inherited {
			t.Errorf("%s %s, resolved again: %v, %q, %v", c.text, c.overrides, again, s.Inherited(), err)
		}
	}
	// What is given for the component itself is held to its keys.
	s := sectionOf(t, "loss: {name: supap, tau: 0.02}", "loss=margin", "loss.rho=3")
	_, err := Resolve(r, &s)
	wantInputError(t, err, `override "loss.rho=3": unknown key loss.rho (known: tau, width)`)
}
