package tensorio

// DType is the type of a tensor's elements. The zero value, Invalid, stands
// for types that files may hold and this package does not read.
type DType uint8

// The element types, whose String is the name that NumPy and PyTorch use.
const (
	Invalid DType = iota
	Bool
	Uint8
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Uint64
	Int64
	Float16
	BFloat16
	Float32
	Float64
	dtypes // how many there are
)

var dtypeFacts = [dtypes]struct {
	name string
	size int
}{
	{"invalid", 0}, {"bool", 1},
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2},
	{"uint32", 4}, {"int32", 4}, {"uint64", 8}, {"int64", 8},
	{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8},
}

func (d DType) String() string {
	if d >= dtypes {
		d = Invalid
	}
	return dtypeFacts[d].name
}

// Size is the bytes one element takes; 0 for Invalid.
func (d DType) Size() int {
	if d >= dtypes {
		return 0
	}
	return dtypeFacts[d].size
}

// IsFloat reports whether d is a floating-point type.
func (d DType) IsFloat() bool { return d >= Float16 && d < dtypes }

// IsInteger reports whether d is an integer type; bool is not one.
func (d DType) IsInteger() bool { return d >= Uint8 && d <= Int64 }
