// Command roadmap trains and evaluates image-retrieval embeddings.
//
// A verb is one file, named after it, that registers itself:
//
//	func init() { register(searchVerb) }
//
//	func searchVerb() *cli.Command {
//		return &cli.Command{
//			Name:      "search",
//			Usage:     "find the exact nearest neighbours",
//			ArgsUsage: "QUERIES",
//			Description: "What it does, in full sentences.\n\nExample:\n" +
//				"  roadmap search queries.npy --gallery gallery.npy -k 10",
//			Flags:  []cli.Flag{&cli.IntFlag{Name: "k", Value: 10, Usage: "neighbours a query"}, jsonFlag()},
//			Action: action(search),
//		}
//	}
//
// The action takes its operands from positional, prints its result with answer
// (one JSON object under --json, a text or a table otherwise), reports through
// newProgress and logger, stops when c.ctx is done, and returns errors as
// values: an input error (package fault) ends the program with code 2, any
// other with 1, an interrupt with 130. Options are checked by urfave/cli before the action
// runs: unknown ones, missing values and missing required ones never reach it.
// "go test ./cmd/roadmap -update" writes the verb's help into testdata.
package main

import (
	"os"
	"runtime"
)

// The main goroutine, which does the work on tensors, stays on the process's
// first thread: only that one has a C heap that grows in one piece. In the
// heaps of other threads, of 64 MiB each, a training step takes up to a third
// more memory, and more of the time goes into fetching it.
func init() { runtime.LockOSThread() }

func main() {
	boundSpinning()
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}
