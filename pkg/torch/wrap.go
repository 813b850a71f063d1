package torch

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"unsafe"
)

// lent holds what keeps a buffer alive while libtorch may read it, by ticket.
var lent = struct {
	sync.Mutex
	next    int64
	release map[int64]func()
}{release: map[int64]func(){}}

// Wrap returns a CPU tensor over data itself, without a copy: writes on either
// side are seen on the other. The slice stays pinned until libtorch has dropped
// its last reference to it.
func Wrap[E Element](s *Scope, data []E, shape ...int64) *Tensor {
	if len(data) == 0 {
		return From(s, data, shape...)
	}
	pin := new(runtime.Pinner)
	pin.Pin(unsafe.SliceData(data))
	return WrapPointer(s, unsafe.Pointer(unsafe.SliceData(data)), dtypeOf[E](), len(data), pin.Unpin, shape...)
}

// WrapPointer returns a CPU tensor over count elements of C or mapped memory.
// release is called once, some time after libtorch has dropped its last
// reference (or at once, if the tensor cannot be made).
func WrapPointer(s *Scope, p unsafe.Pointer, dtype DType, count int, release func(), shape ...int64) *Tensor {
	if shape == nil {
		shape = []int64{int64(count)}
	}
	if !s.ready("Wrap") || !s.fits("Wrap", count, shape) {
		release()
		return s.dead()
	}
	lent.Lock()
	lent.next++
	ticket := lent.next
	lent.release[ticket] = release
	lent.Unlock()
	r := C.rt_wrap(p, (*C.int64_t)(unsafe.SliceData(shape)), C.int(len(shape)), C.int(dtype), C.int64_t(ticket))
	if r.err != nil {
		giveBack(ticket)
	}
	return s.one("Wrap", r)
}

// collectReleased runs the release functions of buffers libtorch is done with.
func collectReleased() {
	lent.Lock()
	waiting := len(lent.release)
	lent.Unlock()
	if waiting == 0 {
		return
	}
	var tickets [16]C.int64_t
	for {
		n := int(C.rt_released(&tickets[0], C.int(len(tickets))))
		for _, t := range tickets[:n] {
			giveBack(int64(t))
		}
		if n < len(tickets) {
			return
		}
	}
}

func giveBack(ticket int64) {
	lent.Lock()
	release := lent.release[ticket]
	delete(lent.release, ticket)
	lent.Unlock()
	if release != nil {
		release()
	}
}
