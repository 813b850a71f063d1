package config_test

import (
	"fmt"

	"roadmap/pkg/config"
	"roadmap/pkg/registry"
)

// A recipe is a struct; its yaml tags are the keys, its values the defaults.
type recipe struct {
	Seed  int64          `yaml:"seed"`
	Cache config.Bytes   `yaml:"cache"`
	Loss  config.Section `yaml:"loss"`
}

// A component is a struct too, and may refuse values.
type triplet struct {
	Margin float64 `yaml:"margin"`
}

func (l *triplet) Validate() error {
	if l.Margin <= 0 {
		return config.Invalid("margin", "is %g; give a number above 0", l.Margin)
	}
	return nil
}

// A recipe with overrides from the command line, written back in full.
func Example() {
	losses := registry.New[*triplet]("loss")
	losses.Register("triplet", func() *triplet { return &triplet{Margin: 0.1} })

	tree, err := config.Parse("mine.yaml", []byte("seed: 1\nloss: triplet\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := tree.Override("loss.margin=0.2", "cache=512MiB"); err != nil {
		fmt.Println(err)
		return
	}
	r := recipe{Cache: config.GiB}
	if err := tree.Decode(&r); err != nil {
		fmt.Println(err)
		return
	}
	loss, err := config.Resolve(losses, &r.Loss)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := config.Marshal(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("margin %g\n%s", loss.Margin, text)
	// Output:
	// margin 0.2
	// seed: 1
	// cache: 512MiB
	// loss:
	//   name: triplet
	//   margin: 0.2
}

// An error names the file, the line and the column of the key.
func ExampleInvalid() {
	losses := registry.New[*triplet]("loss")
	losses.Register("triplet", func() *triplet { return &triplet{} })
	tree, err := config.Parse("mine.yaml", []byte("loss:\n  name: triplet\n  margin: -1\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	var r recipe
	if err := tree.Decode(&r); err != nil {
		fmt.Println(err)
		return
	}
	_, err = config.Build(losses, r.Loss)
	fmt.Println(err)
	// Output: mine.yaml:3:3: loss: margin is -1; give a number above 0
}

func ExampleBytes() {
	var memory config.Bytes
	if err := memory.UnmarshalText([]byte("1.5GiB")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(memory, int64(memory))
	// Output: 1536MiB 1610612736
}
