package torch

/*
#include <stdlib.h>
#include "shim.h"
#include "script.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"roadmap/pkg/fault"
	"roadmap/pkg/files"
)

// Script is a TorchScript module: a network that PyTorch saved with
// torch.jit.save, its program included. It lives as long as its scope. Running
// it runs that program: load modules from people you trust.
type Script struct{ module *Tensor }

// LoadScript reads a module onto a device. A file that is none is an input error.
func LoadScript(s *Scope, path string, device Device) (*Script, error) {
	if err := device.use(); err != nil {
		return nil, err
	}
	if f, _, err := files.Open(path); err != nil {
		return nil, err
	} else if err := f.Close(); err != nil {
		return nil, err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	t := s.one("LoadScript", C.rt_script_load(name, device.c()))
	if err := t.Err(); err != nil {
		var op *OpError
		if errors.As(err, &op) && op.Cause == nil {
			err = fault.Inputf("%s: not a TorchScript module that this libtorch can run (%s); make one with torch.jit.save(torch.jit.script(network), path)", path, op.Message)
		}
		return nil, err
	}
	return &Script{module: t}, nil
}

// Train puts the module into training or evaluation mode.
func (m *Script) Train(on bool) error {
	if err := m.module.Err(); err != nil {
		return err
	}
	return failure("Script.Train", C.rt_script_train(m.module.h, cbool(on)))
}

// Forward runs the module's forward method on one tensor. It must return one.
func (m *Script) Forward(x *Tensor) *Tensor {
	s, ok := join("Script.Forward", x, m.module)
	if !ok {
		return s.dead()
	}
	return s.one("Script.Forward", C.rt_script_forward(m.module.h, x.h), x)
}

// Each calls f with every parameter and then every buffer, by name, as handles
// in the module's scope. twin is the earlier name of the same tensor, "" for
// its first.
func (m *Script) Each(f func(name string, t *Tensor, parameter bool, twin string)) error {
	if err := m.module.Err(); err != nil {
		return err
	}
	var parameters, count C.int
	C.rt_script_count(m.module.h, &parameters, &count)
	names := make([]string, count)
	for i := range count {
		name := text(C.rt_script_name(m.module.h, i))
		t := m.module.scope.one("Script", C.rt_script_tensor(m.module.h, i))
		if err := t.Err(); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		names[i] = name
		twin := ""
		if first := C.rt_script_twin(m.module.h, i); first != i {
			twin = names[first]
		}
		f(name, t, i < parameters, twin)
	}
	return nil
}
