package torch

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// live counts the handles that exist; see Live.
var live atomic.Int64

// Live is the number of tensor handles that have been made and not yet freed,
// over all scopes. Tests ask that it comes back to where it was.
func Live() int64 { return live.Load() }

// Scope owns tensor handles and the first error of the operations on them.
// The zero Scope is not usable; start with NewScope.
type Scope struct {
	parent *Scope
	depth  int

	mu      sync.Mutex
	tensors []*Tensor
	err     error
	seen    bool // err was handed to a caller
	closed  bool
}

// NewScope returns a scope without a parent, for what lives as long as the
// program's work: parameters, optimiser state, a memory of embeddings.
func NewScope() *Scope { return &Scope{} }

// Child returns a scope for a part of the work. A child must be closed before
// its parent, and passes an error that nobody asked for on to it.
func (s *Scope) Child() *Scope { return &Scope{parent: s, depth: s.depth + 1} }

// Close frees every tensor that is still in the scope. It may be called twice.
func (s *Scope) Close() {
	s.mu.Lock()
	handles := make([]C.rt_handle, 0, len(s.tensors))
	for _, t := range s.tensors {
		if t.scope == s && t.h != 0 {
			handles = append(handles, t.h)
			t.h = 0
		}
	}
	s.tensors, s.closed = nil, true
	err, seen := s.err, s.seen
	s.mu.Unlock()
	if len(handles) > 0 {
		C.rt_free_all(unsafe.SliceData(handles), C.int(len(handles)))
		live.Add(-int64(len(handles)))
	}
	if err != nil && !seen && s.parent != nil {
		s.parent.fail(err)
	}
	collectReleased()
}

// Err returns the first error of the scope. Whoever asks takes it over: it is
// no longer passed to the parent on Close.
func (s *Scope) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.seen = true
	}
	return s.err
}

// Fail makes err the scope's error unless it already has one. Packages that
// build formulas use it to refuse an argument as an operation would.
func (s *Scope) Fail(err error) { s.fail(err) }

// Dead returns a tensor of a failed operation, for functions that must return one.
func (s *Scope) Dead() *Tensor { return s.dead() }

// Len is the number of tensors the scope holds, for tests and diagnostics.
func (s *Scope) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, t := range s.tensors {
		if t.scope == s && t.h != 0 {
			n++
		}
	}
	return n
}

func (s *Scope) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err, s.seen = err, false
	}
}

// refuse records libtorch's error text against the scope.
func (s *Scope) refuse(op string, message *C.char, operands ...*Tensor) {
	s.fail(opError(op, text(message), operands))
}

// own wraps a fresh handle.
func (s *Scope) own(h C.rt_handle) *Tensor {
	t := &Tensor{h: h, scope: s}
	live.Add(1)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.tensors = append(s.tensors, t)
	}
	s.mu.Unlock()
	if closed { // nobody would free it
		s.fail(&OpError{Op: "new tensor", Message: "the scope is closed", Cause: ErrClosed})
		C.rt_free_all(&h, 1)
		live.Add(-1)
		t.h = 0
	}
	return t
}

// one takes over the result of a shim function that makes one tensor.
func (s *Scope) one(op string, r C.rt_one, operands ...*Tensor) *Tensor {
	if r.err != nil {
		s.refuse(op, r.err, operands...)
		return s.dead()
	}
	return s.own(r.t)
}

func (s *Scope) dead() *Tensor { return &Tensor{scope: s} }

// ready says whether operations on s are to run.
func (s *Scope) ready(op string) bool {
	s.mu.Lock()
	ok, closed := s.err == nil, s.closed
	s.mu.Unlock()
	if ok && closed {
		s.fail(&OpError{Op: op, Message: "the scope is closed", Cause: ErrClosed})
		return false
	}
	return ok
}

// join finds the scope that a result of these operands belongs to, the
// innermost one, and says whether the operation is to run. A failed operand
// fails the result's scope with the same error.
func join(op string, operands ...*Tensor) (*Scope, bool) {
	var s *Scope
	for _, t := range operands {
		if t != nil && (s == nil || t.scope.depth > s.depth) {
			s = t.scope
		}
	}
	if s == nil {
		s = NewScope() // every operand is nil: there is no scope but the error must live somewhere
	}
	if !s.ready(op) {
		return s, false
	}
	for _, t := range operands {
		if t == nil {
			s.fail(&OpError{Op: op, Message: "an operand is nil"})
			return s, false
		}
		if t.h == 0 {
			s.fail(t.why(op))
			return s, false
		}
	}
	return s, true
}

// joinOptional is join where the last operands may be nil.
func joinOptional(op string, required []*Tensor, optional ...*Tensor) (*Scope, bool) {
	for _, t := range optional {
		if t != nil {
			required = append(required, t)
		}
	}
	return join(op, required...)
}

// joinLists is join for an operation over a list of tensors.
func joinLists(op string, list, others []*Tensor) (*Scope, bool) {
	if len(list) == 0 && len(others) == 0 {
		s := NewScope()
		s.fail(&OpError{Op: op, Message: "the list of tensors is empty"})
		return s, false
	}
	return join(op, append(list[:len(list):len(list)], others...)...)
}

// handle passes an optional tensor: nil is libtch's null.
func handle(t *Tensor) C.rt_handle {
	if t == nil {
		return 0
	}
	return t.h
}

// handles passes a list of tensors.
func handles(list []*Tensor) (*C.rt_handle, C.int) {
	hs := make([]C.rt_handle, len(list))
	for i, t := range list {
		hs[i] = handle(t)
	}
	return unsafe.SliceData(hs), C.int(len(hs))
}
