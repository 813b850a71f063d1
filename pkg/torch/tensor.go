package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"strings"
	"unsafe"
)

// Tensor is a handle to a libtorch tensor, owned by a scope. A tensor is dead
// when the operation that was to make it failed or its scope has closed;
// operations on a dead tensor do nothing.
type Tensor struct {
	h     C.rt_handle
	scope *Scope
}

// Scope returns the scope that owns t.
func (t *Tensor) Scope() *Scope { return t.scope }

// Err returns the first error of t's scope.
func (t *Tensor) Err() error {
	if err := t.scope.Err(); err != nil {
		return err
	}
	if t.h == 0 {
		return t.why("Err")
	}
	return nil
}

// why says for what reason t is dead.
func (t *Tensor) why(op string) error {
	t.scope.mu.Lock()
	defer t.scope.mu.Unlock()
	if t.scope.err != nil {
		t.scope.seen = true // it lives on in the scope that asked
		return t.scope.err
	}
	return &OpError{Op: op, Message: "the tensor's scope was closed before this operation", Cause: ErrClosed}
}

// Keep moves t to the parent of its scope, so that it outlives it.
func (t *Tensor) Keep() (*Tensor, error) {
	if t.scope.parent == nil {
		return t, t.Err()
	}
	return t.KeepIn(t.scope.parent)
}

// KeepIn moves t to another scope, usually one further out.
func (t *Tensor) KeepIn(s *Scope) (*Tensor, error) {
	if err := t.Err(); err != nil {
		return t, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return t, &OpError{Op: "KeepIn", Message: "the scope is closed", Cause: ErrClosed}
	}
	t.scope = s
	s.tensors = append(s.tensors, t)
	return t, nil
}

// Alias returns another handle to the same tensor, in scope s.
func (t *Tensor) Alias(s *Scope) *Tensor {
	if _, ok := join("Alias", t); !ok {
		s.fail(t.why("Alias"))
		return s.dead()
	}
	return s.one("Alias", C.rt_alias(t.h), t)
}

// Free frees t before its scope closes. Use it for a large tensor in a long formula.
func (t *Tensor) Free() {
	if t.h != 0 {
		C.rt_free_all(&t.h, 1)
		live.Add(-1)
		t.h = 0
	}
}

// ---- what a tensor is --------------------------------------------------------------------

func (t *Tensor) meta() (C.rt_meta, bool) {
	if t == nil || t.h == 0 {
		return C.rt_meta{}, false
	}
	return C.rt_describe(t.h), true
}

// Shape returns the sizes, first dimension first; nil for a dead tensor.
func (t *Tensor) Shape() []int64 {
	m, ok := t.meta()
	if !ok {
		return nil
	}
	shape := make([]int64, m.dims)
	if m.dims > C.RT_MAX_DIMS {
		C.rt_sizes(t.h, (*C.int64_t)(unsafe.SliceData(shape)))
		return shape
	}
	for i := range shape {
		shape[i] = int64(m.size[i])
	}
	return shape
}

// Size returns one size; negative dimensions count from the last. It is 0 for a
// dead tensor and for a dimension that t does not have.
func (t *Tensor) Size(dim int) int64 {
	m, ok := t.meta()
	if dim < 0 {
		dim += int(m.dims)
	}
	if !ok || dim < 0 || dim >= int(m.dims) {
		return 0
	}
	if m.dims > C.RT_MAX_DIMS {
		return t.Shape()[dim]
	}
	return int64(m.size[dim])
}

// Dims is the number of dimensions.
func (t *Tensor) Dims() int {
	m, _ := t.meta()
	return int(m.dims)
}

// Numel is the number of elements; 0 for a dead tensor.
func (t *Tensor) Numel() int64 {
	if t == nil || t.h == 0 {
		return 0
	}
	n := int64(1)
	for _, size := range t.Shape() {
		n *= size
	}
	return n
}

// DType returns the element type; Uint8, the zero value, for a dead tensor.
func (t *Tensor) DType() DType {
	m, _ := t.meta()
	return DType(m.dtype)
}

// Device returns where the elements are; the CPU for a dead tensor.
func (t *Tensor) Device() Device {
	m, ok := t.meta()
	if !ok {
		return CPU
	}
	return deviceOf(m.device)
}

// IsContiguous says whether t is laid out row by row, or with channels last.
func (t *Tensor) IsContiguous(channelsLast bool) bool {
	return t.h != 0 && C.rt_is_contiguous(t.h, cbool(channelsLast)) != 0
}

