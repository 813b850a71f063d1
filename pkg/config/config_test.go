package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"roadmap/pkg/fault"
)

// recipe is a schema with one field of every kind that a recipe can hold.
type recipe struct {
	Seed      int64              `yaml:"seed"`
	Loss      Section            `yaml:"loss"`
	Optimizer Section            `yaml:"optimizer"`
	Train     training           `yaml:"train"`
	Metrics   []string           `yaml:"metrics"`
	Crop      [2]int             `yaml:"crop"`
	Weights   map[string]float64 `yaml:"weights"`
	Delta     *float64           `yaml:"delta"`
	Chunk     chunk              `yaml:"chunk"`
	Rounds    []training         `yaml:"rounds"`
	Cache     any                // no tag: not configuration
}

type training struct {
	Steps   int           `yaml:"steps"`
	Workers uint8         `yaml:"workers"`
	Rate    float32       `yaml:"rate"`
	Every   time.Duration `yaml:"every"`
	Amp     bool          `yaml:"amp"`
	Device  string        `yaml:"device"`
}

func (t *training) Validate() error {
	if t.Steps < 0 {
		return Invalid("steps", "must be at least 0, got %d", t.Steps)
	}
	return nil
}

// chunk reads itself: "auto" or a number of rows.
type chunk struct{ rows string }

func (c *chunk) UnmarshalText(text []byte) error {
	if c.rows = string(text); c.rows == "some" {
		return errors.New(`want auto or a number of rows, got "some"`)
	}
	return nil
}
func (c chunk) MarshalText() ([]byte, error) { return []byte(c.rows), nil }

func defaults() recipe {
	delta := 0.05
	return recipe{Loss: Named("supap"), Train: training{Steps: 100, Device: "auto"}, Delta: &delta, Chunk: chunk{"auto"}}
}

