package main

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"roadmap/pkg/registry"
)

// arrange checks a command line against the verbs and their options and puts
// the options before the other arguments, because urfave/cli reads none after
// the first of those. What follows "--" stays as it is.
func arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) > 1 && args[1] == "help" {
		args = append(slices.Clone(args[:1]), append(args[2:], "--help")...)
	}
	level := &level{name: app.Name, verbs: app.Commands, flags: []cli.Flag{cli.HelpFlag, cli.VersionFlag}}
	arranged := args[:1:1]
	rest := args[1:]
	for len(rest) > 0 {
		word := rest[0]
		rest = rest[1:]
		var err error
		switch {
		case word == "--":
			level.words = append(level.words, rest...)
			rest = nil
		case isOption(word):
			rest, err = level.option(word, rest)
		case len(level.verbs) > 0:
			arranged = append(arranged, level.options...)
			arranged = append(arranged, word)
			level, err = level.enter(word)
		default:
			level.words = append(level.words, word)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := level.complete(); err != nil {
		return nil, err
	}
	arranged = append(arranged, level.options...)
	if len(level.words) > 0 && !level.asks { // urfave/cli would look for help on the first word
		arranged = append(append(arranged, "--"), level.words...)
	}
	return arranged, nil
}

// isOption tells options from words; a lone dash and negative numbers are words.
func isOption(word string) bool {
	if len(word) < 2 || word[0] != '-' {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// level is the program, a verb or a verb's verb, and what was read for it.
type level struct {
	name  string // as typed: "roadmap data stats"
	verbs []*cli.Command
	flags []cli.Flag

	options []string   // with their values
	given   []cli.Flag // the flags of options
	words   []string
	asks    bool // for help or the version
}

// enter steps down to a verb.
func (l *level) enter(name string) (*level, error) {
	names := make([]string, len(l.verbs))
	for i, verb := range l.verbs {
		if names[i] = verb.Name; verb.HasName(name) {
			return &level{name: l.name + " " + name, verbs: verb.Subcommands, flags: append(slices.Clone(verb.Flags), cli.HelpFlag), asks: l.asks}, nil
		}
	}
	if near, ok := registry.Nearest(name, names); ok {
		return nil, usageError(l.name, "unknown verb %q; did you mean %q?", name, near)
	}
	return nil, usageError(l.name, "unknown verb %q", name)
}

// option reads one option, with its value where it takes one from rest.
func (l *level) option(word string, rest []string) ([]string, error) {
	name, value, hasValue := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	flag := l.find(name)
	if flag == nil {
		return nil, l.unknown(word)
	}
	if slices.Contains(l.given, flag) && !repeats(flag) {
		return nil, usageError(l.name, "option %s is given twice", dashed(name))
	}
	l.given = append(l.given, flag)
	l.asks = l.asks || flag == cli.HelpFlag || flag == cli.VersionFlag
	l.options = append(l.options, word)
	if takesValue(flag) && !hasValue {
		if len(rest) == 0 || rest[0] == "--" || isOption(rest[0]) && l.find(optionName(rest[0])) != nil {
			return nil, usageError(l.name, "option %s needs a value", dashed(name))
		}
		value, rest = rest[0], rest[1:]
		l.options = append(l.options, value)
	}
	if want := wanted(flag, value); want != "" && (hasValue || takesValue(flag)) {
		return nil, usageError(l.name, "option %s: want %s, got %q", dashed(name), want, value)
	}
	return rest, nil
}

func optionName(word string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(word[1:], "-"), "=")
	return name
}

func (l *level) find(name string) cli.Flag {
	for _, flag := range l.flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

func (l *level) unknown(word string) error {
	name := optionName(word)
	var known []string
	for _, flag := range l.flags {
		known = append(known, flag.Names()...)
	}
	if near, ok := registry.Nearest(name, known); ok {
		return usageError(l.name, "unknown option %s; did you mean %s?", dashed(name), dashed(near))
	}
	if len(l.verbs) > 0 {
		return usageError(l.name, "unknown option %s; the options of a verb stand after it", dashed(name))
	}
	return usageError(l.name, "unknown option %s", dashed(name))
}

// complete looks for what is missing at the end of the line.
func (l *level) complete() error {
	if l.asks {
		return nil
	}
	if len(l.verbs) > 0 {
		return usageError(l.name, "no verb given")
	}
	for _, flag := range l.flags {
		if needed, ok := flag.(cli.RequiredFlag); ok && needed.IsRequired() && !slices.Contains(l.given, flag) {
			return usageError(l.name, "option %s is required", dashed(flag.Names()[0]))
		}
	}
	return nil
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func takesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return !ok || documented.TakesValue()
}

// repeats reports whether a flag collects the values of several options.
func repeats(flag cli.Flag) bool {
	slice, ok := flag.(cli.DocGenerationSliceFlag)
	return ok && slice.IsSliceFlag()
}

// wanted says what a flag's value must be, "" when this one is.
func wanted(flag cli.Flag, value string) string {
	var err error
	switch flag.(type) {
	case *cli.BoolFlag:
		if value != "true" && value != "false" {
			return "true or false"
		}
	case *cli.IntFlag, *cli.Int64Flag, *cli.IntSliceFlag, *cli.Int64SliceFlag:
		if _, err = strconv.ParseInt(value, 10, 64); err != nil {
			return "a whole number"
		}
	case *cli.UintFlag, *cli.Uint64Flag:
		if _, err = strconv.ParseUint(value, 10, 64); err != nil {
			return "a whole number, 0 or more"
		}
	case *cli.Float64Flag, *cli.Float64SliceFlag:
		if f, err := strconv.ParseFloat(value, 64); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return "a finite number"
		}
	case *cli.DurationFlag:
		if _, err = time.ParseDuration(value); err != nil {
			return "a duration with its unit, such as 30s"
		}
	}
	return ""
}

// positional returns the arguments of a verb that are not options, when they
// are at least least and at most most; most < 0 is any number.
func positional(c *cli.Context, least, most int) ([]string, error) {
	words := c.Args().Slice()
	if len(words) >= least && (most < 0 || len(words) <= most) {
		return words, nil
	}
	verb := c.Command.HelpName
	switch {
	case most == 0:
		return nil, usageError(verb, "takes no arguments, got %q", words[0])
	case len(words) < least:
		return nil, usageError(verb, "want %s, got %d arguments", c.Command.ArgsUsage, len(words))
	}
	return nil, usageError(verb, "want %s, got one argument too many: %q", c.Command.ArgsUsage, words[most])
}
