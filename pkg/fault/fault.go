// Package fault tells mistakes of the person at the keyboard from everything
// else. An error marked as input was caused by a file, an option or a value
// that the user gave and can correct; the command line answers it with exit
// code 2, and any other error with exit code 1.
//
// The mark survives wrapping with %w, so it is set once, where the cause is
// known, and asked for once, where the program ends.
package fault

import (
	"errors"
	"fmt"
)

// input is the mark: it adds nothing to the text of the error it carries.
type input struct{ err error }

func (e input) Error() string { return e.err.Error() }
func (e input) Unwrap() error { return e.err }

// Input marks err as caused by the user's input or options. The text and the
// chain of err stay as they are. Input(nil) is nil.
func Input(err error) error {
	if err == nil {
		return nil
	}
	return input{err}
}

// Inputf is fmt.Errorf, %w included, with the mark of Input. The message says
// what failed, where (file, row, option) and what to do about it.
func Inputf(format string, args ...any) error {
	return input{fmt.Errorf(format, args...)}
}

// IsInput reports whether err, or an error it wraps or joins, carries the mark.
func IsInput(err error) bool {
	var mark input
	return errors.As(err, &mark)
}
