package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"roadmap/pkg/embed"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// diverged is an error about a number that is not finite. It is not the user's
// input, whatever it wraps: a loss calls its embeddings so, but they came from the
// network.
type diverged struct{ error }

// finite passes a number on if it is finite.
func finite(what string) func(float64, error) (float64, error) {
	return func(v float64, err error) (float64, error) {
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = diverged{fmt.Errorf("%s is %g", what, v)}
		}
		return v, err
	}
}

// gentler is what to do about a run that diverges.
const gentler = "lower optimizer.lr or set train.clip_norm"

// past is what a step changes on its way to the gradients: running statistics,
// the loss's memory, the scale of float16 and random numbers. With it a step
// that goes wrong is undone.
type past struct {
	live, kept []*torch.Tensor
	devices    []torch.Device
	random     [][]byte // of each device
}

// newPast looks after the buffers of a state, and the random numbers of devices.
func newPast(state nn.State, devices []torch.Device) *past {
	p := &past{devices: devices, random: make([][]byte, len(devices))}
	for _, n := range state {
		if !n.Parameter {
			p.live, p.kept = append(p.live, n.Tensor), append(p.kept, n.Tensor.Clone())
		}
	}
	return p
}

// keep takes the present for the past.
func (p *past) keep() (err error) {
	for i, d := range p.devices {
		if p.random[i], err = torch.GeneratorState(d); err != nil {
			return err
		}
	}
	return copyAll(p.kept, p.live)
}

// restore brings the past back.
func (p *past) restore() error {
	for i, d := range p.devices {
		if err := torch.SetGeneratorState(d, p.random[i]); err != nil {
			return err
		}
	}
	return copyAll(p.live, p.kept)
}

func copyAll(to, from []*torch.Tensor) error {
	for i := range to {
		if err := to[i].CopyInPlace(from[i]).Err(); err != nil {
			return err
		}
	}
	return nil
}

// condition is what the weights and the state beside them are in.
type condition int

const (
	whole   condition = iota // after a step, before the next: a checkpoint can be saved
	begun                    // in a step that has moved no weight: past has what it began with
	partial                  // in the update of the weights: no state to go on from
)

// batchError is the error of a step with the images that it was taken on.
type batchError struct {
	step  int   // from 1
	rows  []int // of the training split
	cause error
}

func (e *batchError) Error() string {
	return fmt.Sprintf("step %d, images %v: %v", e.step, e.rows, e.cause)
}
func (e *batchError) Unwrap() error { return e.cause }

// saveError is the error of a checkpoint that could not be written.
type saveError struct{ error }

func (e saveError) Unwrap() error { return e.error }

// end is where every run ends that stops short, whatever the cause: interrupted, out
// of memory or disk, or diverged. The step that was begun is undone and a
// checkpoint saved, if there is a state to go on from; the log's last line says
// why, and the error that is returned how to go on.
func (r *Run) end(log *journal, cause error) error {
	interrupted := errors.Is(cause, context.Canceled)
	err, reason := r.explain(cause), cause.Error()
	if interrupted {
		reason = "interrupted"
	}
	if r.condition == begun {
		r.condition = whole
		if undoing := r.past.restore(); undoing != nil {
			r.condition, err = partial, fmt.Errorf("%w; what the step began with could not be restored: %w", err, undoing)
		}
	}
	saved := false
	if r.condition == whole && !errors.As(cause, new(saveError)) && !r.unsound(cause) {
		saving := r.save(log)
		if saved = saving == nil; !saved {
			err = fmt.Errorf("%w; and no checkpoint could be saved (%v)", err, saving)
		}
	}
	if logging := log.add(Event{Kind: "stop", Step: r.step, Reason: reason}); logging != nil {
		err = fmt.Errorf("%w; and the log does not tell of it (%v)", err, logging)
	}
	if saved && interrupted { // otherwise older checkpoints stay, should the new one turn out to be of no use
		if removing := r.folder.prune(r.recipe.Train.KeepCheckpoints); removing != nil {
			err = fmt.Errorf("%w; and %v", err, removing)
		}
	}
	return r.continuation(err, interrupted && saved)
}

// explain says what happened, and what to do about it.
func (r *Run) explain(cause error) error {
	batch := (*batchError)(nil)
	switch {
	case errors.Is(cause, context.Canceled):
		if r.step == r.recipe.Train.Steps {
			return fmt.Errorf("stopped in the evaluation after the last step: %w", context.Canceled)
		}
		return fmt.Errorf("stopped after step %d of %d: %w", r.step, r.recipe.Train.Steps, context.Canceled)
	case r.unsound(cause):
		return fmt.Errorf("%v; %s", cause, gentler) // %v: it is no fault of the user's files
	case !errors.As(cause, &batch):
		return cause
	case errors.As(cause, new(diverged)):
		return fmt.Errorf("step %d, images %s: %w; %s, or look for broken images among these (the log has all); should it fail there again, remove the newest checkpoint",
			batch.step, r.abridged(batch.rows), batch.cause, gentler)
	case errors.Is(cause, torch.ErrOutOfMemory):
		return fmt.Errorf("step %d: %w; begin anew with fewer sampler.classes or sampler.samples, or go on where there is more memory", batch.step, batch.cause)
	}
	return fmt.Errorf("step %d: %w", batch.step, batch.cause)
}

// unsound says whether an evaluation has found that the weights, moved by
// training, give embeddings that are not finite.
func (r *Run) unsound(cause error) bool { return r.step > 0 && errors.Is(cause, embed.ErrNotFinite) }

// continuation adds how to go on, as far as checkpoints allow.
func (r *Run) continuation(err error, justSaved bool) error {
	steps, unreadable := r.folder.checkpoints()
	switch {
	case len(steps) == 0 || unreadable != nil:
		return fmt.Errorf("%w; there is no checkpoint yet, so --resume %s begins at step 0", err, r.folder.Path)
	case justSaved:
		return fmt.Errorf("%w; checkpoint saved; continue with --resume %s", err, r.folder.Path)
	}
	return fmt.Errorf("%w; --resume %s goes on from the checkpoint of step %d (train.*, eval.* and optimizer.lr may change)", err, r.folder.Path, slices.Max(steps))
}

// abridged names the first images of a batch.
func (r *Run) abridged(rows []int) string {
	const most = 3
	more := ""
	if len(rows) > most {
		more, rows = fmt.Sprintf(" and %d more", len(rows)-most), rows[:most]
	}
	paths := make([]string, len(rows))
	for i, row := range rows {
		paths[i] = r.trainSet.Items[row].Path
	}
	return fmt.Sprintf("%v (%s)%s", rows, strings.Join(paths, ", "), more)
}
