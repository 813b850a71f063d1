package torch

/*
#include <stdlib.h>
#include "shim.h"
#include "function.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// A Backward turns grad, the gradient by a function's value, into the gradients
// by its inputs, which it is given once more; nil passes none on. It works in
// the scope of its arguments, on the thread that runs Backward, and without
// recording a history.
type Backward func(grad *Tensor, inputs []*Tensor) []*Tensor

// backwards holds the functions that libtorch may still call, by ticket.
var backwards = struct {
	sync.Mutex
	run map[int64]Backward
}{run: map[int64]Backward{}}

// Function returns value, computed from inputs without a history, as a
// function of them whose backward is written in Go: what
// torch.autograd.Function is in Python.
func Function(value *Tensor, inputs []*Tensor, backward Backward) *Tensor {
	return function("Function", value, inputs, false, backward)
}

// function is Function; with always the result requires a gradient even where
// no input does.
func function(op string, value *Tensor, inputs []*Tensor, always bool, backward Backward) *Tensor {
	s, ok := join(op, append([]*Tensor{value}, inputs...)...)
	if !ok {
		return s.dead()
	}
	// libtorch gives the ticket back when it drops the history, after Backward or
	// unused.
	lent.Lock()
	lent.next++
	ticket := lent.next
	lent.release[ticket] = func() {
		backwards.Lock()
		delete(backwards.run, ticket)
		backwards.Unlock()
	}
	lent.Unlock()
	backwards.Lock()
	backwards.run[ticket] = backward
	backwards.Unlock()
	p, n := handles(inputs)
	r := C.rt_function(value.h, p, n, cbool(always), C.int64_t(ticket))
	if r.err != nil {
		giveBack(ticket)
	}
	return s.one(op, r, inputs...)
}

//export rt_function_backward
func rt_function_backward(ticket C.int64_t, hgrad C.rt_handle, hinputs, hgrads *C.rt_handle, n C.int) *C.char {
	s := NewScope()
	defer s.Close()
	grad := s.own(hgrad)
	inputs := make([]*Tensor, n)
	for i, h := range unsafe.Slice(hinputs, n) {
		inputs[i] = s.own(h)
	}
	backwards.Lock()
	backward := backwards.run[int64(ticket)]
	backwards.Unlock()
	if backward == nil {
		return C.CString("the history of this function was let go of: Backward may pass it once")
	}
	grads := backward(grad, inputs)
	if err := s.Err(); err != nil {
		return C.CString(err.Error())
	}
	for i, g := range grads {
		if g == nil {
			continue
		}
		g = g.Alias(s) // whoever owns g keeps it
		if err := g.Err(); err != nil {
			return C.CString(err.Error())
		}
		live.Add(-1) // the caller takes the handle over
		unsafe.Slice(hgrads, n)[i], g.h = g.h, 0
	}
	return nil
}

// Checkpoint returns f(x, false) without storing what Backward needs of its
// inner values: Backward computes them once more by f(x, true), in the autocast
// mode of now, and then lets go of them (Chen et al. 2016). f must give the
// same values both times and may use parameters; it works in the scope of the
// x it is given. Without gradients Checkpoint is f.
func Checkpoint(x *Tensor, f func(x *Tensor, again bool) *Tensor) *Tensor {
	s, ok := join("Checkpoint", x)
	if !ok {
		return s.dead()
	}
	if C.rt_grad_enabled() == 0 {
		return f(x, false)
	}
	device := x.Device()
	mode := C.rt_autocast_get(device.c())

	inner := s.Child()
	defer inner.Close()
	var value *Tensor
	NoGrad(func() { value = f(x.Alias(inner), false) })
	if err := value.Err(); err != nil {
		s.fail(err)
		return s.dead()
	}
	result := function("Checkpoint", value, []*Tensor{x}, true, func(grad *Tensor, inputs []*Tensor) []*Tensor {
		x := inputs[0]
		EnableGrad(func() {
			autocast(device, mode, func() {
				if err := f(x.Alias(x.Scope()), true).BackwardFrom(grad, false, false); err != nil {
					x.Scope().fail(err)
				}
			})
		})
		if !x.RequiresGrad() {
			return []*Tensor{nil, nil}
		}
		return []*Tensor{x.Grad(x.Scope()), nil}
	})
	kept, err := result.KeepIn(s)
	if err != nil {
		s.fail(err)
		return s.dead()
	}
	return kept
}
