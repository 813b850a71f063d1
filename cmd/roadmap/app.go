package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"roadmap/pkg/fault"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "development"

// What the program ends with.
const (
	codeDone        = 0
	codeFailed      = 1
	codeInput       = 2 // the user's files, values or options
	codeInterrupted = 130
)

var verbs []func() *cli.Command

// register adds a verb to the program; a verb's file calls it from init.
func register(verb func() *cli.Command) { verbs = append(verbs, verb) }

func newApp(stdout io.Writer, screen *console) *cli.App {
	app := &cli.App{
		Name:                      "roadmap",
		Usage:                     "train and evaluate image-retrieval embeddings",
		UsageText:                 "roadmap VERB [options] [arguments]\nroadmap VERB --help",
		Version:                   version,
		Writer:                    stdout,
		ErrWriter:                 screen,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		ExitErrHandler:            func(*cli.Context, error) {},
		Metadata:                  map[string]any{screenKey: screen},
	}
	for _, verb := range verbs {
		app.Commands = append(app.Commands, verb())
	}
	slices.SortFunc(app.Commands, func(a, b *cli.Command) int { return strings.Compare(a.Name, b.Name) })
	for _, verb := range app.Commands {
		prepare(verb)
	}
	return app
}

// prepare takes from a verb what urfave/cli would do in its own way: print the
// whole help beside an error, take an argument "help" for a verb, and end the
// line of every switch in the help with "(default: false)".
func prepare(verb *cli.Command) {
	verb.HideHelpCommand = true
	verb.OnUsageError = func(c *cli.Context, err error, _ bool) error { return usageError(c.Command.HelpName, "%w", err) }
	for _, f := range verb.Flags {
		if sw, ok := f.(*cli.BoolFlag); ok {
			sw.DisableDefaultText = true
		}
	}
	for _, inner := range verb.Subcommands {
		prepare(inner)
	}
}

// usageError is an input error that says where help is.
func usageError(verb, format string, args ...any) error {
	return fault.Inputf("%w (see %s --help)", fmt.Errorf(format, args...), verb)
}

// run is the program: arguments in, exit code out.
func run(args []string, stdout, stderr io.Writer) (code int) {
	screen := newConsole(stderr)
	ctx, stop := interruptible(context.Background(), screen)
	defer stop()
	defer func() {
		if fell := recover(); fell != nil { // Go itself would end with 2, the code of an input error
			fmt.Fprintf(screen, "roadmap: internal error: %v\n%s", fell, debug.Stack())
			code = codeFailed
		}
	}()
	app := newApp(stdout, screen)
	args, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, args)
	}
	return report(screen, ctx, err)
}

// report prints an error on one line and chooses the exit code.
func report(w io.Writer, ctx context.Context, err error) int {
	if err == nil {
		return codeDone
	}
	text, code := err.Error(), codeFailed
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		text, code = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted"), codeInterrupted
	case fault.IsInput(err):
		code = codeInput
	}
	fmt.Fprintf(w, "roadmap: %s\n", printable(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")))
	return code
}

// interruptible gives a context that the first Ctrl-C (or SIGTERM) cancels;
// the second one ends the program.
func interruptible(parent context.Context, screen io.Writer) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		fmt.Fprintln(screen, "roadmap: stopping; once more to stop at once")
		cancel()
		<-signals
		os.Exit(codeInterrupted)
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}
