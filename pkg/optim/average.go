package optim

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Average is a moving average of a network's weights, a ← decay·a +
// (1 - decay)·w after each step, and the newest of its buffers. It starts at
// the weights it is made of.
type Average struct {
	decay          float64
	weights, state nn.State // of the network, and of the average, side by side
}

// NewAverage copies a network's state into scope s.
func NewAverage(s *torch.Scope, weights nn.State, decay float64) (*Average, error) {
	if !(decay >= 0 && decay < 1) {
		return nil, fault.Inputf("the decay of the weights' moving average must be in [0, 1), it is %g", decay)
	}
	a := &Average{decay: decay, weights: weights}
	means := map[string]*torch.Tensor{}
	for _, n := range weights {
		mean := means[n.Twin]
		if n.Twin == "" {
			var err error
			if mean, err = copyInto(s, n.Tensor); err != nil {
				return nil, err
			}
		}
		means[n.Name] = mean
		a.state = append(a.state, nn.Named{Name: n.Name, Tensor: mean, Parameter: n.Parameter, Twin: n.Twin})
	}
	return a, nil
}

// Update takes in the weights of one more step.
func (a *Average) Update() error {
	var mean, now []*torch.Tensor
	for i, n := range a.weights {
		if n.Parameter && n.Twin == "" {
			mean, now = append(mean, a.state[i].Tensor), append(now, n.Tensor)
		}
	}
	if err := torch.LerpAll(mean, now, 1-a.decay); err != nil {
		return err
	}
	return a.copyBuffers()
}

func (a *Average) copyBuffers() (err error) {
	for i, n := range a.weights {
		if !n.Parameter && err == nil {
			err = a.state[i].Tensor.CopyInPlace(n.Tensor).Err()
		}
	}
	return err
}

// Swap exchanges the network's weights with the average's, for an evaluation;
// a second Swap takes it back.
func (a *Average) Swap() (err error) {
	torch.NoGrad(func() {
		for i, n := range a.weights {
			if n.Twin != "" {
				continue
			}
			if err = swap(n.Tensor, a.state[i].Tensor); err != nil {
				return
			}
		}
	})
	return err
}

func swap(x, y *torch.Tensor) error {
	s := torch.NewScope()
	defer s.Close()
	held, err := copyInto(s, x)
	if err != nil {
		return err
	}
	if err := x.CopyInPlace(y).Err(); err != nil {
		return err
	}
	return y.CopyInPlace(held).Err()
}

// copyInto copies t, without its history, into scope s.
func copyInto(s *torch.Scope, t *torch.Tensor) (kept *torch.Tensor, err error) {
	child := s.Child()
	defer child.Close()
	torch.NoGrad(func() { kept, err = t.Alias(child).Clone().KeepIn(s) })
	return kept, err
}

// State is the average, under the network's names.
func (a *Average) State() nn.State { return a.state }
