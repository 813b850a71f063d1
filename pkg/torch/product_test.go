package torch

import (
	"slices"
	"testing"
)

func TestProductFloat32(t *testing.T) {
	s := NewScope()
	defer s.Close()
	got, err := From(s, []float32{1, 2, 3, 4}, 2, 2).ProductFloat32(From(s, []float32{5, 6}, 1, 2)).Float32s()
	if want := []float32{1*5 + 2*6, 3*5 + 4*6}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if err := From(s, []float32{1, 2}, 1, 2).ProductFloat32(From(s, []float32{1, 2, 3}, 1, 3)).Err(); err == nil {
		t.Error("rows of 2 and 3 numbers have a product")
	}
}
