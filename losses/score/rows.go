package score

/*
#include "kernels.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Rows are embeddings ready to be multiplied, and the way back.
type Rows struct {
	Unit *torch.Tensor // [n, d] contiguous, in the dtype of the scores

	length *torch.Tensor // [n, 1] what the rows were divided by; nil: nothing
	plain  bool
}

// Normalize checks the embeddings x [n, d] and, with normalize, divides them by
// their lengths. what names them in errors.
//
// A row is first divided by its largest element, so that squares neither
// overflow nor vanish, and the squares are added in float64, so that the length
// does not depend on where a row stands: equal rows stay equal to the bit.
func Normalize(x *torch.Tensor, dtype torch.DType, normalize bool, what string, plain bool) (Rows, error) {
	x = x.Detach().ToDType(dtype).Contiguous()
	if normalize && !plain && kernels(x) {
		return normalizeRows(x, what)
	}
	largest, host, err := largestOfRows(x)
	if err != nil {
		return Rows{}, err
	}
	if i := firstNotFinite(host); i >= 0 {
		return Rows{}, errNotFinite(what, i, dtype)
	}
	if !normalize {
		return Rows{Unit: x}, nil
	}
	if i := slices.Index(host, 0); i >= 0 {
		return Rows{}, errZero(what, i)
	}
	x = x.Div(largest)
	length := x.ToDType(torch.Float64).Square().SumDim([]int64{1}, true).Sqrt().ToDType(dtype)
	return Rows{Unit: x.Div(length), length: length.Mul(largest), plain: true}, nil
}

// normalizeRows is Normalize by a kernel.
func normalizeRows(x *torch.Tensor, what string) (Rows, error) {
	n := x.Size(0)
	r := Rows{Unit: x.EmptyLike(), length: x.Scope().Empty([]int64{n, 1}, x.DType(), torch.CPU)}
	states := make([]C.uint8_t, n)
	if ready(x, r.Unit, r.length) {
		done(x, C.sc_unit_rows(how(x), matrixOf(x), r.Unit.Data(), r.length.Data(), unsafe.SliceData(states)))
	}
	if err := x.Scope().Err(); err != nil {
		return Rows{}, err
	}
	for i, state := range states {
		switch state {
		case C.SC_ROW_NOT_FINITE:
			return Rows{}, errNotFinite(what, i, x.DType())
		case C.SC_ROW_ZERO:
			return Rows{}, errZero(what, i)
		}
	}
	return r, nil
}

func errNotFinite(what string, row int, dtype torch.DType) error {
	return fault.Inputf("%s: row %d holds NaN or Inf as %s; correct or remove it", what, row, dtype)
}

func errZero(what string, row int) error {
	return fault.Inputf("%s: row %d is all zeros and has no direction; remove it, or set normalize=false for inner products", what, row)
}

// back turns dLoss/dunit into dLoss/dx, perhaps in place: the part along the
// row is lost, the rest shrinks with the row's length.
func (r Rows) back(grad *torch.Tensor) *torch.Tensor {
	switch {
	case r.length == nil:
		return grad
	case r.plain:
		along := grad.Mul(r.Unit).SumDim([]int64{1}, true)
		return grad.Sub(r.Unit.Mul(along)).Div(r.length)
	}
	if ready(grad, r.Unit, r.length) {
		done(grad, C.sc_unit_rows_backward(how(grad), matrixOf(grad), r.Unit.Data(), r.length.Data()))
	}
	return grad
}

// hashOf is a hash of the bytes of each row of x [n, d], contiguous float32 or
// float64. Equal hashes make equal rows likely, not certain.
func hashOf(x *torch.Tensor) ([]uint64, error) {
	x = x.ToDevice(torch.CPU)
	hashes := make([]uint64, x.Size(0))
	if ready(x) {
		done(x, C.sc_hash_rows(how(x), matrixOf(x), (*C.uint64_t)(unsafe.SliceData(hashes))))
	}
	return hashes, x.Scope().Err()
}

// addTranspose adds its transpose to the square matrix t.
func addTranspose(t *torch.Tensor) {
	if !kernels(t) || !t.IsContiguous(false) {
		t.CopyInPlace(t.Add(t.T()))
		return
	}
	if ready(t) {
		done(t, C.sc_add_transposed(how(t), matrixOf(t)))
	}
}
