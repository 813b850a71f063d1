package torch

/*
#include "shim.h"
*/
import "C"

import "math"

// AdamOptions are the numbers of one Adam step (Kingma and Ba 2015; decoupled
// weight decay: Loshchilov and Hutter 2019).
type AdamOptions struct {
	LR, Beta1, Beta2, WeightDecay, Eps float64
	AMSGrad                            bool
	Decoupled                          bool // AdamW
}

// AdamStep moves params along their gradients with libtorch's fused kernel and
// updates the moments m, v (and vmax with AMSGrad; nil otherwise) and the step
// counters (float32, one element each). Parameters without a gradient stay as
// they are. gradScale and foundInf serve gradient scaling and may be nil.
func AdamStep(params, m, v, vmax, steps []*Tensor, o AdamOptions, gradScale, foundInf *Tensor) error {
	for _, list := range [][]*Tensor{params, m, v, steps} {
		if err := sameLength(params, list); err != nil {
			return err
		}
	}
	if o.AMSGrad {
		if err := sameLength(params, vmax); err != nil {
			return err
		}
	}
	if err := aliveIfAny(gradScale, foundInf); err != nil {
		return err
	}
	p, n := handles(params)
	pm, _ := handles(m)
	pv, _ := handles(v)
	px, _ := handles(vmax)
	ps, _ := handles(steps)
	c := C.rt_adam{lr: C.double(o.LR), beta1: C.double(o.Beta1), beta2: C.double(o.Beta2), weight_decay: C.double(o.WeightDecay),
		eps: C.double(o.Eps), amsgrad: cbool(o.AMSGrad), decoupled: cbool(o.Decoupled)}
	return failure("AdamStep", C.rt_adam_step(p, pm, pv, px, ps, n, c, handle(gradScale), handle(foundInf)))
}

// SGDOptions are the numbers of one step of stochastic gradient descent.
type SGDOptions struct {
	LR, Momentum, Dampening, WeightDecay float64
	Nesterov                             bool
	First                                bool // the momentum buffers hold nothing yet
}

// SGDStep moves params along their gradients with libtorch's fused kernel and
// updates the momentum buffers (unused when Momentum is 0).
func SGDStep(params, momentum []*Tensor, o SGDOptions, gradScale, foundInf *Tensor) error {
	if err := aliveAll(params); err != nil {
		return err
	}
	if o.Momentum != 0 {
		if err := sameLength(params, momentum); err != nil {
			return err
		}
	}
	if err := aliveIfAny(gradScale, foundInf); err != nil {
		return err
	}
	p, n := handles(params)
	pm, _ := handles(momentum)
	c := C.rt_sgd{lr: C.double(o.LR), momentum: C.double(o.Momentum), dampening: C.double(o.Dampening), weight_decay: C.double(o.WeightDecay),
		nesterov: cbool(o.Nesterov), first: cbool(o.First)}
	return failure("SGDStep", C.rt_sgd_step(p, pm, n, c, handle(gradScale), handle(foundInf)))
}

// GradNorm is the Euclidean norm of all gradients of params together.
func GradNorm(params []*Tensor) (float64, error) {
	if err := aliveAll(params); err != nil {
		return 0, err
	}
	p, n := handles(params)
	var norm C.double
	err := failure("GradNorm", C.rt_grad_norm(p, n, &norm))
	return float64(norm), err
}

// ClipGradNorm scales the gradients of params so that their norm is at most
// max, and returns the norm they had.
func ClipGradNorm(params []*Tensor, max float64) (float64, error) {
	norm, err := GradNorm(params)
	if err != nil || norm <= max || math.IsNaN(norm) {
		return norm, err
	}
	p, n := handles(params)
	return norm, failure("ClipGradNorm", C.rt_scale_grads(p, n, C.double(max/(norm+1e-6))))
}

// UnscaleGrads multiplies the gradients of params by inverseScale (one element)
// and sets foundInf (one element, float32) to 1 if one was not finite.
func UnscaleGrads(params []*Tensor, foundInf, inverseScale *Tensor) error {
	if err := aliveAll(append([]*Tensor{foundInf, inverseScale}, params...)); err != nil {
		return err
	}
	p, n := handles(params)
	return failure("UnscaleGrads", C.rt_unscale_grads(p, n, foundInf.h, inverseScale.h), foundInf, inverseScale)
}

// LerpAll moves every dst[i] towards src[i] by weight: a moving average of
// weights when weight is small.
func LerpAll(dst, src []*Tensor, weight float64) error {
	if err := sameLength(dst, src); err != nil {
		return err
	}
	if err := aliveAll(dst); err != nil {
		return err
	}
	pd, n := handles(dst)
	ps, _ := handles(src)
	return failure("LerpAll", C.rt_lerp_all(pd, ps, n, C.double(weight)))
}

// aliveIfAny returns the first error among tensors that may be nil.
func aliveIfAny(tensors ...*Tensor) error {
	for _, t := range tensors {
		if t != nil {
			if err := t.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameLength checks two lists that run side by side, and that the second is alive.
func sameLength(a, b []*Tensor) error {
	if len(a) != len(b) {
		return &OpError{Op: "list of tensors", Message: "lists of different lengths"}
	}
	return aliveAll(b)
}
