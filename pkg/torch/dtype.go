package torch

import "fmt"

// DType is the type of a tensor's elements, numbered as libtorch numbers them.
type DType int8

// The element types in use. BFloat16 has float32's range and 8 bits of mantissa.
const (
	Uint8    DType = 0
	Int8     DType = 1
	Int16    DType = 2
	Int32    DType = 3
	Int64    DType = 4
	Float16  DType = 5
	Float32  DType = 6
	Float64  DType = 7
	Bool     DType = 11
	BFloat16 DType = 15
)

var dtypes = map[DType]struct {
	name  string
	bytes int64
}{
	Uint8: {"uint8", 1}, Int8: {"int8", 1}, Int16: {"int16", 2}, Int32: {"int32", 4}, Int64: {"int64", 8},
	Float16: {"float16", 2}, Float32: {"float32", 4}, Float64: {"float64", 8}, Bool: {"bool", 1}, BFloat16: {"bfloat16", 2},
}

// String returns the name that PyTorch and NumPy use, such as "float32".
func (d DType) String() string {
	if t, ok := dtypes[d]; ok {
		return t.name
	}
	return fmt.Sprintf("dtype(%d)", int8(d))
}

// Bytes is the size of one element.
func (d DType) Bytes() int64 { return dtypes[d].bytes }

// IsFloat says whether elements are floating-point numbers.
func (d DType) IsFloat() bool {
	return d == Float32 || d == Float64 || d == Float16 || d == BFloat16
}

// ParseDType reads a name such as "float32" or "bfloat16".
func ParseDType(name string) (DType, error) {
	for d, t := range dtypes {
		if t.name == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf("torch: unknown dtype %q: use float32, float64, bfloat16, float16, int64, int32, int16, int8, uint8 or bool", name)
}

// Element is a Go type that tensors can be made from and read into.
type Element interface {
	float32 | float64 | int64 | int32 | int16 | int8 | uint8 | bool
}

// dtypeOf is the dtype whose elements are laid out as E.
func dtypeOf[E Element]() DType {
	var e E
	switch any(e).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int64:
		return Int64
	case int32:
		return Int32
	case int16:
		return Int16
	case int8:
		return Int8
	case uint8:
		return Uint8
	}
	return Bool
}
