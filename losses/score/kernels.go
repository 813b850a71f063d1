package score

/*
// The runtime of OpenMP is the one that libtorch brings, so that kernels and
// libtorch's operations share its threads.
#cgo CXXFLAGS: -std=c++17 -Wno-psabi -fopenmp
#cgo LDFLAGS: -l:libgomp.so.1
#include "kernels.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"roadmap/pkg/torch"
)

// kernelLevel is the instruction set of the kernels: 0 the best that the
// processor has, 1 baseline, 2 AVX2, 3 AVX-512. Tests compare them.
var kernelLevel C.int

func setKernelLevel(level int) { kernelLevel = C.int(level) }

func hasKernelLevel(level int) bool { return C.sc_has(C.int(level)) != 0 }

// kernels says whether kernels can work on t: a matrix of float32 or float64 on
// the CPU.
func kernels(t *torch.Tensor) bool {
	return !t.Device().IsCUDA() && (t.DType() == torch.Float32 || t.DType() == torch.Float64)
}

func how(t *torch.Tensor) C.sc_run {
	return C.sc_run{is_double: flag(t.DType() == torch.Float64), level: kernelLevel, threads: C.int(torch.Threads())}
}

func flag(on bool) C.int {
	if on {
		return 1
	}
	return 0
}

// matrixOf is the memory of a contiguous matrix.
func matrixOf(t *torch.Tensor) C.sc_matrix {
	return C.sc_matrix{data: t.Data(), rows: C.int64_t(t.Size(0)), columns: C.int64_t(t.Size(1))}
}

// floats is the memory of a contiguous float64 tensor.
func floats(t *torch.Tensor) *C.double { return (*C.double)(t.Data()) }

var errKernelMemory = errors.New("out of memory in the working space of a row of scores")

// ready says whether a kernel may work on tensors. If not, their scope has an error.
func ready(tensors ...*torch.Tensor) bool {
	for _, t := range tensors {
		if err := t.Err(); err != nil {
			t.Scope().Fail(err)
			return false
		}
		if !t.IsContiguous(false) {
			t.Scope().Fail(fmt.Errorf("a kernel got %s not in row order", t))
			return false
		}
	}
	return true
}

// done passes a kernel's failure on to the scope of t.
func done(t *torch.Tensor, status C.int) {
	if status != 0 {
		t.Scope().Fail(errKernelMemory)
	}
}

// lists are a relevance as the kernels take it.
type lists struct {
	members    []int32 // columns of all classes
	classAt    []int64 // class c has members[classAt[c]:classAt[c+1]]
	classOf    []int32 // of each query
	excluded   []int32 // of all queries
	excludedAt []int64 // those of query i are excluded[excludedAt[i]:excludedAt[i+1]]; nil: none of any query
}

// c is the lists in C's terms; pin keeps their memory in place during the call.
func (l *lists) c(pin *runtime.Pinner) *C.sc_lists {
	c := &C.sc_lists{members: int32s(l.members), class_at: int64s(l.classAt), class_of: int32s(l.classOf)}
	pin.Pin(unsafe.SliceData(l.classAt))
	pin.Pin(unsafe.SliceData(l.classOf))
	if len(l.members) > 0 {
		pin.Pin(unsafe.SliceData(l.members))
	}
	if len(l.excluded) > 0 {
		c.excluded, c.excluded_at = int32s(l.excluded), int64s(l.excludedAt)
		pin.Pin(unsafe.SliceData(l.excluded))
		pin.Pin(unsafe.SliceData(l.excludedAt))
	}
	return c
}

func int32s(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(s)) }
func int64s(s []int64) *C.int64_t { return (*C.int64_t)(unsafe.SliceData(s)) }
