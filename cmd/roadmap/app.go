package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/process"
	"roadmap/pkg/registry"
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

// call is one run of a verb: its options and operands, and the context that
// ends when the user interrupts it.
type call struct {
	*cli.Command
	ctx context.Context
}

// action makes a verb's action of a function on a call.
func action(f func(c *call) error) cli.ActionFunc {
	return func(ctx context.Context, verb *cli.Command) error { return f(&call{verb, ctx}) }
}

func newApp(stdout io.Writer, screen *console) *cli.Command {
	app := &cli.Command{
		Name:           "roadmap",
		Usage:          "train and evaluate image-retrieval embeddings",
		UsageText:      "roadmap VERB [options] [arguments]\nroadmap VERB --help",
		Version:        version,
		Writer:         stdout,
		ErrWriter:      screen,
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
		Metadata:       map[string]any{screenKey: screen},

		EnableShellCompletion:           true,
		ConfigureShellCompletionCommand: func(c *cli.Command) { c.Hidden = false },
	}
	for _, verb := range verbs {
		app.Commands = append(app.Commands, verb())
	}
	slices.SortFunc(app.Commands, func(a, b *cli.Command) int { return strings.Compare(a.Name, b.Name) })
	prepare(app)
	return app
}

// prepare sets what all verbs have in common, and strictness that urfave/cli
// leaves to its user.
func prepare(verb *cli.Command) {
	var unknown string // the option that was looked for in vain
	verb.InvalidFlagAccessHandler = func(_ context.Context, _ *cli.Command, name string) { unknown = name }
	verb.OnUsageError = func(_ context.Context, c *cli.Command, err error, _ bool) error {
		if unknown != "" {
			return unknownName(c, "option", dashed(unknown), optionNames(c))
		}
		return usageError(c.FullName(), "%w", err)
	}
	for _, flag := range verb.Flags {
		restrict(verb, flag)
	}
	for _, inner := range verb.Commands {
		inner.HideHelpCommand = true           // "help" may be an operand
		inner.DisableSliceFlagSeparator = true // --set a=1,2 is one setting
		prepare(inner)
	}
	if len(verb.Commands) == 0 { // --help shows help whatever operands are beside it
		verb.CommandNotFound = func(_ context.Context, c *cli.Command, _ string) {
			cli.HelpPrinter(c.Root().Writer, cli.CommandHelpTemplate, c)
		}
		return
	}
	verb.Action = action(func(c *call) error {
		if !c.Args().Present() {
			return usageError(c.FullName(), "no verb given")
		}
		return unknownName(c.Command, "verb", c.Args().First(), verbNames(c.Command))
	})
}

// restrict has an option given once, read as decimal and finite, and not with
// another option in the place of its value.
func restrict(verb *cli.Command, flag cli.Flag) {
	switch f := flag.(type) {
	case *cli.BoolFlag:
		f.OnlyOnce, f.HideDefault = true, true
	case *cli.StringFlag:
		f.OnlyOnce, f.HideDefault = true, f.Value == ""
		f.Validator = func(value string) error {
			if slices.Contains(optionNames(verb), value) {
				return fmt.Errorf("it is an option, and %s needs a value", dashed(f.Name))
			}
			return nil
		}
	case *cli.IntFlag:
		f.OnlyOnce, f.Config.Base = true, 10
	case *cli.Uint64Flag:
		f.OnlyOnce, f.Config.Base = true, 10
	case *cli.Float64Flag:
		f.OnlyOnce = true
		f.Validator = func(value float64) error {
			if math.IsNaN(value) || math.IsInf(value, 0) {
				return errors.New("want a finite number")
			}
			return nil
		}
	case *cli.DurationFlag:
		f.OnlyOnce = true
	case *cli.TextFlag:
		f.OnlyOnce = true
	}
}

// unknownName is the error of an option or verb that there is not.
func unknownName(c *cli.Command, what, name string, known []string) error {
	if near, ok := registry.Nearest(name, known); ok {
		return usageError(c.FullName(), "unknown %s %s; did you mean %s?", what, name, near)
	}
	if what == "option" && len(c.Commands) > 0 {
		return usageError(c.FullName(), "unknown option %s; the options of a verb stand after it", name)
	}
	return usageError(c.FullName(), "unknown %s %s", what, name)
}

func optionNames(c *cli.Command) (names []string) {
	for _, flag := range c.Flags {
		for _, name := range flag.Names() {
			names = append(names, dashed(name))
		}
	}
	return names
}

func verbNames(c *cli.Command) (names []string) {
	for _, verb := range c.Commands {
		names = append(names, verb.Name)
	}
	return names
}

func dashed(option string) string {
	if len(option) == 1 {
		return "-" + option
	}
	return "--" + option
}

// positional returns the arguments of a verb that are not options, when they
// are at least least and at most most; most < 0 is any number.
func positional(c *call, least, most int) ([]string, error) {
	words := c.Args().Slice()
	if len(words) >= least && (most < 0 || len(words) <= most) {
		return words, nil
	}
	switch {
	case most == 0:
		return nil, usageError(c.FullName(), "takes no arguments, got %q", words[0])
	case len(words) < least:
		return nil, usageError(c.FullName(), "want %s, got %d arguments", c.ArgsUsage, len(words))
	}
	return nil, usageError(c.FullName(), "want %s, got one argument too many: %q", c.ArgsUsage, words[most])
}

// usageError is an input error that says where help is.
func usageError(verb, format string, args ...any) error {
	return fault.Inputf("%w (see %s --help)", fmt.Errorf(format, args...), verb)
}

// run is the program: arguments in, exit code out.
func run(args []string, stdout, stderr io.Writer) (code int) {
	screen := newConsole(stderr)
	ctx, stop, err := process.Interruptible(context.Background(), codeInterrupted, func() {
		fmt.Fprintln(screen, "roadmap: stopping; once more to stop at once")
	})
	if err == nil {
		defer stop()
		err = process.ExplainMappedFiles()
	}
	if err != nil {
		return report(screen, context.Background(), err)
	}
	if os.Getenv("GOMEMLIMIT") == "" { // the collector works harder before memory ends: libtorch has the rest
		debug.SetMemoryLimit(int64(memory.Limit() / 5 * 4))
	}
	defer func() {
		if fell := recover(); fell != nil { // Go itself would end with 2, the code of an input error
			fmt.Fprintf(screen, "roadmap: internal error: %v\n%s", fell, debug.Stack())
			code = codeFailed
		}
	}()
	return report(screen, ctx, newApp(stdout, screen).Run(ctx, args))
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
	case fault.IsInput(err), errors.As(err, new(cli.ExitCoder)): // of "help" without such a verb
		code = codeInput
	}
	fmt.Fprintf(w, "roadmap: %s\n", printable(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")))
	return code
}
