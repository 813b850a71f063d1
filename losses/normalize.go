package losses

import (
	"math"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// rows are embeddings ready to be multiplied, and the way back.
type rows struct {
	unit   *torch.Tensor // [n, d] contiguous, in the dtype of the scores
	length *torch.Tensor // [n, 1] what unit was divided by; nil: nothing
}

// prepare checks the embeddings x [n, d] and divides them by their lengths.
// what names them in errors.
//
// A row is first divided by its largest element, so that squares neither
// overflow nor vanish, and the squares are added in float64, so that the length
// does not depend on where a row stands: equal rows stay equal to the bit.
func prepare(x *torch.Tensor, dtype torch.DType, normalize bool, what string) (rows, error) {
	x = x.Detach().ToDType(dtype).Contiguous()
	largest, zero, err := largestOfRows(x, what)
	switch {
	case err != nil:
		return rows{}, err
	case !normalize:
		return rows{unit: x}, nil
	case zero >= 0:
		return rows{}, fault.Inputf("%s: row %d is all zeros and has no direction; remove it, or set normalize=false for inner products", what, zero)
	}
	x = x.Div(largest)
	length := x.ToDType(torch.Float64).Square().SumDim([]int64{1}, true).Sqrt().ToDType(dtype)
	return rows{unit: x.Div(length), length: length.Mul(largest)}, nil
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
			return nil, -1, fault.Inputf("%s: row %d holds NaN or Inf", what, i)
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

// back turns dLoss/dunit into dLoss/dx: the part along the row is lost, the
// rest shrinks with the row's length.
func (r rows) back(grad *torch.Tensor) *torch.Tensor {
	if r.length == nil {
		return grad
	}
	along := grad.Mul(r.unit).SumDim([]int64{1}, true)
	return grad.Sub(r.unit.Mul(along)).Div(r.length)
}
