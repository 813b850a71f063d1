// Package tensorio reads and writes tensors in files: NumPy's .npy,
// .safetensors, and PyTorch's zip files (.pth, .pt; TorchScript archives for
// inspection), along with labels in .npy, .csv and .txt.
//
// Files are mapped, not read, so opening one of many gigabytes costs nothing
// and its pages are shared with the system's cache. A pickle inside a .pth is
// interpreted by a machine that can build plain values and nothing else. What
// a file claims is checked against what it holds before anything is allocated
// for it, so a hostile file gets an error, in bounded memory.
//
// An error about a file's contents is marked with fault.Input and names the
// file and the byte or the tensor.
//
// github.com/sbinet/npyio and github.com/nlpodyssey/gopickle were considered.
// The former reads through an io.Reader only (no mapping), has no float16, and
// indexes a malformed header out of range; the latter loads every storage into
// memory, knows no bfloat16 views, and has no bounds on what a pickle builds.
package tensorio

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"roadmap/pkg/fault"
)

// Tensor is a dense array: row-major, little-endian, without gaps. Data may be
// a view of a mapped file: read it, never write it, and not after the file was
// closed.
type Tensor struct {
	DType DType
	Shape []int  // sizes, outermost first; none for a scalar
	Data  []byte // Len()*DType.Size() bytes
}

// Element is a Go type with the layout of a DType.
type Element interface {
	bool | uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64 | int64 | float32 | float64
}

// dtypeOf is the DType with E's layout.
func dtypeOf[E Element]() DType {
	var zero E
	switch any(zero).(type) {
	case bool:
		return Bool
	case uint8:
		return Uint8
	case int8:
		return Int8
	case uint16:
		return Uint16
	case int16:
		return Int16
	case uint32:
		return Uint32
	case int32:
		return Int32
	case uint64:
		return Uint64
	case int64:
		return Int64
	case float32:
		return Float32
	default:
		return Float64
	}
}

// Of wraps data, without copying it, as a tensor of the given shape. It panics
// when the shape does not hold len(data) elements: a mistake in the program.
func Of[E Element](data []E, shape ...int) Tensor {
	if n, ok := elements(shape); !ok || n != len(data) {
		panic(fmt.Sprintf("tensorio: %d elements do not fill the shape %v", len(data), shape))
	}
	var zero E
	size := int(unsafe.Sizeof(zero))
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*size)
	return Tensor{DType: dtypeOf[E](), Shape: slices.Clone(shape), Data: bytes}
}

// View returns t's elements as they are, copied only where the file has them
// at an address that E cannot be read from. A tensor of another type is an error.
func View[E Element](t Tensor) ([]E, error) {
	if want := dtypeOf[E](); t.DType != want {
		return nil, fault.Inputf("the tensor holds %v where %v is needed", t.DType, want)
	}
	return reinterpret[E](t.Data), nil
}

// reinterpret views bytes as elements, copying only for alignment.
func reinterpret[E Element](data []byte) []E {
	var zero E
	size := int(unsafe.Sizeof(zero))
	n := len(data) / size
	if n == 0 {
		return []E{}
	}
	first := unsafe.Pointer(unsafe.SliceData(data))
	if uintptr(first)%unsafe.Alignof(zero) == 0 {
		return unsafe.Slice((*E)(first), n)
	}
	out := make([]E, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), n*size), data)
	return out
}

// elements multiplies a shape out. It is false for a negative size and for a
// product that an int cannot hold.
func elements(shape []int) (int, bool) {
	n := 1
	empty := false
	for _, size := range shape {
		switch {
		case size < 0:
			return 0, false
		case size == 0:
			empty = true
		case n > math.MaxInt/size:
			return 0, false
		default:
			n *= size
		}
	}
	if empty {
		return 0, true
	}
	return n, true
}

// Len is the number of elements.
func (t Tensor) Len() int {
	n, _ := elements(t.Shape)
	return n
}

