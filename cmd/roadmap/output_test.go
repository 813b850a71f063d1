package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestPrintTable(t *testing.T) {
	var out bytes.Buffer
	err := printTable(&out, []string{"metric", "untrained", "trained"}, [][]string{{"r@1", "0.31", "0.8234"}, {"map@r", "0.1", "0.65"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `┌────────┬───────────┬─────────┐
│ metric │ untrained │ trained │
├────────┼───────────┼─────────┤
│ r@1    │      0.31 │  0.8234 │
│ map@r  │       0.1 │    0.65 │
└────────┴───────────┴─────────┘
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestNumericColumn(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "60,502": true, "12.5 %": true, "-3e-4": true, "1.2 GiB": true, "14 ms": true, "": false, "cpu": false, "r@1": false} {
		if got := numeric([][]string{{value}}, 0); got != want {
			t.Errorf("numeric(%q) = %v", value, got)
		}
	}
	if numeric(nil, 0) {
		t.Error("a column without rows is numeric")
	}
}

// clock is a time that the test moves.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func TestProgressLines(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(0, 0)}
	p := startProgress(newConsole(&out), "train", "steps", 600, c.now)
	c.advance(2 * time.Second)
	p.set(1, "") // too early for a line
	c.advance(4 * time.Second)
	p.set(101, "loss 0.31")
	c.advance(time.Second)
	p.set(110, "loss 0.30")
	c.advance(15 * time.Second)
	p.set(600, "")
	p.finish()
	const want = "train: 101/600 steps, 25 steps/s, 20s left, loss 0.31\n" + // 100 after the first in 4 s; 499 left
		"train: 600/600 steps, 29.9 steps/s, 22s\n" // 599 in 20 s, and once
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Work that goes on where it was has the rate of what is done now.
func TestProgressThatGoesOn(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(0, 0)}
	p := startProgress(newConsole(&out), "train", "steps", 600, c.now)
	p.set(400, "")
	c.advance(10 * time.Second)
	p.set(420, "")
	if want := "train: 420/600 steps, 2 steps/s, 1m30s left\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestProgressOfUnknownLength(t *testing.T) {
	var out bytes.Buffer
	c := &clock{time.Unix(0, 0)}
	p := startProgress(newConsole(&out), "read", "files", 0, c.now)
	p.finish()
	p.set(0, "")
	c.advance(10 * time.Second)
	p.set(5, "")
	if want := "read: 0 files, 0s\nread: 5 files, 0.5 files/s, 10s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	silent := startProgress(nil, "read", "files", 0, c.now)
	c.advance(10 * time.Second)
	silent.set(7, "")
	silent.finish()
	if strings.Contains(out.String(), "7 files") {
		t.Error("silent progress wrote a line")
	}
}

// On a terminal a bar is drawn, a note does not run into it, and one plain
// line stays at the end.
func TestProgressBar(t *testing.T) {
	var out bytes.Buffer
	screen := newConsole(&out)
	screen.terminal = true
	c := &clock{time.Unix(0, 0)}
	p := startProgress(screen, "train", "steps", 10, c.now)
	p.set(1, "too early to be drawn")
	if strings.Contains(out.String(), "early") {
		t.Error("the bar was drawn at once again")
	}
	c.advance(2 * time.Second)
	p.set(5, "loss 0.31")
	if drawn := out.String(); !strings.Contains(drawn, "train, 2 steps/s, 3s left, loss 0.31") || !strings.Contains(drawn, "50%") || !strings.Contains(drawn, "5/10") {
		t.Errorf("the bar shows %q", drawn)
	}
	if _, err := screen.Write([]byte("a note\n")); err != nil {
		t.Fatal(err)
	}
	drawn := out.String()
	before := drawn[:strings.Index(drawn, "a note")]
	if !strings.HasSuffix(before, "\r") && !strings.HasSuffix(before, "\x1b[2K") {
		t.Errorf("the note follows %q", before[max(0, len(before)-20):])
	}
	p.expect(20) // the total was not known before
	c.advance(2 * time.Second)
	p.set(15, "")
	if drawn := out.String(); !strings.Contains(drawn, "75%") || !strings.Contains(drawn, "15/20") {
		t.Errorf("the bar shows %q", drawn)
	}
	p.set(20, "")
	p.finish()
	p.expect(30)
	if screen.bar != nil {
		t.Error("the bar is still there")
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "train: 20/20 steps, ") {
		t.Errorf("the last line is %q", last)
	}
}
