package torch

/*
#include <stdlib.h>
#include "shim.h"
#include "checkpoint.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// recomputations holds, by ticket, the functions whose values Backward may ask
// for once more.
var recomputations = struct {
	sync.Mutex
	next int64
	run  map[int64]func(x *Tensor) *Tensor
}{run: map[int64]func(*Tensor) *Tensor{}}

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

	ticket := remember(func(x *Tensor) (y *Tensor) {
		autocast(device, mode, func() { y = f(x, true) })
		return y
	})
	// libtorch drops life with the history, after Backward or unused.
	mark := new([1]byte)
	pin := new(runtime.Pinner)
	pin.Pin(mark)
	life := WrapPointer(inner, unsafe.Pointer(mark), Uint8, 1, func() { pin.Unpin(); forget(ticket) })
	if err := life.Err(); err != nil {
		s.fail(err)
		return s.dead()
	}
	return s.one("Checkpoint", C.rt_checkpoint(value.h, x.h, life.h, C.int64_t(ticket)), x)
}

func remember(f func(*Tensor) *Tensor) int64 {
	recomputations.Lock()
	defer recomputations.Unlock()
	recomputations.next++
	recomputations.run[recomputations.next] = f
	return recomputations.next
}

func forget(ticket int64) {
	recomputations.Lock()
	defer recomputations.Unlock()
	delete(recomputations.run, ticket)
}

// rt_checkpoint_again runs on the thread of Backward that wants the gradient of
// a Checkpoint. It owns the two handles it is given.
//
//export rt_checkpoint_again
func rt_checkpoint_again(ticket C.int64_t, hx, hgrad C.rt_handle) C.rt_one {
	s := NewScope()
	defer s.Close()
	x, grad := s.own(hx), s.own(hgrad)
	recomputations.Lock()
	f := recomputations.run[int64(ticket)]
	recomputations.Unlock()
	if f == nil {
		return C.rt_one{err: C.CString("the values of a checkpoint were let go of: Backward may pass it once")}
	}
	wanted := x.RequiresGrad()
	if err := f(x.Alias(s)).BackwardFrom(grad, false, false); err != nil {
		return C.rt_one{err: C.CString(err.Error())}
	}
	if !wanted {
		return C.rt_one{}
	}
	g := x.Grad(s)
	if g == nil { // f does not depend on x
		g = x.ZerosLike()
	}
	if err := g.Err(); err != nil {
		return C.rt_one{err: C.CString(err.Error())}
	}
	live.Add(-1) // the caller takes the handle over
	h := g.h
	g.h = 0
	return C.rt_one{t: h}
}

// SetData makes t hold data's elements, of whatever dtype, device and layout,
// instead of its own, and keeps t's place in histories and optimisers. t must
// have no gradient.
func (t *Tensor) SetData(data *Tensor) error {
	if err := aliveAll([]*Tensor{t, data}); err != nil {
		return err
	}
	return failure("SetData", C.rt_set_data(t.h, data.h), t, data)
}
