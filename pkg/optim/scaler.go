package optim

import (
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Scaler multiplies the loss before Backward so that float16 gradients do not
// vanish, and the gradients back before the step. A step whose gradients are
// not all finite is skipped and halves the scale; growthInterval good steps in
// a row double it (Micikevicius et al. 2018, section 3.2).
type Scaler struct {
	scale, good *torch.Tensor // float32 [1], int64 [1]; on the host
}

const (
	initialScale   = 1 << 16
	growthInterval = 2000
)

// NewScaler makes a scaler whose state lives in scope s.
func NewScaler(s *torch.Scope) *Scaler {
	return &Scaler{scale: s.Full([]int64{1}, initialScale, torch.Float32, torch.CPU), good: s.Zeros([]int64{1}, torch.Int64, torch.CPU)}
}

// Scale is the loss to call Backward on.
func (c *Scaler) Scale(loss *torch.Tensor) *torch.Tensor {
	scale, err := c.scale.Item()
	if err != nil {
		loss.Scope().Fail(err)
		return loss.Scope().Dead()
	}
	return loss.MulScalar(scale)
}

// Unscale brings the gradients of params back to the loss's own scale and says
// whether all of them are finite. If not, the step is to be left out.
func (c *Scaler) Unscale(params []*torch.Tensor) (finite bool, err error) {
	scale, err := c.scale.Item()
	if err != nil || len(params) == 0 {
		return true, err
	}
	s := torch.NewScope()
	defer s.Close()
	device := params[0].Device()
	found := s.Zeros([]int64{1}, torch.Float32, device)
	if err := torch.UnscaleGrads(params, found, s.Full([]int64{1}, 1/scale, torch.Float32, device)); err != nil {
		return false, err
	}
	overflow, err := found.Item()
	if err != nil {
		return false, err
	}
	return overflow == 0, c.update(scale, overflow == 0)
}

func (c *Scaler) update(scale float64, finite bool) error {
	good, err := c.good.Item()
	if err != nil {
		return err
	}
	switch good++; {
	case !finite:
		scale, good = scale/2, 0
	case good == growthInterval:
		scale, good = scale*2, 0
	}
	c.scale.FillInPlace(scale)
	c.good.FillInPlace(good)
	return c.scale.Err()
}

// State is the scale and the number of good steps since it changed.
func (c *Scaler) State() nn.State {
	return nn.State{{Name: "scale", Tensor: c.scale}, {Name: "good_steps", Tensor: c.good}}
}
