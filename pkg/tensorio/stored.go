package tensorio

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// expansion is how large a copy of a tensor may be whose elements repeat
// (stride 0) and which is therefore larger than what the file holds of it.
const expansion = 64 << 20

// Stored is a tensor as it lies in a file: known by type and shape, its data
// not touched before Read.
type Stored struct {
	DType DType // Invalid where this package cannot read the type; Read says which
	Shape []int

	storage []byte       // the memory that the strides walk over
	offset  int          // of the first element, in elements
	strides []int        // in elements, one a dimension, none negative
	swap    bool         // big-endian
	other   string       // name of a type that cannot be read
	whole   func() error // compares the bytes with the file's checksum, once; nil: the file has none
}

// Bytes is the size of the tensor's data once read.
func (s *Stored) Bytes() int {
	n, _ := elements(s.Shape)
	return n * s.DType.Size()
}

// Type names the element type, also where it is one that cannot be read.
func (s *Stored) Type() string {
	if s.DType == Invalid {
		return s.other
	}
	return s.DType.String()
}

// place fills in a view of storage after checking that every element of it
// lies inside; the caller has set DType and Shape.
func (s *Stored) place(storage []byte, offset int, strides []int) error {
	size := s.DType.Size()
	n, ok := elements(s.Shape)
	if !ok || n > maxBytes/size {
		return fmt.Errorf("the shape %s is beyond any memory", shapeText(s.Shape))
	}
	available := len(storage) / size
	last := offset // index of the element farthest out
	for i, length := range s.Shape {
		if strides[i] < 0 {
			return fmt.Errorf("dimension %d has the negative stride %d", i, strides[i])
		}
		if n == 0 || length == 1 {
			continue
		}
		if strides[i] > (available-last)/(length-1) { // rounded towards zero, so never too lenient by overflow
			return fmt.Errorf("shape %s with strides %s from element %d on leaves its storage of %d elements",
				shapeText(s.Shape), shapeText(strides), offset, available)
		}
		last += strides[i] * (length - 1)
	}
	if n > 0 && last >= available {
		return fmt.Errorf("shape %s with strides %s from element %d on leaves its storage of %d elements",
			shapeText(s.Shape), shapeText(strides), offset, available)
	}
	s.storage, s.offset, s.strides = storage, offset, strides
	return nil
}

// maxBytes bounds one tensor, so that sums of a few sizes never overflow.
const maxBytes = 1 << 46

// Read returns the tensor: a view of the file where its elements lie there in
// order, else a copy. Where the file has a checksum, the first Read compares
// it; what does not agree is ErrDamaged.
func (s *Stored) Read() (Tensor, error) {
	if s.DType == Invalid {
		return Tensor{}, fmt.Errorf("elements of type %s cannot be read; convert the tensor to float32 where the file is made", s.other)
	}
	t := Tensor{DType: s.DType, Shape: slices.Clone(s.Shape)}
	if s.whole != nil {
		if err := s.whole(); err != nil {
			return Tensor{}, err
		}
	}
	size, bytes := s.DType.Size(), s.Bytes()
	if bytes == 0 {
		return t, nil
	}
	if !s.swap && contiguous(s.Shape, s.strides) {
		t.Data = s.storage[s.offset*size:][:bytes:bytes]
		return t, nil
	}
	if bytes > len(s.storage) && bytes > expansion {
		return Tensor{}, fmt.Errorf("shape %s repeats a storage of %d bytes into %d; save the tensor with .contiguous()",
			shapeText(s.Shape), len(s.storage), bytes)
	}
	t.Data = make([]byte, bytes)
	gather(t.Data, s.storage[s.offset*size:], s.Shape, s.strides, size)
	if s.swap {
		swapBytes(t.Data, size)
	}
	return t, nil
}

// rowMajor is the strides of a shape without gaps, in elements.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = step
		step *= max(shape[i], 1)
	}
	return strides
}

// columnMajor is the strides of Fortran's order.
func columnMajor(shape []int) []int {
	strides := make([]int, len(shape))
	step := 1
	for i := range shape {
		strides[i] = step
		step *= max(shape[i], 1)
	}
	return strides
}

// contiguous reports whether strides walk the shape in row-major order without
// gaps; the stride of a dimension of size 1 is never taken.
func contiguous(shape, strides []int) bool {
	step := 1
	for i := len(shape) - 1; i >= 0; i-- {
		if shape[i] != 1 && strides[i] != step {
			return false
		}
		step *= shape[i]
	}
	return true
}

// gather copies the elements of a strided view to dst in row-major order. The
// last two dimensions are walked in squares, so that a transposed matrix
// is read and written a cache line at a time.
func gather(dst, src []byte, shape, strides []int, size int) {
	for len(shape) < 2 {
		shape, strides = append([]int{1}, shape...), append([]int{0}, strides...)
	}
	outer := len(shape) - 2
	rows, cols := shape[outer], shape[outer+1]
	plane := rows * cols * size
	index := make([]int, outer)
	for start := 0; ; {
		gatherPlane(dst[:plane], src[start*size:], rows, cols, strides[outer], strides[outer+1], size)
		dst = dst[plane:]
		dim := outer - 1
		for ; dim >= 0; dim-- { // count up like an odometer
			index[dim]++
			start += strides[dim]
			if index[dim] < shape[dim] {
				break
			}
			start -= index[dim] * strides[dim]
			index[dim] = 0
		}
		if dim < 0 {
			return
		}
	}
}

func gatherPlane(dst, src []byte, rows, cols, rowStride, colStride, size int) {
	const square = 32
	for top := 0; top < rows; top += square {
		for left := 0; left < cols; left += square {
			for r := top; r < min(top+square, rows); r++ {
				for c := left; c < min(left+square, cols); c++ {
					from, to := (r*rowStride+c*colStride)*size, (r*cols+c)*size
					switch size {
					case 1:
						dst[to] = src[from]
					case 2:
						binary.NativeEndian.PutUint16(dst[to:], binary.NativeEndian.Uint16(src[from:]))
					case 4:
						binary.NativeEndian.PutUint32(dst[to:], binary.NativeEndian.Uint32(src[from:]))
					case 8:
						binary.NativeEndian.PutUint64(dst[to:], binary.NativeEndian.Uint64(src[from:]))
					}
				}
			}
		}
	}
}

// swapBytes turns big-endian elements into little-endian ones, in place.
func swapBytes(data []byte, size int) {
	switch size {
	case 2:
		for i := 0; i < len(data); i += 2 {
			binary.LittleEndian.PutUint16(data[i:], binary.BigEndian.Uint16(data[i:]))
		}
	case 4:
		for i := 0; i < len(data); i += 4 {
			binary.LittleEndian.PutUint32(data[i:], binary.BigEndian.Uint32(data[i:]))
		}
	case 8:
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], binary.BigEndian.Uint64(data[i:]))
		}
	}
}

// shapeText prints a shape for an error, shortened where it is absurdly long.
func shapeText(shape []int) string {
	if len(shape) > 8 {
		return fmt.Sprintf("%v… (%d dimensions)", shape[:8], len(shape))
	}
	return fmt.Sprint(shape)
}
