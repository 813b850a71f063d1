package losses

import (
	"math"

	"roadmap/pkg/fault"
)

// validateAll returns the first refusal.
func validateAll(parts ...interface{ Validate() error }) error {
	for _, p := range parts {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Parameters lie within the normal numbers of float32, whatever the dtype of
// the scores: it holds each of them and its reciprocal.
const smallest, largest = 0x1p-126, math.MaxFloat32

// finite refuses NaN and what is out of range; its arguments are names and
// values in turn.
func finite(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if v := pairs[i+1].(float64); !(math.Abs(v) <= largest) {
			return fault.Inputf("%s is %g; give a number between %.3g and %.3g", pairs[i], v, -largest, largest)
		}
	}
	return nil
}

// positive refuses what cannot be divided by; its arguments are those of finite.
func positive(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if v := pairs[i+1].(float64); !(v >= smallest && v <= largest) {
			return fault.Inputf("%s is %g; give a number above 0, between %.3g and %.3g", pairs[i], v, smallest, largest)
		}
	}
	return nil
}

// or is *p, or the default where p is unset.
func or(p *float64, unset float64) float64 {
	if p == nil {
		return unset
	}
	return *p
}
