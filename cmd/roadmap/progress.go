package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
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

func screenOf(c *call) *console { return c.Root().Metadata[screenKey].(*console) }

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

	begin, last time.Time // last: when something was shown
	done        int
	note        string
	over        bool // finish was called

	remaining time.Duration // an estimate that is better than the rate; 0: none

	started bool // a first count was given
	first   int  // that count: work that goes on does not begin at 0
	since   time.Time
}

// The least time between two drawings of a bar, and between two plain lines.
const (
	barPeriod  = 100 * time.Millisecond
	linePeriod = 5 * time.Second
)

// newProgress begins the progress of total units ("steps", "images"); a total
// of 0 is unknown. Call finish at the end. Under --quiet nothing is shown.
func newProgress(c *call, what, unit string, total int) *progress {
	screen := screenOf(c)
	if c.Bool("quiet") {
		screen = nil
	}
	return startProgress(screen, what, unit, total, time.Now)
}

func startProgress(screen *console, what, unit string, total int, now func() time.Time) *progress {
	p := &progress{screen: screen, what: what, unit: unit, total: total, now: now, begin: now()}
	p.last = p.begin
	p.show()
	return p
}

// show puts a bar for the total on a terminal.
func (p *progress) show() {
	if p.screen == nil || !p.screen.terminal {
		return
	}
	p.screen.mu.Lock()
	defer p.screen.mu.Unlock()
	limit := p.total
	if limit == 0 {
		limit = -1 // the bar's way to say unknown
	}
	p.screen.bar = progressbar.NewOptions(limit,
		progressbar.OptionSetWriter(p.screen.w),
		progressbar.OptionSetDescription(p.what),
		progressbar.OptionShowCount(),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetElapsedTime(false), // the description has rate and time
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetSpinnerChangeInterval(0), // draws in set alone, never from a goroutine
		progressbar.OptionClearOnFinish())
}

// expect says the total, where it was unknown in the beginning.
func (p *progress) expect(total int) {
	if total != p.total && !p.over {
		p.total = total
		p.show()
	}
}

// set says how many units are done, with a short note ("loss 0.31") or "".
func (p *progress) set(done int, note string) {
	now := p.now()
	p.done, p.note = done, note
	if !p.started {
		p.started, p.first, p.since = true, done, now
	}
	switch quiet := now.Sub(p.last); {
	case p.screen == nil:
	case p.screen.terminal && quiet >= barPeriod:
		p.draw(now)
	case !p.screen.terminal && quiet >= linePeriod && (p.total == 0 || done < p.total): // the last one is finish's
		p.line(now)
	}
}

func (p *progress) draw(now time.Time) {
	p.screen.mu.Lock()
	defer p.screen.mu.Unlock()
	if p.screen.bar == nil {
		return
	}
	p.screen.bar.Describe(p.what + p.pace(now))
	_ = p.screen.bar.Set(p.done) // a bar that cannot be drawn must not stop the work
	p.last = now
}

// finish takes the bar away and leaves one line with the whole of it.
func (p *progress) finish() {
	p.over = true
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
	p.line(p.now())
}

// line prints "train: 120/600 steps, 14.2 steps/s, 34s left, loss 0.31".
func (p *progress) line(now time.Time) {
	p.last = now
	count := fmt.Sprint(p.done)
	if p.total > 0 {
		count = fmt.Sprintf("%d/%d", p.done, p.total)
	}
	fmt.Fprintf(p.screen, "%s: %s %s%s\n", p.what, count, p.unit, p.pace(now))
}

// pace is the rate since the first count, the time left or, where none is, the
// time it took, and the note, each after a comma.
func (p *progress) pace(now time.Time) string {
	text, left := "", p.total-p.done
	if worked := now.Sub(p.since); p.done > p.first && worked > 0 {
		rate := float64(p.done-p.first) / worked.Seconds()
		text = fmt.Sprintf(", %s %s/s", threeDigits(rate), p.unit)
		if left > 0 {
			still := p.remaining
			if still == 0 {
				still = time.Duration(float64(left) / rate * float64(time.Second))
			}
			text += fmt.Sprintf(", %s left", still.Round(time.Second))
		}
	}
	if left <= 0 {
		text += fmt.Sprintf(", %s", now.Sub(p.begin).Round(100*time.Millisecond))
	}
	if p.note != "" {
		text += ", " + p.note
	}
	return text
}

// threeDigits writes a rate with three digits that count, and never as 1.5e+03.
func threeDigits(rate float64) string {
	if rate >= 100 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.3g", rate)
}
