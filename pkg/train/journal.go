package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	file      *os.File
	metrics   map[string]Metrics // of the evaluations that are in it
	evaluated bool               // the last of them was at the step at which the log was opened
}

// openJournal opens the log for a run that is at step. Lines that the run is
// going to write again, those of later steps and, with again, the evaluation of
// this one, and a line cut short by a crash are taken out first.
func openJournal(f *Folder, step int, again bool) (*journal, error) {
	text, err := os.ReadFile(f.file(logFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	var keep bytes.Buffer
	j := &journal{metrics: map[string]Metrics{}}
	for line := range bytes.Lines(text) {
		var e Event
		if json.Unmarshal(line, &e) == nil && line[len(line)-1] == '\n' && e.Step <= step && !(again && e.Kind == "eval" && e.Step == step) {
			keep.Write(line)
			j.recall(e, step)
		}
	}
	if keep.Len() < len(text) {
		if err := f.write(logFile, keep.Bytes()); err != nil {
			return nil, err
		}
	}
	if j.file, err = os.OpenFile(f.file(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return j, nil
}

// recall takes note of an evaluation that was logged before.
func (j *journal) recall(e Event, step int) {
	if e.Kind == "eval" {
		j.metrics[evaluationAt(e.Step)], j.evaluated = e.Metrics, e.Step == step
	}
}

func (j *journal) add(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the log: %w; see to it that %s can be written", pathCause(err), j.file.Name())
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }
