package score

import (
	"strconv"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Options are how a loss is evaluated, whatever its equation. In a recipe they
// stand beside the loss's own parameters.
type Options struct {
	Self      string       `yaml:"self" in:"{exclude,include}"`       // a query's own entry in its batch: "exclude" it, or "include" it as a positive of score 1
	Normalize bool         `yaml:"normalize"`                         // scores are cosines; false: plain inner products
	Lone      string       `yaml:"lone" in:"{skip,fail}"`             // queries without a positive: "skip" and count them, or "fail"
	DType     string       `yaml:"dtype" in:"{auto,float32,float64}"` // of the scores: "auto" (float32; float64 for float64 embeddings), "float32", "float64"
	Chunk     Chunk        `yaml:"chunk" in:"[0,inf)"`                // queries a block; "auto": as many as are quickest within the budget
	Budget    config.Bytes `yaml:"budget"`                            // memory that scores and blocks may use beside one tile of scores, such as 512MiB
	Flatten   bool         `yaml:"flatten"`                           // all rows of given scores are one list

	Plain bool // tensor operations even where there is a kernel; the two agree to rounding
}

// Defaults are the options of a loss that says nothing else.
func Defaults() Options {
	return Options{Self: "exclude", Normalize: true, Lone: "skip", DType: "auto", Budget: config.GiB}
}

// Validate refuses a budget too small for a block.
func (o *Options) Validate() error {
	if o.Budget < config.MiB {
		return config.Invalid("budget", "is %s; give at least 1MiB", o.Budget)
	}
	return nil
}

// Work is the dtype of scores for embeddings of dtype in.
func (o *Options) Work(in torch.DType) torch.DType {
	if o.DType == "float64" || o.DType == "auto" && in == torch.Float64 {
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
