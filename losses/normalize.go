package losses

import (
	"math"

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
	largest, zero, err := largestOfRows(x, what)
	switch {
	case err != nil:
		return rows{}, err
	case !normalize:
		return rows{unit: x}, nil
	case zero >= 0:
		return rows{}, errZero(what, zero)
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
			return rows{}, errNotFinite(what, i)
		case torch.RowZero:
			return rows{}, errZero(what, i)
		}
	}
	return rows{unit: unit, length: length, fused: true}, nil
}

func errNotFinite(what string, row int) error {
	return fault.Inputf("%s: row %d holds NaN or Inf", what, row)
}

func errZero(what string, row int) error {
	return fault.Inputf("%s: row %d is all zeros and has no direction; remove it, or set normalize=false for inner products", what, row)
}

// largestOfRows is the largest magnitude in each row, [n, 1], and the first row
// of zeros, or -1. NaN and Inf are refused.
func largestOfRows(x *torch.Tensor, what string) (largest *torch.Tensor, zero int, err error) {
	largest = x.Abs().AMax([]int64{1}, true)
	host, err := largest.Float64s()
	if err != nil {
		return nil, -1, err
	}
	zero = -1
	for i, m := range host {
		if math.IsNaN(m) || math.IsInf(m, 0) {
			return nil, -1, errNotFinite(what, i)
		}
		if m == 0 && zero < 0 {
			zero = i
		}
	}
	return largest, zero, nil
}

// finiteRows refuses NaN and Inf in a matrix.
func finiteRows(x *torch.Tensor, what string) error {
	_, _, err := largestOfRows(x, what)
	return err
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
