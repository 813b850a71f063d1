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

// finite refuses NaN and infinities; its arguments are names and values in turn.
func finite(pairs ...any) error {
	for i := 0; i < len(pairs); i += 2 {
		if v := pairs[i+1].(float64); math.IsNaN(v) || math.IsInf(v, 0) {
			return fault.Inputf("%s is %g; give a finite number", pairs[i], v)
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
