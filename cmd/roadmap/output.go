package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"
)

// jsonFlag and quietFlag are options that verbs share.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print the result as one JSON object"}
}

func quietFlag() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "warnings and errors alone on standard error"}
}

// answer prints the result of a verb, once, on standard output: under --json
// as one object on one line, otherwise as human writes it.
func answer(c *cli.Context, result any, human func(w io.Writer) error) error {
	if !c.Bool("json") {
		return human(c.App.Writer)
	}
	encoder := json.NewEncoder(c.App.Writer)
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
func logger(c *cli.Context) *slog.Logger {
	lowest := slog.LevelInfo
	if c.Bool("quiet") {
		lowest = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(screenOf(c), &slog.HandlerOptions{Level: lowest, ReplaceAttr: plainNotes}))
}

// plainNotes leaves the time out of log lines, and the level where it is the
// usual one.
func plainNotes(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey && a.Value.String() == slog.LevelInfo.String()) {
		return slog.Attr{}
	}
	return a
}
