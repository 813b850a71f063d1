// Package optim moves parameters along their gradients: Adam, AdamW and SGD on
// libtorch's fused kernels, in groups with learning rates of their own; the
// schedules of the learning rate, as functions of the step alone; gradient
// scaling for float16 and a moving average of the weights.
//
// Whatever an optimiser knows beyond its configuration is in its State, so
// that a run that saved it goes on exactly where it was.
package optim

import (
	"fmt"

	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/registry"
	"roadmap/pkg/torch"
)

// Group is parameters that are trained alike. LR and Decay multiply the
// optimiser's own learning rate and weight decay.
type Group struct {
	Name      string
	Params    nn.State
	LR, Decay float64
}

// Config is an optimiser's section of a recipe.
type Config interface {
	// New makes the optimiser's state, which starts at zero, in scope s.
	New(s *torch.Scope, groups []Group) (*Optimizer, error)
}

// Registry holds the optimisers by name.
var Registry = registry.New[Config]("optimizer")

// Optimizer is an update rule with its state for some groups of parameters.
type Optimizer struct {
	base  float64 // learning rate
	decay float64
	parts []part
}

// part is one group's share of the work.
type part struct {
	Group
	params []*torch.Tensor
	state  nn.State
	step   func(lr, decay float64) error
}

// newOptimizer checks the groups; the rules fill in each part's state and step.
func newOptimizer(lr, decay float64, groups []Group, fill func(p *part) error) (*Optimizer, error) {
	o := &Optimizer{base: lr, decay: decay}
	names := map[string]bool{}
	for _, g := range groups {
		if !(g.LR >= 0 && g.Decay >= 0) {
			return nil, fault.Inputf("parameter group %q: the factors of learning rate (%g) and weight decay (%g) must not be negative", g.Name, g.LR, g.Decay)
		}
		p := part{Group: g, params: g.Params.Tensors()}
		for _, n := range g.Params {
			if names[n.Name] {
				return nil, fmt.Errorf("optim: parameter %q is in two groups", n.Name)
			}
			names[n.Name] = true
		}
		if err := fill(&p); err != nil {
			return nil, err
		}
		o.parts = append(o.parts, p)
	}
	if len(names) == 0 {
		return nil, fault.Inputf("no parameter to train: every one is frozen")
	}
	return o, nil
}

// LR is the learning rate that factor, the schedule's value, gives a group.
func (o *Optimizer) LR(group int, factor float64) float64 { return o.base * o.parts[group].LR * factor }

// Groups are the groups the optimiser was made with.
func (o *Optimizer) Groups() []Group {
	groups := make([]Group, len(o.parts))
	for i, p := range o.parts {
		groups[i] = p.Group
	}
	return groups
}

// Params are the parameters of all groups.
func (o *Optimizer) Params() []*torch.Tensor {
	var all []*torch.Tensor
	for _, p := range o.parts {
		all = append(all, p.params...)
	}
	return all
}

// ZeroGrad drops the parameters' gradients.
func (o *Optimizer) ZeroGrad() error { return torch.ZeroGrad(o.Params()) }

// ClipGradNorm scales all gradients together down to a Euclidean norm of max
// and returns the norm they had; max 0 only measures.
func (o *Optimizer) ClipGradNorm(max float64) (float64, error) {
	if max == 0 {
		return torch.GradNorm(o.Params())
	}
	return torch.ClipGradNorm(o.Params(), max)
}

// Step moves every parameter that has a gradient. factor, the schedule's value
// for this step, multiplies every group's learning rate.
func (o *Optimizer) Step(factor float64) error {
	for _, p := range o.parts {
		if err := p.step(o.base*p.LR*factor, o.decay*p.Decay); err != nil {
			return err
		}
	}
	return nil
}

// State is the optimiser's memory, each tensor under its parameter's name and
// the name PyTorch gives it ("conv.weight.exp_avg").
func (o *Optimizer) State() nn.State {
	var all nn.State
	for _, p := range o.parts {
		all = append(all, p.state...)
	}
	return all
}

// slot makes one zero tensor like each parameter and enters it in the state.
func (p *part) slot(s *torch.Scope, name string) ([]*torch.Tensor, error) {
	all := make([]*torch.Tensor, len(p.params))
	child := s.Child()
	defer child.Close()
	for i, t := range p.params {
		kept, err := t.Alias(child).ZerosLike().KeepIn(s)
		if err != nil {
			return nil, err
		}
		all[i] = kept
		p.state = append(p.state, nn.Named{Name: p.Params[i].Name + "." + name, Tensor: kept})
	}
	return all, nil
}

// counters makes one step counter for each parameter.
func (p *part) counters(s *torch.Scope) ([]*torch.Tensor, error) {
	all := make([]*torch.Tensor, len(p.params))
	for i, t := range p.params {
		all[i] = s.Full([]int64{}, 0, torch.Float32, t.Device())
		p.state = append(p.state, nn.Named{Name: p.Params[i].Name + ".step", Tensor: all[i]})
	}
	return all, s.Err()
}

// checkRate refuses numbers no optimiser can use.
func checkRate(lr, decay float64) error {
	if !(lr > 0) {
		return fault.Inputf("lr must be positive, it is %g", lr)
	}
	if !(decay >= 0) {
		return fault.Inputf("weight_decay must not be negative, it is %g", decay)
	}
	return nil
}
