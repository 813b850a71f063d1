package losses

import (
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// rows are embeddings ready to be multiplied, and the way back.
type rows struct {
	unit   *torch.Tensor // [n, d] contiguous, in the dtype of the scores
	length *torch.Tensor // [n, 1] what the rows were divided by; nil: nothing
	fused  bool
}

// prepare checks the embeddings x [n, d] and divides them by their lengths.
// what names them in errors.
//
// A row is first divided by its largest element, so that squares neither
// overflow nor vanish, and the squares are added in float64, so that the length
// does not depend on where a row stands: equal rows stay equal to the bit. On a
// CPU one pass does it, unless plain.
func prepare(x *torch.Tensor, dtype torch.DType, normalize bool, what string, plain bool) (rows, error) {
	x = x.Detach().ToDType(dtype).Contiguous()
	if normalize && !plain && !x.Device().IsCUDA() {
		return prepareFused(x, what)
	}
	largest, host, err := largestOfRows(x)
	if err != nil {
		return rows{}, err
	}
	if i := firstNotFinite(host); i >= 0 {
		return rows{}, errNotFinite(what, i, dtype)
	}
	if !normalize {
		return rows{unit: x}, nil
	}
	if i := slices.Index(host, 0); i >= 0 {
		return rows{}, errZero(what, i)
	}
	x = x.Div(largest)
	length := x.ToDType(torch.Float64).Square().SumDim([]int64{1}, true).Sqrt().ToDType(dtype)
	return rows{unit: x.Div(length), length: length.Mul(largest)}, nil
}

// prepareFused is prepare on a CPU.
func prepareFused(x *torch.Tensor, what string) (rows, error) {
	unit, length, states := x.NormalizeRows()
	if err := unit.Err(); err != nil {
		return rows{}, err
	}
	for i, state := range states {
		switch state {
		case torch.RowNotFinite:
			return rows{}, errNotFinite(what, i, x.DType())
		case torch.RowZero:
			return rows{}, errZero(what, i)
		}
	}
	return rows{unit: unit, length: length, fused: true}, nil
}

func errNotFinite(what string, row int, dtype torch.DType) error {
	return fault.Inputf("%s: row %d holds NaN or Inf as %s; correct or remove it", what, row, dtype)
}

func errZero(what string, row int) error {
	return fault.Inputf("%s: row %d is all zeros and has no direction; remove it, or set normalize=false for inner products", what, row)
}

// back turns dLoss/dunit into dLoss/dx, perhaps in place: the part along the
// row is lost, the rest shrinks with the row's length.
func (r rows) back(grad *torch.Tensor) *torch.Tensor {
	switch {
	case r.length == nil:
		return grad
	case r.fused:
		return grad.NormalizeRowsBack(r.unit, r.length)
	}
	along := grad.Mul(r.unit).SumDim([]int64{1}, true)
	return grad.Sub(r.unit.Mul(along)).Div(r.length)
}
