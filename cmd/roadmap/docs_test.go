package main

import (
	"archive/zip"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"roadmap/pkg/tensorio"
)

// marked stands before a block of README.md or docs/ whose commands the test
// below runs, and whose output must be what the block shows.
const marked = "<!-- checked by go test ./cmd/roadmap -->"

// TestTranscripts runs the commands of the marked blocks in a folder with the
// files below. Seconds may differ, and "…" stands for any lines.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), marked+"\n")[1:] {
			for _, c := range transcript(part) {
				commands++
				t.Run(filepath.Base(file)+" "+c.line, func(t *testing.T) { c.check(t) })
			}
		}
	}
	if commands < 5 {
		t.Errorf("%d commands are marked", commands)
	}
}

// shown is a command of a block, with the output below it.
type shown struct{ line, output string }

// transcript reads the first indented block of a text.
func transcript(text string) (commands []shown) {
	for line := range strings.Lines(strings.TrimLeft(text, "\n")) {
		line, indented := strings.CutPrefix(line, "    ")
		command, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case !indented && strings.TrimSpace(line) != "":
			return commands
		case prompt:
			commands = append(commands, shown{line: strings.TrimSpace(command)})
		case len(commands) > 0:
			commands[len(commands)-1].output += line
		}
	}
	return commands
}

var seconds = regexp.MustCompile(`\b\d+(\.\d+)? s\b`)

func (c shown) check(t *testing.T) {
	words := strings.Fields(c.line)
	if filepath.Base(words[0]) != "roadmap" {
		t.Fatalf("only roadmap is run, not %s", words[0])
	}
	cmd := program(t, words[1:]...)
	cmd.Dir = documented(t)
	output, _ := cmd.CombinedOutput() // of some the error is what is shown
	pattern := regexp.QuoteMeta(seconds.ReplaceAllString(strings.TrimSpace(c.output), "0 s"))
	pattern = strings.ReplaceAll(pattern, "…", "(?s:.*)")
	got := seconds.ReplaceAllString(strings.TrimSpace(string(output)), "0 s")
	if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		t.Errorf("the document shows\n%s\nthe program prints\n%s", c.output, output)
	}
}

// documented is a folder with the files that documents speak of.
func documented(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, rows int, value func(row, column int) float32) {
		values := make([]float32, rows*4)
		for i := range values {
			values[i] = value(i/4, i%4)
		}
		f, err := tensorio.CreateNPY(filepath.Join(dir, name), tensorio.Float32, []int{4}, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Append(tensorio.Of(values, rows, 4)); err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	circle := func(row, column int) float32 { return float32((row*7+column*3)%11) + 1 }
	write("f32.npy", 300, circle)
	write("nan.npy", 300, func(row, column int) float32 {
		if row == 7 {
			return float32(math.NaN())
		}
		return circle(row, column)
	})
	write("zero.npy", 300, func(row, column int) float32 {
		if row == 11 {
			return 0
		}
		return circle(row, column)
	})
	var labels [2]strings.Builder
	for row := range 300 {
		line := strconv.Itoa(row/5) + "\n"
		labels[0].WriteString(line)
		if row < 299 {
			labels[1].WriteString(line)
		}
	}
	var evil bytes.Buffer
	archive := zip.NewWriter(&evil)
	pickle, err := archive.CreateHeader(&zip.FileHeader{Name: "evil/data.pkl", Method: zip.Store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pickle.Write([]byte("\x80\x02cposix\nsystem\n(S'echo harm'\ntR.")); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"labels.txt": labels[0].String(), "short.txt": labels[1].String(), "evil.pth": evil.String(),
		"mine.yaml": "base: glyphs_demo\ntrain:\n  steps: 0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
