// Package process holds what Go alone cannot do about its own process: end it
// at a second signal, whatever it is doing; say in a line that a file which was
// mapped into memory has been shortened, or that the working directory is gone.
package process

// #include "process.h"
import "C"

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible gives a context that the first SIGINT, SIGTERM or SIGHUP ends,
// after a call of asked. The second ends the process with the exit code, also
// where Go can start no thread to handle it. A signal that was ignored when the
// process began, as nohup does with SIGHUP, stays ignored. Call it once.
func Interruptible(parent context.Context, code int, asked func()) (ctx context.Context, stop func(), err error) {
	var wanted []os.Signal
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			wanted = append(wanted, s)
		}
	}
	ctx, cancel := context.WithCancel(parent)
	if len(wanted) == 0 {
		return ctx, cancel, nil
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, wanted...)
	for _, s := range wanted {
		if errno := C.process_count_signal(C.int(s.(syscall.Signal)), C.int(code)); errno != 0 {
			cancel()
			return nil, nil, fmt.Errorf("handle %s: %w", s, syscall.Errno(errno))
		}
	}
	go func() {
		select {
		case <-signals:
			asked()
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel() }, nil
}

// ExplainMappedFiles has the process end with a line and exit code 1 where a
// file that is mapped into memory cannot be read any more, because it was
// shortened or its disk is gone. Without it Go prints a trace.
func ExplainMappedFiles() error {
	if errno := C.process_explain_sigbus(); errno != 0 {
		return fmt.Errorf("handle SIGBUS: %w", syscall.Errno(errno))
	}
	return nil
}
