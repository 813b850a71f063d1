package optim

import (
	"math"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/registry"
)

// Schedule is how the learning rate changes over a run.
type Schedule interface {
	// Factor multiplies the learning rate in a step, counted from 0, of a run
	// of total steps. epoch is how many steps an epoch has. It depends on
	// nothing else.
	Factor(step, total, epoch int) float64
}

// Schedules holds the schedules by name.
var Schedules = registry.New[Schedule]("schedule")

func init() {
	Schedules.Register("constant", func() Schedule { return &Constant{} })
	Schedules.Register("multistep", func() Schedule { return &MultiStep{Gamma: 0.1} })
	Schedules.Register("cosine", func() Schedule { return &Cosine{} })
}

// WarmUp raises the factor from near 0 to the schedule's own over the first
// steps: in step t of the warm-up it is (t+1)/(steps+1) of it.
type WarmUp struct {
	Steps  int `yaml:"warmup_steps"`  // steps before which the rate rises from near 0
	Epochs int `yaml:"warmup_epochs"` // epochs, added to warmup_steps
}

// Validate refuses negative lengths.
func (w WarmUp) Validate() error {
	if w.Steps < 0 {
		return config.Invalid("warmup_steps", "must not be negative, it is %d", w.Steps)
	}
	if w.Epochs < 0 {
		return config.Invalid("warmup_epochs", "must not be negative, it is %d", w.Epochs)
	}
	return nil
}

// length is the number of steps that warm up.
func (w WarmUp) length(epoch int) int { return w.Steps + w.Epochs*epoch }

func (w WarmUp) scale(step, epoch int) float64 {
	if n := w.length(epoch); step < n {
		return float64(step+1) / float64(n+1)
	}
	return 1
}

// Constant keeps the learning rate.
type Constant struct {
	WarmUp `yaml:",inline"`
}

// Factor is 1 after the warm-up.
func (c *Constant) Factor(step, _, epoch int) float64 { return c.scale(step, epoch) }

// MultiStep multiplies the learning rate by Gamma at the beginning of each of
// some epochs, counted from 0.
type MultiStep struct {
	Milestones []int   `yaml:"milestones"` // epochs, from 0, at whose beginning the rate is multiplied
	Gamma      float64 `yaml:"gamma"`      // the factor
	WarmUp     `yaml:",inline"`
}

// Validate asks for ascending epochs and a positive gamma.
func (m *MultiStep) Validate() error {
	if !slices.IsSorted(m.Milestones) || len(m.Milestones) > 0 && m.Milestones[0] < 0 {
		return config.Invalid("milestones", "must be epochs in ascending order, they are %v", m.Milestones)
	}
	if !(m.Gamma > 0) {
		return config.Invalid("gamma", "must be positive, it is %g", m.Gamma)
	}
	return m.WarmUp.Validate()
}

// Factor is Gamma to the power of the milestones passed.
func (m *MultiStep) Factor(step, _, epoch int) float64 {
	passed := 0
	for _, e := range m.Milestones {
		if step >= e*epoch {
			passed++
		}
	}
	return m.scale(step, epoch) * math.Pow(m.Gamma, float64(passed))
}

// Cosine lowers the learning rate along half a cosine, from its full value
// after the warm-up to Floor of it behind the last step (Loshchilov and Hutter
// 2017, eq. 5, without restarts).
type Cosine struct {
	Floor  float64 `yaml:"floor"` // share of the rate that is left in the end
	WarmUp `yaml:",inline"`
}

// Validate asks for a floor within [0, 1].
func (c *Cosine) Validate() error {
	if !(c.Floor >= 0 && c.Floor <= 1) {
		return config.Invalid("floor", "must be in [0, 1], it is %g", c.Floor)
	}
	return c.WarmUp.Validate()
}

// Factor is floor + (1 - floor)·(1 + cos πt)/2, with t the share of the steps
// after the warm-up that are done.
func (c *Cosine) Factor(step, total, epoch int) float64 {
	warm := c.length(epoch)
	done := float64(max(step-warm, 0)) / float64(max(total-warm, 1))
	return c.scale(step, epoch) * (c.Floor + (1-c.Floor)*(1+math.Cos(math.Pi*min(done, 1)))/2)
}
