package torchtest

import (
	"os"
	"runtime"
	"testing"

	"roadmap/pkg/torch"
)

// init keeps the main goroutine, and so Main, on the first thread, as the
// program does: cmd/roadmap/main.go says why.
func init() { runtime.LockOSThread() }

// first takes work for the first thread.
var first = make(chan func())

// Main is the TestMain of a package whose benchmarks use Bench.
func Main(m *testing.M) {
	ended := make(chan int)
	go func() { ended <- m.Run() }()
	for {
		select {
		case work := <-first:
			work()
		case code := <-ended:
			os.Exit(code)
		}
	}
}

// Bench runs a benchmark on the first thread, all of it: libtorch's workers
// belong to the thread that calls, and two sets of them would not let each
// other spin.
func Bench(b *testing.B, name string, f func(b *testing.B, s *torch.Scope) error) {
	b.Run(name, func(b *testing.B) {
		done := make(chan error)
		first <- func() {
			s := torch.NewScope()
			defer s.Close()
			err := f(b, s)
			go func() { done <- err }()
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	})
}