// String describes t in an error message: dtype, shape, device.
func (t *Tensor) String() string {
	if t == nil || t.h == 0 {
		return "dead tensor"
	}
	sizes := make([]string, 0, 4)
	for _, n := range t.Shape() {
		sizes = append(sizes, fmt.Sprint(n))
	}
	return fmt.Sprintf("%s [%s] %s", t.DType(), strings.Join(sizes, ", "), t.Device())
}

// ---- from Go and back ---------------------------------------------------------------------

// elements is the number of elements of a shape, or an error.
func elements(shape []int64) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative size in shape %v", shape)
		}
		if d != 0 && n > math.MaxInt64/d {
			return 0, fmt.Errorf("shape %v has too many elements", shape)
		}
		n *= d
	}
	if len(shape) > C.RT_MAX_DIMS {
		return 0, fmt.Errorf("shape %v has more than %d dimensions", shape, int(C.RT_MAX_DIMS))
	}
	return n, nil
}

// From copies Go data into a new CPU tensor of the given shape; without a shape
// it is a vector. The number of elements must agree.
func From[E Element](s *Scope, data []E, shape ...int64) *Tensor {
	if shape == nil {
		shape = []int64{int64(len(data))}
	}
	if !s.ready("From") || !s.fits("From", len(data), shape) {
		return s.dead()
	}
	r := C.rt_from(unsafe.Pointer(unsafe.SliceData(data)), (*C.int64_t)(unsafe.SliceData(shape)), C.int(len(shape)), C.int(dtypeOf[E]()))
	return s.one("From", r)
}

// FromBytes copies raw little-endian elements of any dtype into a new CPU tensor.
func FromBytes(s *Scope, data []byte, dtype DType, shape ...int64) *Tensor {
	if !s.ready("FromBytes") {
		return s.dead()
	}
	if size := dtype.Bytes(); size == 0 || int64(len(data))%size != 0 {
		s.fail(&OpError{Op: "FromBytes", Message: fmt.Sprintf("%d bytes are no whole number of elements of %s", len(data), dtype)})
		return s.dead()
	}
	if !s.fits("FromBytes", len(data)/int(dtype.Bytes()), shape) {
		return s.dead()
	}
	r := C.rt_from(unsafe.Pointer(unsafe.SliceData(data)), (*C.int64_t)(unsafe.SliceData(shape)), C.int(len(shape)), C.int(dtype))
	return s.one("FromBytes", r)
}

// Scalar returns a float32 tensor without dimensions.
func (s *Scope) Scalar(value float64) *Tensor { return s.Full(nil, value, Float32, CPU) }

func (s *Scope) fits(op string, have int, shape []int64) bool {
	n, err := elements(shape)
	if err == nil && n != int64(have) {
		err = fmt.Errorf("%d elements do not fill shape %v", have, shape)
	}
	if err != nil {
		s.fail(&OpError{Op: op, Message: err.Error()})
	}
	return err == nil
}

// Read copies the elements of t to Go in row order, converting to E. It waits
// for the device.
func Read[E Element](t *Tensor) ([]E, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	data := make([]E, t.Numel())
	return data, ReadInto(t, data)
}

// ReadInto is Read into a slice of exactly t.Numel() elements.
func ReadInto[E Element](t *Tensor, data []E) error {
	if err := t.Err(); err != nil {
		return err
	}
	size := int64(len(data)) * dtypeOf[E]().Bytes()
	if msg := C.rt_read(t.h, unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(size), C.int(dtypeOf[E]())); msg != nil {
		return opError("Read", text(msg), []*Tensor{t})
	}
	return nil
}

// ReadBytes copies the raw elements of t, in its own dtype and in row order.
func (t *Tensor) ReadBytes() ([]byte, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	data := make([]byte, t.Numel()*t.DType().Bytes())
	if msg := C.rt_read(t.h, unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(len(data)), C.int(t.DType())); msg != nil {
		return nil, opError("ReadBytes", text(msg), []*Tensor{t})
	}
	return data, nil
}

// Float32s reads t as float32.
func (t *Tensor) Float32s() ([]float32, error) { return Read[float32](t) }

// Float64s reads t as float64.
func (t *Tensor) Float64s() ([]float64, error) { return Read[float64](t) }

// Int64s reads t as int64.
func (t *Tensor) Int64s() ([]int64, error) { return Read[int64](t) }

