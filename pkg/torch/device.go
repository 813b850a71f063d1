package torch

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/cpu"

	"roadmap/pkg/fault"
)

// Device is where a tensor's elements are: the CPU (the zero value) or a GPU.
type Device struct{ gpu int } // 0: the CPU; n: CUDA device n-1

// CPU is the host's memory and processor.
var CPU = Device{}

// CUDA returns the GPU with an index, from 0. It does not ask whether there is one.
func CUDA(index int) Device { return Device{gpu: index + 1} }

// IsCUDA says whether the device is a GPU.
func (d Device) IsCUDA() bool { return d.gpu > 0 }

// Index is the GPU's number, -1 for the CPU.
func (d Device) Index() int { return d.gpu - 1 }

// String is "cpu" or "cuda:0", as ParseDevice reads it.
func (d Device) String() string {
	if d.gpu == 0 {
		return "cpu"
	}
	return "cuda:" + strconv.Itoa(d.gpu-1)
}

func (d Device) c() C.int { return C.int(d.gpu - 1) }

func deviceOf(index C.int) Device { return Device{gpu: int(index) + 1} }

// use makes sure that the device exists, once it is first wanted.
func (d Device) use() error {
	if d.gpu == 0 {
		return nil
	}
	if n, why := gpus(); d.gpu > n {
		return fault.Inputf("device %s: %s; use --device cpu", d, noGPU(n, why))
	}
	return nil
}

func noGPU(n int, why string) string {
	switch {
	case n == 1:
		return "this machine has one GPU, cuda:0"
	case n > 1:
		return fmt.Sprintf("this machine has %d GPUs, cuda:0 to cuda:%d", n, n-1)
	case why != "":
		return "CUDA is not available here (" + why + ")"
	}
	return "no GPU was found on this machine"
}

// gpus loads libtorch's CUDA half and counts the devices, once.
var gpus = sync.OnceValues(func() (count int, why string) {
	if msg := C.rt_load_cuda(); msg != nil {
		return 0, strings.Replace(firstLine(text(msg)), ": cannot open shared object file: No such file or directory", " is not installed", 1)
	}
	return int(C.rt_cuda_count()), ""
})

// CUDADevices returns the GPUs, and in why, when there are none, what keeps
// libtorch from using one.
func CUDADevices() (devices []Device, why string) {
	n, why := gpus()
	for i := range n {
		devices = append(devices, CUDA(i))
	}
	if n == 0 {
		why = noGPU(0, why)
	}
	return devices, why
}

// ParseDevice reads auto, cpu, cuda or cuda:N. auto is the first GPU if there
// is one. A GPU that this machine lacks is an error that says so.
func ParseDevice(name string) (Device, error) {
	switch {
	case name == "cpu":
		return CPU, nil
	case name == "auto" || name == "":
		if n, _ := gpus(); n > 0 {
			return CUDA(0), nil
		}
		return CPU, nil
	case name == "cuda":
		return CUDA(0), CUDA(0).use()
	case strings.HasPrefix(name, "cuda:"):
		i, err := strconv.Atoi(name[len("cuda:"):])
		if err == nil && i >= 0 {
			return CUDA(i), CUDA(i).use()
		}
	}
	return CPU, fault.Inputf("unknown device %q: use auto, cpu or cuda:0", name)
}

// Synchronize waits until the device has finished all work given to it.
func Synchronize(d Device) error {
	if err := d.use(); err != nil {
		return err
	}
	return failure("Synchronize", C.rt_synchronize(d.c()))
}

// MemoryStats are bytes of a device: what tensors use, what the allocator holds
// for them, the most that tensors used at once, and what the device has.
type MemoryStats struct{ Allocated, Reserved, Peak, Free, Total int64 }

// Memory reads a device's memory statistics. For the CPU they count tensors of
// 1 MiB and more, and Free and Total are zero.
func Memory(d Device) (MemoryStats, error) {
	if err := d.use(); err != nil {
		return MemoryStats{}, err
	}
	var m C.rt_memory
	if err := failure("Memory", C.rt_memory_stats(d.c(), &m)); err != nil {
		return MemoryStats{}, err
	}
	return MemoryStats{int64(m.allocated), int64(m.reserved), int64(m.peak), int64(m.free), int64(m.total)}, nil
}

// ResetPeakMemory starts Peak anew at what is allocated now.
func ResetPeakMemory(d Device) error {
	if err := d.use(); err != nil {
		return err
	}
	return failure("ResetPeakMemory", C.rt_reset_peak(d.c()))
}

// EmptyCache gives memory that the allocator holds and no tensor uses back to the device.
func EmptyCache(d Device) error {
	if err := d.use(); err != nil {
		return err
	}
	return failure("EmptyCache", C.rt_empty_cache(d.c()))
}

// Version is libtorch's version, such as "2.11.0".
func Version() string { return text(C.rt_version()) }

// BuildInfo is libtorch's own description of its build and its threads.
func BuildInfo() string { return text(C.rt_config()) }

// Threads is the number of threads one operation may use.
func Threads() int { return int(C.rt_threads()) }

// SetThreads sets the number of threads one operation may use; 0 leaves it.
// Results are bit-equal from run to run for the same number. libtorch keeps the
// number per thread of the system, so lock the goroutine to its thread
// (runtime.LockOSThread) before, and compute on that goroutine.
func SetThreads(n int) {
	if n > 0 {
		C.rt_set_threads(C.int(n))
	}
}

// SetDeterministic asks libtorch for algorithms that give the same bits every
// time (on a GPU some are slower, and a few operations have none and warn).
func SetDeterministic(on bool) { C.rt_deterministic(cbool(on)) }

// FastBFloat16 says whether products of bfloat16 are much faster on a device
// than those of float32: on a GPU, and on a processor with instructions for
// them (AMX or AVX-512 BF16).
func FastBFloat16(d Device) bool {
	return d.IsCUDA() || cpu.X86.HasAMXBF16 || cpu.X86.HasAVX512BF16
}

// AllowTF32 lets GPUs round the factors of float32 products to 10 bits of
// mantissa. It is off unless asked for.
func AllowTF32(on bool) { C.rt_allow_tf32(cbool(on)) }

// failure turns a shim's error text into an error.
func failure(op string, msg *C.char, operands ...*Tensor) error {
	if msg == nil {
		return nil
	}
	return opError(op, text(msg), operands)
}
