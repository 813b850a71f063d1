package optim

import (
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

func init() {
	Registry.Register("adam", func() Config { return newAdam(0, false) })
	Registry.Register("adamw", func() Config { return newAdam(0.01, true) })
}

// Adam is the method of Kingma and Ba (2015), algorithm 1. Its weight decay is
// added to the gradient; that of adamw shrinks the weights themselves by
// lr·weight_decay (Loshchilov and Hutter 2019, algorithm 2).
type Adam struct {
	LR          float64 `yaml:"lr"`           // learning rate
	Beta1       float64 `yaml:"beta1"`        // memory of the gradients' mean
	Beta2       float64 `yaml:"beta2"`        // memory of the gradients' square
	Eps         float64 `yaml:"eps"`          // added to the root of the mean square
	WeightDecay float64 `yaml:"weight_decay"` // times the weights: added to the gradient, or, of adamw, times lr taken off the weights
	AMSGrad     bool    `yaml:"amsgrad"`      // divide by the largest mean square so far (Reddi et al. 2018)

	decoupled bool
}

func newAdam(decay float64, decoupled bool) *Adam {
	return &Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay, decoupled: decoupled}
}

// Validate refuses what has no meaning.
func (a *Adam) Validate() error {
	for name, beta := range map[string]float64{"beta1": a.Beta1, "beta2": a.Beta2} {
		if !(beta >= 0 && beta < 1) {
			return config.Invalid(name, "must be in [0, 1), it is %g", beta)
		}
	}
	if !(a.Eps >= 0) {
		return config.Invalid("eps", "must not be negative, it is %g", a.Eps)
	}
	return checkRate(a.LR, a.WeightDecay)
}

// New makes the optimiser with moments at zero, in scope s.
func (a *Adam) New(s *torch.Scope, groups []Group) (*Optimizer, error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return newOptimizer(a.LR, a.WeightDecay, groups, func(p *part) error {
		m, err := p.slot(s, "exp_avg")
		if err != nil {
			return err
		}
		v, err := p.slot(s, "exp_avg_sq")
		if err != nil {
			return err
		}
		var vmax []*torch.Tensor
		if a.AMSGrad {
			if vmax, err = p.slot(s, "max_exp_avg_sq"); err != nil {
				return err
			}
		}
		steps, err := p.counters(s)
		p.step = func(lr, decay float64) error {
			o := torch.AdamOptions{LR: lr, Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, WeightDecay: decay, AMSGrad: a.AMSGrad, Decoupled: a.decoupled}
			return torch.AdamStep(p.params, m, v, vmax, steps, o, nil, nil)
		}
		return err
	})
}
