package config

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

func full() recipe {
	third := 1.0 / 3
	return recipe{
		Seed:      math.MinInt64,
		Loss:      Named("supap"),
		Optimizer: Named("adam"),
		Train:     training{600, 3, 0.1, 90 * time.Second, true, "true"},
		Metrics:   []string{"r@1", "", "null", "007", "a: b", "#", "é\n\"x\"", " blank ", "yes"},
		Crop:      [2]int{1, 2},
		Weights:   map[string]float64{"b": math.MaxFloat64, "a": math.SmallestNonzeroFloat64, "1": 1e21},
		Delta:     &third,
		Chunk:     chunk{"auto"},
		Rounds:    []training{{Steps: 1, Device: "cpu"}, {}},
	}
}

func TestMarshalText(t *testing.T) {
	got, err := Marshal(full())
	if err != nil {
		t.Fatal(err)
	}
	const want = `seed: -9223372036854775808
loss: supap
optimizer: adam
train:
  steps: 600
  workers: 3
  rate: 0.1
  every: 1m30s
  amp: true
  device: 'true'
metrics: [r@1, '', 'null', '007', 'a: b', '#', "é\n\"x\"", ' blank ', yes]
crop: [1, 2]
weights:
  '1': 1e+21
  a: 5e-324
  b: 1.7976931348623157e+308
delta: 0.3333333333333333
chunk: auto
rounds:
- steps: 1
  workers: 0
  rate: 0
  every: 0s
  amp: false
  device: cpu
- steps: 0
  workers: 0
  rate: 0
  every: 0s
  amp: false
  device: ''
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMarshalRoundTrip(t *testing.T) {
	for name, want := range map[string]recipe{"full": full(), "defaults": defaults(), "zero": {Loss: Named("ap"), Optimizer: Named("sgd")}} {
		t.Run(name, func(t *testing.T) {
			if want.Optimizer.Name == "" {
				want.Optimizer = Named("adam")
			}
			text, err := Marshal(&want)
			if err != nil {
				t.Fatal(err)
			}
			got := full() // every field holds something that must be replaced
			if err := mustParse(t, string(text)).Decode(&got); err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			got.Loss, got.Optimizer = Named(got.Loss.Name), Named(got.Optimizer.Name) // without their places
			if len(want.Weights) == 0 && len(got.Weights) == 0 {
				got.Weights = want.Weights
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v\nfrom\n%s", got, want, text)
			}
			again, err := Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != string(text) {
				t.Errorf("second text\n%s\nfirst\n%s", again, text)
			}
		})
	}
}

func TestMarshalRefusesWhatItCouldNotRead(t *testing.T) {
	nan := math.NaN()
	for name, v := range map[string]any{
		"nan":      recipe{Delta: &nan},
		"infinity": training{Rate: float32(math.Inf(-1))},
		"a channel": struct {
			C chan int `yaml:"c"`
		}{},
		"not a struct": 3,
		"ints as keys": struct {
			M map[int]int `yaml:"m"`
		}{},
		"nil":           nil,
		"nil of a type": (*recipe)(nil),
		"inside a list": struct {
			L []float64 `yaml:"l"`
		}{[]float64{nan}},
		"inside a map": recipe{Weights: map[string]float64{"a": nan}},
		"inside a field": struct {
			T training `yaml:"t"`
		}{training{Rate: float32(nan)}},
	} {
		if text, err := Marshal(v); err == nil {
			t.Errorf("%s: written as %q", name, text)
		}
	}
}

func TestValuesAndPairs(t *testing.T) {
	v := struct {
		Tau   float64  `yaml:"tau"`
		Kind  string   `yaml:"kind"`
		Delta *float64 `yaml:"delta"`
		On    bool     `yaml:"on"`
		Chunk chunk    `yaml:"chunk"`
		Rows  chunk    `yaml:"rows"`
		List  []int    `yaml:"list"`
		Train struct {
			Steps int `yaml:"steps"`
		} `yaml:"train"`
	}{Tau: 1e-7, Kind: "007", On: true, Chunk: chunk{"auto"}, Rows: chunk{"64"}, List: []int{1, 2}}
	values, err := Values(v)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"chunk":"auto","delta":null,"kind":"007","list":[1,2],"on":true,"rows":64,"tau":1e-07,"train":{"steps":0}}`
	if string(text) != want {
		t.Errorf("Values: got %s, want %s", text, want)
	}
	pairs, err := Pairs(&v)
	if err != nil {
		t.Fatal(err)
	}
	wantPairs := []Pair{{"tau", "1e-07"}, {"kind", "'007'"}, {"delta", "null"}, {"on", "true"}, {"chunk", "auto"}, {"rows", "64"}, {"list", "[1, 2]"}, {"train.steps", "0"}}
	if !slices.Equal(pairs, wantPairs) {
		t.Errorf("Pairs: got %v, want %v", pairs, wantPairs)
	}
}
