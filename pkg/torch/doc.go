// Package torch is the border to libtorch: the only package that knows cgo.
//
// A [Tensor] is a handle to a libtorch tensor. A [Scope] owns the handles made
// in it and frees them when it closes; nothing waits for the garbage collector.
// The result of an operation belongs to the innermost scope among its operands,
// so parameters (outermost scope) times a batch (step scope) land in the step:
//
//	step := root.Child()
//	defer step.Close()
//	x := torch.From(step, pixels, 32, 1, 28, 28)
//	loss := model.Forward(x).Sub(target).Square().Mean()
//	if err := loss.Backward(); err != nil { … }
//
// The first error sticks to the scope, as in bufio.Scanner: later operations on
// it do nothing and return dead tensors, so formulas read like formulas. Every
// door out of the scope ([Scope.Err], [Tensor.Keep], the host reads, Backward,
// the optimiser steps) returns that error. Code that branches on a shape or on
// a value asks the scope first: a dead tensor has no dimensions.
//
// A scope may be used by one goroutine at a time; goroutines may share the
// tensors of a common ancestor and each work in a scope of its own.
//
// [Device] and [DType] are the package's own. gotch has such types too, but they
// are in its root package, whose init writes a folder into the user's home and
// ends the process where it cannot; so only gotch's table of operations, libtch,
// is used.
//
// Operations take and return shapes as []int64, sizes first to last as libtorch
// does. Those that come straight from gotch's table are listed in ops.txt.
package torch

//go:generate go run ./internal/genops