func mustParse(t *testing.T, text string) *Tree {
	t.Helper()
	tree, err := Parse("r.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// decodeRecipe decodes a recipe with overrides over the defaults.
func decodeRecipe(text string, overrides ...string) (recipe, error) {
	r := defaults()
	tree, err := Parse("r.yaml", []byte(text))
	if err == nil {
		err = tree.Override(overrides...)
	}
	if err == nil {
		err = tree.Decode(&r)
	}
	return r, err
}

// wantInputError compares the whole text of an input error.
func wantInputError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil:
		t.Fatalf("no error, want %q", want)
	case err.Error() != want:
		t.Errorf("error\n got %s\nwant %s", err, want)
	case !fault.IsInput(err):
		t.Errorf("%q is not marked as input", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}

func TestDecodeEveryKind(t *testing.T) {
	got, err := decodeRecipe(`
# a comment
seed: -7
loss: {name: roadmap, lambda: 0.3}
train:
  steps: 600
  workers: 255
  rate: 1e-3
  every: 1m30s
  amp: true
  device: "cuda:0"
metrics: [r@1, map@r, 5]
crop: [24, 28]
weights: {b: 2, a: .5}
delta: null
chunk: 64
rounds:
  - steps: 1
  - {steps: 2, amp: false}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got.Loss.Name != "roadmap" {
		t.Errorf("loss is %q", got.Loss.Name)
	}
	got.Loss = Section{}
	want := recipe{
		Seed:    -7,
		Train:   training{600, 255, 1e-3, 90 * time.Second, true, "cuda:0"},
		Metrics: []string{"r@1", "map@r", "5"},
		Crop:    [2]int{24, 28},
		Weights: map[string]float64{"a": 0.5, "b": 2},
		Chunk:   chunk{"64"},
		Rounds:  []training{{Steps: 1}, {Steps: 2}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAbsentKeysKeepDefaults(t *testing.T) {
	for _, text := range []string{"", "\n# nothing but this\n", "null", "{}", "train: {}"} {
		got, err := decodeRecipe(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if want := defaults(); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	}
}

func TestDecodeNeverWritesThroughASharedDefault(t *testing.T) {
	shared := 0.05
	r := recipe{Delta: &shared}
	if err := mustParse(t, "delta: 2").Decode(&r); err != nil {
		t.Fatal(err)
	}
	if shared != 0.05 || *r.Delta != 2 {
		t.Errorf("shared default is %v, decoded value %v", shared, *r.Delta)
	}
}

func TestDecodeErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "sead: 1", "r.yaml:1:1: unknown key sead; did you mean seed?"},
		{"unknown key far from all", "train:\n  colour: red", "r.yaml:2:3: unknown key train.colour (known: steps, workers, rate, every, amp, device)"},
		{"nested unknown key", "train:\n  stepss: 1", "r.yaml:2:3: unknown key train.stepss; did you mean train.steps?"},
		{"unknown key in a list", "rounds: [{steps: 1}, {step: 1}]", "r.yaml:1:23: unknown key rounds[1].step; did you mean rounds[1].steps?"},
		{"field without a tag", "cache: 1", "r.yaml:1:1: unknown key cache (known: seed, loss, optimizer, train, metrics, crop, weights, delta, chunk, rounds)"},
		{"key twice", "seed: 1\nloss: supap\nseed: 2", "r.yaml:3:1: key seed is given twice, first in line 1: remove one of them"},
		{"nested key twice", "train: {steps: 1, steps: 1}", "r.yaml:1:19: key steps is given twice, first in line 1: remove one of them"},
		{"word for a whole number", "train: {steps: many}", "r.yaml:1:16: train.steps: want a whole number, got many"},
		{"quoted number", `seed: "1"`, `r.yaml:1:7: seed: want a whole number, got "1" in quotes`},
		{"fraction for a whole number", "seed: 1.5", "r.yaml:1:7: seed: want a whole number, got 1.5"},
		{"list for a whole number", "seed: [1]", "r.yaml:1:7: seed: want a whole number, got a list"},
		{"nothing for a whole number", "seed:", "r.yaml:1:6: seed: want a whole number, got no value"},
		{"too large a whole number", "seed: 9223372036854775808", "r.yaml:1:7: seed: want a whole number, got 9223372036854775808"},
		{"too large for the field", "train: {workers: 256}", "r.yaml:1:18: train.workers: want a whole number of 8 bits, 0 or more, got 256"},
		{"negative count", "train: {workers: -1}", "r.yaml:1:18: train.workers: want a whole number, 0 or more, got -1"},
		{"word for a number", "train: {rate: fast}", "r.yaml:1:15: train.rate: want a number, got fast"},
		{"hexadecimal number", "train: {rate: 0x1p-2}", "r.yaml:1:15: train.rate: want a number, got 0x1p-2"},
		{"not a number", "train: {rate: .nan}", "r.yaml:1:15: train.rate: want a finite number, got .nan"},
		{"infinity", "train: {rate: -.Inf}", "r.yaml:1:15: train.rate: want a finite number, got -.Inf"},
		{"Go's infinity", "train: {rate: infinity}", "r.yaml:1:15: train.rate: want a finite number, got infinity"},
		{"infinite in float32", "train: {rate: 1e39}", "r.yaml:1:15: train.rate: want a number that float32 can hold, got 1e39"},
		{"infinite in float64", "delta: -1e999", "r.yaml:1:8: delta: want a number that float64 can hold, got -1e999"},
		{"yes for true", "train: {amp: yes}", "r.yaml:1:14: train.amp: want true or false, got yes"},
		{"duration without unit", "train: {every: 30}", "r.yaml:1:16: train.every: want a duration with its unit, such as 30s or 1h30m, got 30"},
		{"nothing for a text", "train: {device: }", "r.yaml:1:17: train.device: want a text, got no value"},
		{"mapping for a text", "train: {device: {cuda: 0}}", "r.yaml:1:17: train.device: want a text, got a mapping"},
		{"word for a list", "metrics: r@1,map@r", "r.yaml:1:10: metrics: want a list in brackets, got r@1,map@r"},
		{"wrong type inside a list", "metrics: [r@1, [map@r]]", "r.yaml:1:16: metrics[1]: want a text, got a list"},
		{"short list", "crop: [1]", "r.yaml:1:7: crop: want a list of 2, got 1"},
		{"word for a fixed list", "crop: 1", "r.yaml:1:7: crop: want a list of 2, got 1"},
		{"word for a mapping", "train: fast", "r.yaml:1:8: train: want a mapping of keys, got fast"},
		{"list for a map", "weights: [1]", "r.yaml:1:10: weights: want a mapping of keys, got a list"},
		{"wrong type inside a map", "weights: {a: b}", "r.yaml:1:14: weights.a: want a number, got b"},
		{"a type's own error", "chunk: some", `r.yaml:1:8: chunk: want auto or a number of rows, got "some"`},
		{"list for a word", "chunk: [1]", "r.yaml:1:8: chunk: want a word or number, got a list"},
		{"own validation", "train:\n  amp: true\n  steps: -1", "r.yaml:3:3: train: steps must be at least 0, got -1"},
		{"list for a section", "loss: [supap]", "r.yaml:1:7: loss: want the name of a component, or a mapping with its name and parameters, got a list"},
		{"nothing for a section", "loss:", "r.yaml:1:6: loss: want the name of a component, or a mapping with its name and parameters, got no value"},
		{"section without a name", "optimizer: {lr: 1}", "r.yaml:1:12: optimizer: want the name of a component, or a mapping with its name and parameters, got a mapping without a name"},
		{"section with a list for a name", "loss: {name: [a]}", "r.yaml:1:14: loss.name: want the name of a component, got a list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeRecipe(c.text)
			wantInputError(t, err, c.want)
		})
	}
}

func TestParseErrors(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, c := range []struct{ name, text, want string }{
		{"a word", "fast", `r.yaml:1:1: want keys with values such as "seed: 1", got fast`},
		{"a list", "- 1", `r.yaml:1:1: want keys with values such as "seed: 1", got a list`},
		{"broken list", "seed: [1,\nloss: supap", "r.yaml:3:1: not valid YAML: did not find expected ',' or ']'"},
		{"tab", "train:\n\tsteps: 1", "r.yaml:2:1: not valid YAML: found character that cannot start any token"},
		{"two documents", "seed: 1\n---\nseed: 2", "r.yaml: not valid YAML: expected single document, found multiple"},
		{"anchor", "seed: &s 1", `r.yaml:1:7: anchors (&) and aliases (*) are not used in recipes: write the value out, or inherit with "base: RECIPE"`},
		{"merge key", "<<: {seed: 1}", `r.yaml:1:1: merge keys (<<) are not used in recipes: inherit with "base: RECIPE"`},
		{"tag", "seed: !!int 1", "r.yaml:1:7: the tag !!int is not used in recipes: leave it out"},
		{"list as key", "[a]: 1", "r.yaml:1:1: a key must be one word, got a list"},
		{"depth", "seed: " + deep, "r.yaml:1:38: values nested deeper than 32 levels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("r.yaml", []byte(c.text))
			wantInputError(t, err, c.want)
		})
	}
}

// Mistakes in a schema are the program's, not the user's.
func TestSchemaMistakesAreNotInputErrors(t *testing.T) {
	for name, into := range map[string]any{
		"not a pointer": recipe{},
		"nil":           (*recipe)(nil),
		"not a struct":  new(int),
		"a channel": &struct {
			C chan int `yaml:"seed"`
		}{},
		"map keyed by ints": &struct {
			M map[int]int `yaml:"seed"`
		}{},
		"unexported": &struct {
			seed int `yaml:"seed"`
		}{},
		"unknown option": &struct {
			S int `yaml:"seed,omitempty"`
		}{},
		"one key twice": &struct {
			A int `yaml:"seed"`
			B int `yaml:"seed"`
		}{},
	} {
		t.Run(name, func(t *testing.T) {
			if err := mustParse(t, "seed: {}").Decode(into); err == nil || fault.IsInput(err) {
				t.Errorf("error %v, want one that is not the user's", err)
			}
		})
	}
}

// A struct checks itself even when the recipe does not mention it, and inlined
// structs check themselves too.
func TestValidateRunsForAbsentAndInlinedStructs(t *testing.T) {
	absent := struct {
		Train training `yaml:"train"`
	}{training{Steps: -5}}
	err := mustParse(t, "{}").Decode(&absent)
	wantInputError(t, err, "r.yaml:1:1: train: steps must be at least 0, got -5")

	var inlined struct {
		training `yaml:"-"`
		Inner    training `yaml:",inline"`
		Extra    int      `yaml:"extra"`
	}
	if err := mustParse(t, "steps: 3\nextra: 4").Decode(&inlined); err != nil {
		t.Fatal(err)
	}
	if inlined.Inner.Steps != 3 || inlined.Extra != 4 {
		t.Errorf("got %+v", inlined)
	}
	wantInputError(t, mustParse(t, "steps: -3").Decode(&inlined), "r.yaml:1:1: steps must be at least 0, got -3")
}