// Item reads the only element of t.
func (t *Tensor) Item() (float64, error) {
	if err := t.Err(); err != nil {
		return 0, err
	}
	if n := t.Numel(); n != 1 {
		return 0, opError("Item", fmt.Sprintf("a tensor of %d elements has no single value", n), []*Tensor{t})
	}
	var v [1]float64
	err := ReadInto(t, v[:])
	return v[0], err
}

// Data is the address of t's first element in libtorch's memory, for kernels
// over contiguous tensors on the CPU; t must be alive while it is used.
func (t *Tensor) Data() unsafe.Pointer {
	if t.h == 0 {
		return nil
	}
	return C.rt_data(t.h)
}

// ---- moves and copies ---------------------------------------------------------------------

// To returns t on a device and as a dtype, t itself (another handle) if it is so already.
func (t *Tensor) To(device Device, dtype DType) *Tensor { return t.to(device, dtype, -1) }

// ToDType returns t as another dtype.
func (t *Tensor) ToDType(dtype DType) *Tensor { return t.to(t.Device(), dtype, -1) }

// ToDevice returns t on another device.
func (t *Tensor) ToDevice(device Device) *Tensor { return t.to(device, t.DType(), -1) }

// ChannelsLast returns the images t [n, c, h, w] laid out with channels last.
func (t *Tensor) ChannelsLast() *Tensor { return t.to(t.Device(), t.DType(), 1) }

func (t *Tensor) to(device Device, dtype DType, format C.int) *Tensor {
	s, ok := join("To", t)
	if !ok {
		return s.dead()
	}
	if err := device.use(); err != nil {
		s.fail(err)
		return s.dead()
	}
	return s.one("To", C.rt_to(t.h, device.c(), C.int(dtype), format), t)
}

// CopyInPlace copies src into t, converting dtype and device and broadcasting.
func (t *Tensor) CopyInPlace(src *Tensor) *Tensor {
	s, ok := join("CopyInPlace", t, src)
	if !ok {
		return t
	}
	if msg := C.rt_copy(t.h, src.h); msg != nil {
		s.refuse("CopyInPlace", msg, t, src)
	}
	return t
}

// Clone returns a copy with its own storage.
func (t *Tensor) Clone() *Tensor {
	s, ok := join("Clone", t)
	if !ok {
		return s.dead()
	}
	return s.one("Clone", C.rt_clone(t.h), t)
}

// SetData makes t hold data's elements, of whatever dtype, device and layout,
// instead of its own, and keeps t's place in histories and optimisers. t must
// have no gradient.
func (t *Tensor) SetData(data *Tensor) error {
	if err := aliveAll([]*Tensor{t, data}); err != nil {
		return err
	}
	return failure("SetData", C.rt_set_data(t.h, data.h), t, data)
}

// MMInto writes the product of the matrices a and b into t, of the right shape already.
func (t *Tensor) MMInto(a, b *Tensor) *Tensor {
	s, ok := join("MMInto", t, a, b)
	if !ok {
		return t
	}
	if msg := C.rt_mm_into(t.h, a.h, b.h); msg != nil {
		s.refuse("MMInto", msg, t, a, b)
	}
	return t
}

// ---- indexing -----------------------------------------------------------------------------

// Slice returns a view of entries start, start+step, … below end along dim.
func (t *Tensor) Slice(dim, start, end, step int64) *Tensor {
	s, ok := join("Slice", t)
	if !ok {
		return s.dead()
	}
	return s.one("Slice", C.rt_slice(t.h, C.int64_t(dim), C.int64_t(start), C.int64_t(end), C.int64_t(step)), t)
}

// Index returns t[indices[0], indices[1], …] as NumPy does; a nil index takes
// its dimension whole.
func (t *Tensor) Index(indices ...*Tensor) *Tensor {
	s, ok := joinOptional("Index", []*Tensor{t}, indices...)
	if !ok {
		return s.dead()
	}
	p, n := handles(indices)
	return s.one("Index", C.rt_index(t.h, p, n), t)
}

// IndexPutInPlace writes (or, with accumulate, adds) values at
// t[indices[0], indices[1], …].
func (t *Tensor) IndexPutInPlace(values *Tensor, accumulate bool, indices ...*Tensor) *Tensor {
	s, ok := joinOptional("IndexPutInPlace", []*Tensor{t, values}, indices...)
	if !ok {
		return t
	}
	p, n := handles(indices)
	if msg := C.rt_index_put(t.h, p, n, values.h, cbool(accumulate)); msg != nil {
		s.refuse("IndexPutInPlace", msg, t, values)
	}
	return t
}