// Rows returns rows from (included) to to (excluded) of the outermost
// dimension, sharing t's memory. It panics outside the bounds, as slices do.
func (t Tensor) Rows(from, to int) Tensor {
	row := 0
	if t.Shape[0] > 0 {
		row = len(t.Data) / t.Shape[0]
	}
	if from < 0 || from > to || to > t.Shape[0] {
		panic(fmt.Sprintf("tensorio: rows [%d:%d] of %d", from, to, t.Shape[0]))
	}
	shape := append([]int{to - from}, t.Shape[1:]...)
	return Tensor{DType: t.DType, Shape: shape, Data: t.Data[from*row : to*row : to*row]}
}

// Float32s returns the elements of a floating-point tensor as float32: the
// memory itself where it is float32 already, else converted (float64 is
// rounded to nearest). Other types are an error.
func (t Tensor) Float32s() ([]float32, error) {
	if t.DType == Float32 {
		return reinterpret[float32](t.Data), nil
	}
	out := make([]float32, t.Len())
	return out, t.CopyFloat32s(out)
}

// CopyFloat32s is Float32s into memory of the caller's, of length t.Len().
func (t Tensor) CopyFloat32s(into []float32) error {
	if len(into) != t.Len() {
		return fmt.Errorf("tensorio: %d float32 cannot take %d elements", len(into), t.Len())
	}
	switch t.DType {
	case Float32:
		copy(into, reinterpret[float32](t.Data))
	case Float64:
		for i, x := range reinterpret[float64](t.Data) {
			into[i] = float32(x)
		}
	case Float16:
		for i, bits := range reinterpret[uint16](t.Data) {
			into[i] = halfToFloat(bits)
		}
	case BFloat16:
		for i, bits := range reinterpret[uint16](t.Data) {
			into[i] = brainToFloat(bits)
		}
	default:
		return notFloats(t.DType)
	}
	return nil
}

// Float64s returns the elements of a floating-point tensor as float64: the
// memory itself where it is float64 already, else converted, which is exact.
func (t Tensor) Float64s() ([]float64, error) {
	if t.DType == Float64 {
		return reinterpret[float64](t.Data), nil
	}
	narrow, err := t.Float32s()
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(narrow))
	for i, x := range narrow {
		out[i] = float64(x)
	}
	return out, nil
}

func notFloats(d DType) error {
	return fault.Inputf("the tensor holds %v where floating-point numbers are needed (float16, bfloat16, float32 or float64)", d)
}

// Int64s returns the elements of an integer or bool tensor as int64: the
// memory itself where it is int64 already. A uint64 beyond the range of int64
// is an error that names its position, and so are other types.
func (t Tensor) Int64s() ([]int64, error) {
	switch t.DType {
	case Int64:
		return reinterpret[int64](t.Data), nil
	case Uint64:
		values := reinterpret[uint64](t.Data)
		for i, x := range values {
			if x > math.MaxInt64 {
				return nil, fault.Inputf("element %d is %d, beyond the range of int64", i, x)
			}
		}
		return widen(values), nil
	case Bool, Uint8:
		return widen(reinterpret[uint8](t.Data)), nil
	case Int8:
		return widen(reinterpret[int8](t.Data)), nil
	case Uint16:
		return widen(reinterpret[uint16](t.Data)), nil
	case Int16:
		return widen(reinterpret[int16](t.Data)), nil
	case Uint32:
		return widen(reinterpret[uint32](t.Data)), nil
	case Int32:
		return widen(reinterpret[int32](t.Data)), nil
	}
	return nil, fault.Inputf("the tensor holds %v where integers are needed", t.DType)
}

func widen[E uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64](values []E) []int64 {
	out := make([]int64, len(values))
	for i, x := range values {
		out[i] = int64(x)
	}
	return out
}

// brainToFloat widens a bfloat16, the upper half of a float32.
func brainToFloat(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }

// halfToFloat widens an IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15),
// 10 of fraction. Every value, subnormals and NaN payloads included, is exact.
func halfToFloat(bits uint16) float32 {
	sign := uint32(bits>>15) << 31
	exponent := uint32(bits >> 10 & 0x1f)
	fraction := uint32(bits & 0x3ff)
	switch exponent {
	case 0: // zero or subnormal: fraction · 2^-24
		small := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(small) | sign)
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}
