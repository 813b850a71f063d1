package tensorio

import (
	"math"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestViewsShareMemory(t *testing.T) {
	data := []float32{1, 2, 3, 4, 5, 6}
	x := Of(data, 2, 3)
	floats, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	data[4] = 50
	if floats[4] != 50 {
		t.Error("Float32s of a float32 tensor copied it")
	}
	row, err := View[float32](x.Rows(1, 2))
	if err != nil || !slices.Equal(row, []float32{4, 50, 6}) {
		t.Errorf("second row: %v, %v", row, err)
	}
	if _, err := View[int64](x); err == nil {
		t.Error("a float32 tensor was viewed as int64")
	}
}

func TestUnalignedViewsAreCopied(t *testing.T) {
	raw := make([]byte, 17)
	for offset := range 8 {
		copy(raw[offset:], Of([]float64{0.1}, 1).Data)
		x := Tensor{Float64, []int{1}, raw[offset : offset+8]}
		if got, err := x.Float64s(); err != nil || got[0] != 0.1 {
			t.Errorf("offset %d: %v, %v", offset, got, err)
		}
	}
}

func TestConversions(t *testing.T) {
	wide := Of([]float64{1, 1.0 / 3, 1e-300}, 3)
	narrow, err := wide.Float32s()
	if err != nil || !slices.Equal(narrow, []float32{1, 1.0 / 3, 0}) {
		t.Errorf("float64 → float32: %v, %v", narrow, err)
	}
	back, err := Of([]float32{0.1}, 1).Float64s()
	if err != nil || back[0] != float64(float32(0.1)) {
		t.Errorf("float32 → float64: %v, %v", back, err)
	}
	for name, x := range map[string]Tensor{
		"uint8": Of([]uint8{0, 200}, 2), "uint16": Of([]uint16{0, 200}, 2), "uint32": Of([]uint32{0, 200}, 2), "uint64": Of([]uint64{0, 200}, 2),
		"int16": Of([]int16{0, 200}, 2), "int32": Of([]int32{0, 200}, 2), "int64": Of([]int64{0, 200}, 2),
	} {
		if got, err := x.Int64s(); err != nil || !slices.Equal(got, []int64{0, 200}) {
			t.Errorf("%s → int64: %v, %v", name, got, err)
		}
		if _, err := x.Float32s(); err == nil {
			t.Errorf("%s was read as floating-point numbers", name)
		}
	}
	if got, err := Of([]int8{-1}, 1).Int64s(); err != nil || got[0] != -1 {
		t.Errorf("int8 → int64: %v, %v", got, err)
	}
	if got, err := Of([]bool{true, false}, 2).Int64s(); err != nil || !slices.Equal(got, []int64{1, 0}) {
		t.Errorf("bool → int64: %v, %v", got, err)
	}
	_, err = Of([]uint64{1, math.MaxInt64 + 1}, 2).Int64s()
	faulttest.Refused(t, err, "element 1 is 9223372036854775808")
	_, err = wide.Int64s()
	faulttest.Refused(t, err, "float64 where integers are needed")
	if err := wide.CopyFloat32s(make([]float32, 2)); err == nil {
		t.Error("3 elements were copied into 2")
	}
}

// TestHalf compares all 65,536 values with IEEE 754's definition, in float64.
func TestHalf(t *testing.T) {
	for bits := range 1 << 16 {
		sign := 1 - 2*float64(bits>>15)
		exponent, fraction := bits>>10&31, float64(bits&1023)
		want := sign * math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = sign * math.Ldexp(fraction/1024, -14)
		case exponent == 31 && fraction == 0:
			want = math.Inf(int(sign))
		case exponent == 31:
			want = math.NaN()
		}
		got := float64(halfToFloat(uint16(bits)))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != (bits>>15 == 1) {
			t.Fatalf("%04x is %v, want %v", bits, got, want)
		}
	}
}

func TestBrain(t *testing.T) {
	x := Tensor{BFloat16, []int{2}, []byte{0x80, 0x3f, 0x40, 0xc0}}
	// 0x3f80: exponent 127, fraction 0: 1. 0xc040: sign, exponent 128, fraction 1/2: -2·1.5.
	if got, err := x.Float32s(); err != nil || !slices.Equal(got, []float32{1, -3}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestShapesAreChecked(t *testing.T) {
	for name, misuse := range map[string]func(){
		"Of with a wrong shape": func() { Of([]int64{1, 2, 3}, 2, 2) },
		"rows past the end":     func() { Of([]int64{1, 2, 3, 4}, 2, 2).Rows(1, 3) },
		"rows backwards":        func() { Of([]int64{1, 2, 3, 4}, 2, 2).Rows(2, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			misuse()
		})
	}
	if n, ok := elements([]int{1 << 40, 1 << 40}); ok {
		t.Errorf("a shape of 2^80 elements has %d", n)
	}
	if n, ok := elements([]int{3, 0, 5}); n != 0 || !ok {
		t.Errorf("an empty shape has %d elements, %v", n, ok)
	}
	if got := Of([]float32{}, 0, 4).Rows(0, 0); got.Shape[0] != 0 || got.Shape[1] != 4 {
		t.Errorf("no rows of an empty tensor: %v", got.Shape)
	}
}

// TestGather compares the blocked copy with the definition of strides.
func TestGather(t *testing.T) {
	src := make([]uint16, 5000)
	for i := range src {
		src[i] = uint16(i * 7)
	}
	for _, c := range []struct{ shape, strides []int }{
		{[]int{}, []int{}},
		{[]int{7}, []int{3}},
		{[]int{40, 50}, []int{1, 40}}, // transposed, more than one square
		{[]int{33, 65}, []int{65, 1}},
		{[]int{2, 3, 4}, []int{1, 2, 6}}, // Fortran's order
		{[]int{3, 2, 2, 5}, []int{0, 100, 7, 11}},
		{[]int{1, 1, 1}, []int{9, 9, 9}},
	} {
		n, _ := elements(c.shape)
		got := make([]uint16, n)
		gather(Of(got, n).Data, Of(src, len(src)).Data, c.shape, c.strides, 2)
		index := make([]int, len(c.shape))
		for i := range got {
			rest, at := i, 0
			for d := len(c.shape) - 1; d >= 0; d-- {
				index[d] = rest % c.shape[d]
				rest /= c.shape[d]
				at += index[d] * c.strides[d]
			}
			if got[i] != src[at] {
				t.Fatalf("shape %v strides %v: element %v is %d, want %d", c.shape, c.strides, index, got[i], src[at])
			}
		}
	}
}
