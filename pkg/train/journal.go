package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
)

// Event is one line of log.jsonl. Kind says which of the other fields are set.
type Event struct {
	Kind string `json:"kind"` // "step", "eval", "note", "resume", "stop"
	Step int    `json:"step"` // optimiser steps done
	// of a step
	Loss      *float64 `json:"loss,omitempty"`
	LR        float64  `json:"lr,omitempty"`
	GradNorm  *float64 `json:"grad_norm,omitempty"`
	Lone      int      `json:"lone,omitempty"`    // queries without a positive in the batch
	Skipped   bool     `json:"skipped,omitempty"` // gradients overflowed in float16: no update
	Seconds   float64  `json:"seconds,omitempty"` // since the last such line, evaluation and checkpoints left out
	PerSecond float64  `json:"images_per_second,omitempty"`
	// of an evaluation
	Queries int                `json:"queries,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// of a note
	Text string `json:"text,omitempty"`
	// of a stop
	Reason string `json:"reason,omitempty"`
}

// journal appends events to log.jsonl, a line at a time.
type journal struct {
	folder    *Folder
	file      *os.File
	size      int64              // bytes of the log
	sum       hash.Hash          // of them
	metrics   map[string]Metrics // of the evaluations that are in it
	latest    Metrics            // of the newest of them
	evaluated bool               // the last of them was at the step at which the log was opened
	damage    string             // what is wrong with the log; "": nothing
}

// openJournal opens the log for a run that is at step. Lines that the run is
// going to write again, those of later steps and, with again, the evaluation of
// this one, and a line cut short by a crash are taken out first, as are lines
// that cannot be read.
func openJournal(f *Folder, step int, again bool) (*journal, error) {
	text, err := os.ReadFile(f.file(logFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	j := &journal{folder: f, sum: sha256.New(), metrics: f.metrics()}
	var keep bytes.Buffer
	var unreadable []int
	number := 0
	for line := range bytes.Lines(text) {
		number++
		var e Event
		whole := line[len(line)-1] == '\n'
		err := json.Unmarshal(line, &e)
		if err != nil && whole {
			unreadable = append(unreadable, number)
		}
		if err == nil && whole && e.Step <= step && !(again && e.Kind == "eval" && e.Step == step) {
			keep.Write(line)
			j.recall(e, step)
		}
	}
	j.damage = f.logDamage(text, unreadable)
	if keep.Len() < len(text) {
		if err := os.Remove(f.file(logSumFile)); err != nil && !errors.Is(err, fs.ErrNotExist) { // it is about the log as it was
			return nil, fmt.Errorf("rewrite the log: %w", err)
		}
		if err := f.write(logFile, keep.Bytes()); err != nil {
			return nil, err
		}
	}
	j.count(keep.Bytes())
	if j.file, err = os.OpenFile(f.file(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return j, nil
}

// metrics reads metrics.json, as far as it can be read: the log knows the same.
func (f *Folder) metrics() map[string]Metrics {
	known := map[string]Metrics{}
	text, err := os.ReadFile(f.file(metricsFile))
	if err != nil || json.Unmarshal(text, &known) != nil {
		return map[string]Metrics{}
	}
	return known
}

// logDamage says in which way a log is not what was written; "" where it is.
func (f *Folder) logDamage(text []byte, unreadable []int) string {
	var bytes int
	var sum string
	recorded, err := os.ReadFile(f.file(logSumFile))
	known := err == nil
	if known {
		_, err := fmt.Sscanf(string(recorded), logSumFormat, &bytes, &sum)
		known = err == nil
	}
	switch {
	case len(unreadable) > 0:
		return fmt.Sprintf("%s: %d of its lines cannot be read and were left out, the first is line %d", f.file(logFile), len(unreadable), unreadable[0])
	case known && bytes > len(text):
		return fmt.Sprintf("%s: lines are missing: it had %d bytes when the last checkpoint was saved, and has %d", f.file(logFile), bytes, len(text))
	case known && sum != fmt.Sprintf("%x", sha256.Sum256(text[:bytes])):
		return fmt.Sprintf("%s: its lines are not those that were written before the last checkpoint was saved", f.file(logFile))
	}
	return ""
}

// logSumFormat is how many bytes the log had, and what they hash to.
const logSumFormat = "%d %64s\n"

// sync has the log outlast a power cut, and records what it is.
func (j *journal) sync() error {
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	return j.folder.write(logSumFile, fmt.Appendf(nil, logSumFormat, j.size, fmt.Sprintf("%x", j.sum.Sum(nil))))
}

// recall takes note of an evaluation that was logged before.
func (j *journal) recall(e Event, step int) {
	if e.Kind == "eval" {
		j.metrics[evaluationAt(e.Step)], j.latest, j.evaluated = e.Metrics, e.Metrics, e.Step == step
	}
}

func (j *journal) add(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	line = append(line, '\n')
	n, err := j.file.Write(line)
	j.count(line[:n])
	if err != nil {
		return fmt.Errorf("write the log: %w; see to it that %s can be written", pathCause(err), j.file.Name())
	}
	return nil
}

func (j *journal) count(written []byte) {
	j.size += int64(len(written))
	j.sum.Write(written)
}

func (j *journal) close() error { return j.file.Close() }
