package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v3"

	"roadmap/pkg/config"
)

// jsonFlag and quietFlag are options that verbs share.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object"}
}

func quietFlag() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "warnings and errors alone on standard error"}
}

// memoryFlag is the memory that eval and search may take beside their input.
func memoryFlag() cli.Flag {
	value := 2 * config.GiB
	return &cli.TextFlag{Name: "memory", Value: &value, Usage: "for what grows with the input, such as 512MiB"}
}

// answer prints the result of a verb, once, on standard output: under --json
// as one object on one line, otherwise as human writes it.
func answer(c *call, result any, human func(w io.Writer) error) error {
	if !c.Bool("json") {
		return human(c.Root().Writer)
	}
	encoder := json.NewEncoder(c.Root().Writer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(result); err != nil {
		return fmt.Errorf("print the result as JSON: %w", err)
	}
	return nil
}

// printTable writes rows under a header; columns of numbers stand to the right.
func printTable(w io.Writer, header []string, rows [][]string) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.AppendHeader(cells(header))
	for _, row := range rows {
		t.AppendRow(cells(row))
	}
	var columns []table.ColumnConfig
	for i := range header {
		if numeric(rows, i) {
			columns = append(columns, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(columns)
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func cells(values []string) table.Row {
	row := make(table.Row, len(values))
	for i, v := range values {
		row[i] = printable(v)
	}
	return row
}

// printable shows characters that a terminal would obey, which names from files
// may have, as Go writes them: \x1b.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// numeric reports whether a column holds nothing but numbers, units and
// separators of thousands aside.
func numeric(rows [][]string, column int) bool {
	for _, row := range rows {
		digits := strings.TrimRight(strings.ReplaceAll(row[column], ",", ""), " %xGMKiBmsµn")
		if _, err := strconv.ParseFloat(digits, 64); err != nil {
			return false
		}
	}
	return len(rows) > 0
}

// logger writes notes for people to standard error; under --quiet warnings and
// errors alone.
func logger(c *call) *slog.Logger {
	lowest := slog.LevelInfo
	if c.Bool("quiet") {
		lowest = slog.LevelWarn
	}
	return slog.New(&notes{w: screenOf(c), lowest: lowest})
}

// notes writes log records as lines for people: "warning: message (key value)".
type notes struct {
	w      io.Writer
	lowest slog.Level
	attrs  []slog.Attr
}

// Enabled reports whether records of a level are written.
func (n *notes) Enabled(_ context.Context, level slog.Level) bool { return level >= n.lowest }

// Handle writes a record, in one piece.
func (n *notes) Handle(_ context.Context, r slog.Record) error {
	var values []string
	add := func(a slog.Attr) bool {
		values = append(values, a.Key+" "+a.Value.String())
		return true
	}
	for _, a := range n.attrs {
		add(a)
	}
	r.Attrs(add)
	line := r.Message
	if len(values) > 0 {
		line += " (" + strings.Join(values, ", ") + ")"
	}
	switch {
	case r.Level >= slog.LevelError:
		line = "error: " + line
	case r.Level >= slog.LevelWarn:
		line = "warning: " + line
	}
	_, err := fmt.Fprintf(n.w, "roadmap: %s\n", printable(line))
	return err
}

// WithAttrs returns a handler that adds attributes to every record.
func (n *notes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &notes{n.w, n.lowest, slices.Concat(n.attrs, attrs)}
}

// WithGroup returns n: notes are flat.
func (n *notes) WithGroup(string) slog.Handler { return n }
