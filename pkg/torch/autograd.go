package torch

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// RequireGrad makes t a leaf whose gradient Backward collects. It returns t.
func (t *Tensor) RequireGrad(on bool) *Tensor {
	s, ok := join("RequireGrad", t)
	if ok {
		if msg := C.rt_require_grad(t.h, cbool(on)); msg != nil {
			s.refuse("RequireGrad", msg, t)
		}
	}
	return t
}

// RequiresGrad says whether gradients flow to t.
func (t *Tensor) RequiresGrad() bool { return t.h != 0 && C.rt_requires_grad(t.h) != 0 }

// Grad returns a handle, in scope s, to the gradient collected for t; nil if
// there is none.
func (t *Tensor) Grad(s *Scope) *Tensor {
	if t.h == 0 {
		s.fail(t.why("Grad"))
		return s.dead()
	}
	r := C.rt_grad(t.h)
	if r.err == nil && r.t == 0 {
		return nil
	}
	return s.one("Grad", r, t)
}

// SetGrad replaces the gradient collected for t; nil drops it.
func (t *Tensor) SetGrad(grad *Tensor) error {
	if err := t.Err(); err != nil {
		return err
	}
	if grad != nil {
		if err := grad.Err(); err != nil {
			return err
		}
	}
	return failure("SetGrad", C.rt_set_grad(t.h, handle(grad)), t, grad)
}

// ZeroGrad drops the gradients of parameters.
func ZeroGrad(params []*Tensor) error {
	if err := aliveAll(params); err != nil {
		return err
	}
	p, n := handles(params)
	return failure("ZeroGrad", C.rt_zero_grad(p, n))
}

// Backward adds d t/d leaf to the gradient of every leaf that t, a tensor of one
// element, came from, and lets go of t's history.
func (t *Tensor) Backward() error { return t.BackwardFrom(nil, false, false) }

// BackwardFrom is Backward from a tensor of any shape with the gradient of what
// follows it. keep leaves t's history in place for another call; create records
// the computation of the gradients themselves.
func (t *Tensor) BackwardFrom(grad *Tensor, keep, create bool) error {
	if err := t.Err(); err != nil {
		return err
	}
	if grad != nil {
		if err := grad.Err(); err != nil {
			return err
		}
	}
	return failure("Backward", C.rt_backward(t.h, handle(grad), cbool(keep), cbool(create)), t, grad)
}

// Gradients returns d (out·grad)/d in for each of in, zeros where out does not
// depend on it, and leaves the leaves' own gradients alone. grad nil stands for
// 1 and needs an out of one element.
func Gradients(out, grad *Tensor, in []*Tensor, keep, create bool) []*Tensor {
	required := append([]*Tensor{out}, in...)
	s, ok := joinOptional("Gradients", required, grad)
	results := make([]*Tensor, len(in))
	hs := make([]C.rt_handle, len(in))
	if ok && len(in) > 0 {
		p, n := handles(in)
		if msg := C.rt_grad_of(out.h, handle(grad), p, n, unsafe.SliceData(hs), cbool(keep), cbool(create)); msg != nil {
			s.refuse("Gradients", msg, out)
			ok = false
		}
	}
	for i := range results {
		if results[i] = s.dead(); ok {
			results[i] = s.own(hs[i])
		}
	}
	return results
}

// WithGrad returns value as a function of in whose gradients are already known:
// Backward passes grads[i], times the gradient of what follows, on to in[i]. A
// nil gradient passes nothing.
func (value *Tensor) WithGrad(in, grads []*Tensor) *Tensor {
	s, ok := join("WithGrad", append([]*Tensor{value}, in...)...)
	if !ok {
		return s.dead()
	}
	for _, g := range grads {
		if g != nil && g.h == 0 {
			s.fail(g.why("WithGrad"))
			return s.dead()
		}
	}
	if len(in) != len(grads) {
		s.fail(&OpError{Op: "WithGrad", Message: "as many gradients as inputs are needed"})
		return s.dead()
	}
	pi, n := handles(in)
	pg, _ := handles(grads)
	return s.one("WithGrad", C.rt_with_grad(value.h, pi, pg, n), value)
}

// NoGrad runs f without recording histories on the calling goroutine.
func NoGrad(f func()) { withGradMode(false, f) }

// EnableGrad runs f recording histories, inside NoGrad too.
func EnableGrad(f func()) { withGradMode(true, f) }

// withGradMode holds the thread, since libtorch keeps the mode per thread.
func withGradMode(on bool, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := C.rt_grad_mode(cbool(on))
	defer C.rt_grad_mode(before)
	f()
}

// Autocast runs f with libtorch choosing dtype (BFloat16 or Float16) for the
// operations on device that gain from it, matrix products and convolutions.
func Autocast(device Device, dtype DType, f func()) {
	autocast(device, C.rt_autocast_state{enabled: 1, dtype: C.int(dtype)}, f)
}

// NoAutocast runs f in the tensors' own dtypes, inside Autocast too.
func NoAutocast(device Device, f func()) {
	autocast(device, C.rt_autocast_state{enabled: 0, dtype: C.rt_autocast_get(device.c()).dtype}, f)
}

func autocast(device Device, state C.rt_autocast_state, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := C.rt_autocast_get(device.c())
	C.rt_autocast_set(device.c(), state)
	C.rt_autocast_enter()
	defer func() {
		C.rt_autocast_leave()
		C.rt_autocast_set(device.c(), before)
	}()
	f()
}

// aliveAll returns the first error among tensors that must all be alive.
func aliveAll(tensors []*Tensor) error {
	for _, t := range tensors {
		if t == nil {
			return &OpError{Op: "list of tensors", Message: "a tensor is nil"}
		}
		if err := t.Err(); err != nil {
			return err
		}
	}
	return nil
}
