package main

import (
	"os"
	"syscall"
)

// spinCount is how often a thread of libgomp looks for work before it sleeps.
// Left to itself, where there is a thread a processor, it looks for milliseconds,
// which takes the processor from whoever else has work: beside one busy process
// training becomes several times slower.
const spinCount = "GOMP_SPINCOUNT=1000"

// spinSettings are the variables by which a user decides this.
var spinSettings = []string{"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}

// computing names the verbs whose work libgomp's threads share. The others would
// only take twice as long to start.
var computing = map[string]bool{}

// boundSpinning has libgomp's threads sleep soon in a verb that computes, unless
// the user has said otherwise. libgomp reads its settings when it is loaded,
// before main, so the program starts itself anew, as the same process. Where
// that cannot be done it goes on as it is.
func boundSpinning() {
	if len(os.Args) < 2 || !computing[os.Args[1]] {
		return
	}
	for _, name := range spinSettings {
		if _, set := os.LookupEnv(name); set {
			return
		}
	}
	if path, err := os.Executable(); err == nil {
		_ = syscall.Exec(path, os.Args, append(os.Environ(), spinCount))
	}
}
