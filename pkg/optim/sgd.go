package optim

import (
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

func init() {
	Registry.Register("sgd", func() Config { return &SGD{LR: 0.1} })
}

// SGD is stochastic gradient descent: b ← momentum·b + g, w ← w - lr·b, where
// the gradient g includes weight_decay·w. With Nesterov's momentum the step is
// along g + momentum·b.
type SGD struct {
	LR          float64 `yaml:"lr"`           // learning rate
	Momentum    float64 `yaml:"momentum"`     // share of the last step that is kept, in [0, 1)
	Nesterov    bool    `yaml:"nesterov"`     // momentum as Nesterov has it
	WeightDecay float64 `yaml:"weight_decay"` // times the weights, added to the gradient
}

// Validate refuses what has no meaning.
func (c *SGD) Validate() error {
	if !(c.Momentum >= 0 && c.Momentum < 1) {
		return config.Invalid("momentum", "must be in [0, 1), it is %g", c.Momentum)
	}
	if c.Nesterov && c.Momentum == 0 {
		return config.Invalid("nesterov", "needs a momentum above 0")
	}
	return checkRate(c.LR, c.WeightDecay)
}

// New makes the optimiser, momentum at zero, in scope s.
func (c *SGD) New(s *torch.Scope, groups []Group) (*Optimizer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return newOptimizer(c.LR, c.WeightDecay, groups, func(p *part) (err error) {
		var momentum []*torch.Tensor
		if c.Momentum > 0 {
			if momentum, err = p.slot(s, "momentum_buffer"); err != nil {
				return err
			}
		}
		p.step = func(lr, decay float64) error {
			o := torch.SGDOptions{LR: lr, Momentum: c.Momentum, Nesterov: c.Nesterov, WeightDecay: decay}
			return torch.SGDStep(p.params, momentum, o, nil, nil)
		}
		return nil
	})
}
