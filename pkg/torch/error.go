package torch

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrOutOfMemory is what errors.Is finds in an OpError when an allocation was refused.
var ErrOutOfMemory = errors.New("out of memory")

// ErrClosed is what errors.Is finds in an OpError when a tensor was used after
// its scope had closed.
var ErrClosed = errors.New("the tensor's scope is closed")

// OpError says which operation libtorch refused, on what, and why.
type OpError struct {
	Op       string   // name of the method, such as "MatMul"
	Operands []string // "float32 [32, 64] cpu", in order, the receiver first
	Message  string   // libtorch's own first line
	Hint     string   // what to do about it, where that is known
	Cause    error    // ErrOutOfMemory, ErrClosed or nil
}

// Error is one line: operation, operands, reason, hint.
func (e *OpError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "torch: %s", e.Op)
	if len(e.Operands) > 0 {
		fmt.Fprintf(&b, "(%s)", strings.Join(e.Operands, ", "))
	}
	fmt.Fprintf(&b, ": %s", e.Message)
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Cause }

// opError describes a refusal while the operands are still alive.
func opError(op, message string, operands []*Tensor) *OpError {
	e := &OpError{Op: op, Message: firstLine(message)}
	for _, t := range operands {
		if t != nil {
			e.Operands = append(e.Operands, t.String())
		}
	}
	low := strings.ToLower(message)
	switch {
	case strings.Contains(low, "out of memory"), strings.Contains(low, "can't allocate memory"),
		strings.Contains(low, "not enough memory"), strings.Contains(low, "storage size calculation overflowed"), strings.Contains(low, "std::bad_alloc"):
		e.Cause = ErrOutOfMemory
		e.Hint = "use a smaller batch or chunk, or bfloat16"
	case strings.Contains(low, "expected all tensors to be on the same device"):
		e.Hint = "move the operands to one device with To"
	}
	return e
}

// scriptFailed begins libtorch's text about an error inside a TorchScript
// program: a trace of calls follows, then the reason, with Python's name for it.
const scriptFailed = "The following operation failed in the TorchScript interpreter."

var scriptReason = regexp.MustCompile(`(?m)^[\w.]+(Error|Exception): .*`)

// firstLine drops the C++ stack that libtorch may append, and the program's own
// where TorchScript puts it before the reason.
func firstLine(s string) string {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, scriptFailed) {
		reasons := scriptReason.FindAllString(s, -1)
		if len(reasons) > 0 {
			s = reasons[len(reasons)-1]
		}
		s, _, _ = strings.Cut(s, " This could be because ") // and other guesses
	}
	s, _, _ = strings.Cut(s, "\n")
	if i := strings.Index(s, " Exception raised from "); i >= 0 {
		s = s[:i]
	}
	return s
}
