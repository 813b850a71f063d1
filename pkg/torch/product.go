package torch

/*
#include "product.h"
*/
import "C"

// ProductFloat32 returns t · otherᵀ, of rows [n, d] and [m, d] the products
// [n, m], in full float32 on t's device, also where [AllowTF32] permits less.
// It records no gradient.
func (t *Tensor) ProductFloat32(other *Tensor) *Tensor {
	s, ok := join("ProductFloat32", t, other)
	if !ok {
		return s.dead()
	}
	return s.one("ProductFloat32", C.rt_product_float32(t.h, other.h), t, other)
}
