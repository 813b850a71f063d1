package torch

/*
// libtorch's parallel_for is a template over OpenMP: without it, it is a loop.
// The runtime is the one that libtorch brings and uses.
#cgo CXXFLAGS: -std=c++17 -DGOTCH_COMPAT_H -fopenmp
#cgo LDFLAGS: -ltorch_cpu -lc10 -ldl -l:libgomp.so.1
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	// The table of libtorch operations, as C symbols; ops_generated.go calls them.
	_ "github.com/sugarme/gotch/libtch"
)

// text takes over a C string that the shim allocated.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	defer C.free(unsafe.Pointer(s))
	return C.GoString(s)
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
