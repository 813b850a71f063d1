package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

const screenKey = "screen"

// console is standard error, where notes and a progress bar meet: a note
// wipes the bar away, and the bar's next step draws it again.
type console struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	bar      *progressbar.ProgressBar // the one that is shown, or nil
}

func newConsole(w io.Writer) *console {
	file, ok := w.(*os.File)
	return &console{w: w, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

func screenOf(c *cli.Context) *console { return c.App.Metadata[screenKey].(*console) }

func (s *console) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Clear() // only decoration is lost
	}
	return s.w.Write(p)
}

// progress shows how far long work has come: a bar with rate and time left on
// a terminal, otherwise a plain line every few seconds. It may be used from
// one goroutine at a time.
type progress struct {
	screen *console // nil: silent
	what   string
	unit   string
	total  int // 0: unknown
	now    func() time.Time

	begin, last time.Time
	done        int
	note        string
}

// The least time between two drawings of a bar, and between two plain lines.
const (
	barPeriod  = 100 * time.Millisecond
	linePeriod = 5 * time.Second
)

// newProgress begins the progress of total units ("steps", "images"); a total
// of 0 is unknown. Call finish at the end. Under --quiet nothing is shown.
func newProgress(c *cli.Context, what, unit string, total int) *progress {
	screen := screenOf(c)
	if c.Bool("quiet") {
		screen = nil
	}
	return startProgress(screen, what, unit, total, time.Now)
}

func startProgress(screen *console, what, unit string, total int, now func() time.Time) *progress {
	p := &progress{screen: screen, what: what, unit: unit, total: total, now: now, begin: now()}
	p.last = p.begin
	if screen == nil || !screen.terminal {
		return p
	}
	screen.mu.Lock()
	defer screen.mu.Unlock()
	limit := total
	if limit == 0 {
		limit = -1 // the bar's way to say unknown
	}
	screen.bar = progressbar.NewOptions(limit,
		progressbar.OptionSetWriter(screen.w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetItsString(unit),
		progressbar.OptionShowIts(),
		progressbar.OptionShowCount(),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0), // draws in set alone, never from a goroutine
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(true))
	return p
}

// set says how many units are done, with a short note ("loss 0.31") or "".
func (p *progress) set(done int, note string) {
	p.done, p.note = done, note
	since := p.now().Sub(p.last)
	switch {
	case p.screen == nil:
	case p.screen.terminal && since >= barPeriod:
		p.draw()
	case !p.screen.terminal && since >= linePeriod:
		p.line()
	}
}

func (p *progress) draw() {
	p.screen.mu.Lock()
	defer p.screen.mu.Unlock()
	if p.screen.bar == nil {
		return
	}
	text := p.what
	if p.note != "" {
		text += ", " + p.note
	}
	p.screen.bar.Describe(text)
	_ = p.screen.bar.Set(p.done) // a bar that cannot be drawn must not stop the work
	p.last = p.now()
}

// finish takes the bar away and leaves one line with the whole of it.
func (p *progress) finish() {
	if p.screen == nil {
		return
	}
	if p.screen.terminal {
		p.screen.mu.Lock()
		if p.screen.bar != nil {
			_ = p.screen.bar.Clear()
			p.screen.bar = nil
		}
		p.screen.mu.Unlock()
	}
	p.line()
}

// line prints "train: 120/600 steps, 14.2 steps/s, 34s left, loss 0.31".
func (p *progress) line() {
	p.last = p.now()
	elapsed := p.last.Sub(p.begin)
	text := fmt.Sprintf("%s: %d", p.what, p.done)
	if p.total > 0 {
		text += fmt.Sprintf("/%d", p.total)
	}
	text += " " + p.unit
	if p.done > 0 && elapsed > 0 {
		rate := float64(p.done) / elapsed.Seconds()
		text += fmt.Sprintf(", %.3g %s/s", rate, p.unit)
		if left := p.total - p.done; left > 0 {
			text += fmt.Sprintf(", %s left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
		} else {
			text += fmt.Sprintf(", %s", elapsed.Round(100*time.Millisecond))
		}
	}
	if p.note != "" {
		text += ", " + p.note
	}
	fmt.Fprintln(p.screen, text)
}
