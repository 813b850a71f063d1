package score

import (
	"math"
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Nothing that is not finite comes in, and nothing goes out: rows and given
// scores are looked at, the products of rows that are not normalised where they
// may overflow, and at the end the value and the gradients.

// largestOfRows is the largest magnitude in each row, [n, 1], here and on the host.
func largestOfRows(x *torch.Tensor) (largest *torch.Tensor, host []float64, err error) {
	largest = x.Abs().AMax([]int64{1}, true)
	host, err = largest.Float64s()
	return largest, host, err
}

// firstNotFinite is the first row whose largest magnitude is NaN or Inf, or -1.
func firstNotFinite(largest []float64) int {
	return slices.IndexFunc(largest, notFinite)
}

func notFinite(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }

// checkRows refuses NaN and Inf in a matrix.
func checkRows(x *torch.Tensor, what string) error {
	_, host, err := largestOfRows(x)
	if err != nil {
		return err
	}
	if i := firstNotFinite(host); i >= 0 {
		return errNotFinite(what, i, x.DType())
	}
	return nil
}

// mayOverflow says whether a score of rows x and y, or a sum on the way to it,
// may be beyond their dtype: none is above d max|x| max|y|.
func mayOverflow(x, y *torch.Tensor) (bool, error) {
	bound := float64(x.Size(1))
	for _, rows := range []*torch.Tensor{x, y} {
		largest, err := rows.Abs().Max().Item()
		if err != nil {
			return false, err
		}
		bound *= largest
	}
	limit := math.MaxFloat32
	if x.DType() == torch.Float64 {
		limit = math.MaxFloat64
	}
	return bound > limit/2, nil // half of it: for rounding
}

// checkScores refuses a tile with scores that its dtype does not hold.
func (p *plan) checkScores(t tile) error {
	_, host, err := largestOfRows(t.scores)
	if err != nil {
		return err
	}
	if i := firstNotFinite(host); i >= 0 {
		return fault.Inputf("%s: the scores of row %d are beyond %s; make the rows shorter, or set normalize=true%s", p.name, t.first+i, p.dtype, wider(p.dtype))
	}
	return nil
}

// checkResult refuses a value or a gradient that overflowed on the way from
// finite scores.
func (in *Input) checkResult(value *torch.Tensor, inputs, grads []*torch.Tensor) error {
	v, err := value.Item()
	if err != nil {
		return err
	}
	if notFinite(v) {
		return fault.Inputf("%s: the loss is %g, beyond %s; take smaller scores or parameters%s", in.QueryName, v, value.DType(), wider(value.DType()))
	}
	for i, grad := range grads {
		if sum, err := grad.Sum().Item(); err != nil {
			return err
		} else if !notFinite(sum) {
			continue
		}
		_, host, err := largestOfRows(grad)
		if err != nil {
			return err
		}
		if row := firstNotFinite(host); row >= 0 {
			name := in.QueryName
			if inputs[i] == in.Gallery {
				name = in.GalleryName
			}
			return fault.Inputf("%s: the gradient of row %d is beyond %s; take longer rows or larger temperatures%s", name, row, grad.DType(), wider(grad.DType()))
		}
	}
	return nil
}

// wider hints at the dtype that holds more.
func wider(dtype torch.DType) string {
	if dtype == torch.Float32 {
		return ", or dtype=float64"
	}
	return ""
}
