package config

import (
	"bytes"
	"strings"
	"testing"

	"roadmap/pkg/fault"
)

// FuzzDecode: whatever the text and the override, there is a configuration or
// an input error on one line, never a panic; and what was read is written so
// that it reads the same again.
func FuzzDecode(f *testing.F) {
	written, err := Marshal(full())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(written), "loss.tau=0.1")
	f.Add("loss: {name: roadmap, lambda: [1, {a: 'b'}]}", "loss=supap")
	f.Add("optimizer: &a {x: *a}\n<<: *a", "a.b.c={}")
	f.Add("metrics: |\n  r@1\n", "metrics=[r@1, \"\\x00\\u2028\"]")
	f.Add("weights: {\"a\\tb\": 1, ? b : 2}", "weights.c=.inf")
	f.Add("\ufeffseed: 1\r\n---\r\n", "seed=0x1")
	f.Fuzz(func(t *testing.T, text, override string) {
		got, err := decodeRecipe(text, override)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("%v is not an input error", err)
			}
			return
		}
		if got.Optimizer.Name == "" {
			got.Optimizer = Named("adam") // the schema has no default, so it must be there to be read
		}
		first, err := Marshal(got)
		if err != nil {
			t.Fatalf("written: %v", err)
		}
		again := recipe{}
		tree, err := Parse("written", first)
		if err == nil {
			err = tree.Decode(&again)
		}
		if err != nil {
			t.Fatalf("read again: %v\n%s", err, first)
		}
		second, err := Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("first\n%s\nsecond\n%s", first, second)
		}
	})
}

// FuzzOverrideError: an error of an override is one line and quotes it.
func FuzzOverrideError(f *testing.F) {
	f.Add("train.steps", "many")
	f.Add("a.b", "[1,")
	f.Add("seed", "{a: 1, a: 2}")
	f.Fuzz(func(t *testing.T, key, value string) {
		if strings.ContainsAny(key+value, "\r\n") {
			t.Skip("a line break of the user's own")
		}
		tree := Empty()
		err := tree.Override(key + "=" + value)
		if err == nil {
			r := defaults()
			err = tree.Decode(&r)
		}
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), `override "`+key) {
			t.Fatalf("error %q", err)
		}
	})
}
