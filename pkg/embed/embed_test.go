package embed

import (
	"math"
	"testing"
)

// (3, 4) and (4, 3) have the cosine (12+12)/(5·5); (1, 0) and (2, 0), 1.
func TestDeviation(t *testing.T) {
	got := deviation([]float32{3, 4, 1, 0}, []float32{4, 3, 2, 0}, 2)
	if want := 24.0 / 25; got.Images != 2 || math.Abs(got.Least-want) > 1e-12 || math.Abs(got.Mean-(want+1)/2) > 1e-12 {
		t.Errorf("%+v, want 2 images, at least %g, %g in the mean", got, want, (want+1)/2)
	}
}
