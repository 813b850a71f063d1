package torch

/*
#include "shim.h"
#include "unbind.h"
*/
import "C"

import "unsafe"

// Unbind returns views of the n entries along dim, that dimension gone. n must
// be the size of dim: it is how many tensors the caller counts on. Backward
// joins their gradients in one pass, where n times Select would add n tensors
// of t's own size.
func (t *Tensor) Unbind(dim, n int) []*Tensor {
	parts := make([]*Tensor, n)
	s, ok := join("Unbind", t)
	hs := make([]C.rt_handle, n)
	if ok {
		if msg := C.rt_unbind(t.h, C.int64_t(dim), unsafe.SliceData(hs), C.int(n)); msg != nil {
			s.refuse("Unbind", msg, t)
			ok = false
		}
	}
	for i := range parts {
		if parts[i] = s.dead(); ok {
			parts[i] = s.own(hs[i])
		}
	}
	return parts
}
