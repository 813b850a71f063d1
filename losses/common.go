package losses

import (
	"fmt"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Common are the keys that every loss has. A loss embeds it.
type Common struct {
	Self      string `yaml:"self"`      // a query's own entry in its batch: "exclude" it, or "include" it as a positive of score 1
	Normalize bool   `yaml:"normalize"` // scores are cosines; false: plain inner products
	Lone      string `yaml:"lone"`      // queries without a positive: "skip" and count them, or "fail"
	DType     string `yaml:"dtype"`     // of the scores: "auto" (float32; float64 for float64 embeddings), "float32", "float64"
	Chunk     Chunk  `yaml:"chunk"`     // queries a block; "auto": as many as the budget holds
	Budget    Bytes  `yaml:"budget"`    // memory that scores and blocks may use beside one tile of scores, such as 512MiB
	Flatten   bool   `yaml:"flatten"`   // all rows of given scores are one list
	Memory    Memory `yaml:"memory"`    // embeddings of earlier steps in the gallery
}

// common are the defaults.
func common() Common {
	return Common{Self: "exclude", Normalize: true, Lone: "skip", DType: "auto", Budget: 1 << 30, Memory: Memory{Combine: "union"}}
}

// Shared implements Loss for the struct that embeds c.
func (c *Common) Shared() *Common { return c }

// Validate refuses values that the keys do not have.
func (c *Common) Validate() error {
	switch {
	case c.Self != "exclude" && c.Self != "include":
		return fault.Inputf("self is %q; give exclude or include", c.Self)
	case c.Lone != "skip" && c.Lone != "fail":
		return fault.Inputf("lone is %q; give skip or fail", c.Lone)
	case c.DType != "auto" && c.DType != "float32" && c.DType != "float64":
		return fault.Inputf("dtype is %q; give auto, float32 or float64", c.DType)
	case c.Chunk < 0:
		return fault.Inputf("chunk is %d; give the queries of a block, or auto", c.Chunk)
	case c.Budget < 1<<20:
		return fault.Inputf("budget is %s; give at least 1MiB", c.Budget)
	}
	return c.Memory.Validate()
}

// work is the dtype of scores for embeddings of dtype in.
func (c *Common) work(in torch.DType) torch.DType {
	if c.DType == "float64" || c.DType == "auto" && in == torch.Float64 {
		return torch.Float64
	}
	return torch.Float32
}

// Chunk is a number of queries; 0, written "auto", leaves it to the budget.
type Chunk int

// UnmarshalText reads a whole number or auto.
func (c *Chunk) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*c = 0
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil {
		return fault.Inputf("want a number of queries or auto, got %q", text)
	}
	*c = Chunk(n)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (c Chunk) MarshalText() ([]byte, error) {
	if c == 0 {
		return []byte("auto"), nil
	}
	return strconv.AppendInt(nil, int64(c), 10), nil
}

// Bytes is an amount of memory, written with a binary unit: 512MiB.
type Bytes int64

var byteUnits = []struct {
	name string
	size Bytes
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText reads a number with one of the units B, KiB, MiB, GiB.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	for _, u := range byteUnits {
		number, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0 && n*float64(u.size) < 1<<62) {
			break
		}
		*b = Bytes(n * float64(u.size))
		return nil
	}
	return fault.Inputf("want an amount of memory such as 512MiB, got %q", text)
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String is the amount in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b >= u.size && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}
