package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// diverged is an error about a number that is none. It is not the user's input,
// whatever it wraps: a loss calls its embeddings so, but they came from the network.
type diverged struct{ error }

// finite passes a number on, unless it is none.
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

// fail ends the run in a step that did not get as far as its gradients. The
// step is undone, so the checkpoint is the one that the step began with.
func (r *Run) fail(log *journal, batch *data.Batch, cause error) error {
	if err := r.past.restore(); err != nil {
		return r.stop(log, cause.Error(), fmt.Errorf("step %d: %w; what it began with could not be restored: %w", r.step+1, cause, err))
	}
	reason := fmt.Sprintf("step %d, images %v: %v", r.step+1, batch.Items, cause)
	err := fmt.Errorf("step %d: %w", r.step+1, cause)
	switch {
	case errors.As(cause, new(diverged)):
		err = fmt.Errorf("step %d, images %s: %w; %s, or look for broken images among these (the log has all); should it fail there again, remove the newest checkpoint",
			r.step+1, r.abridged(batch.Items), cause, gentler)
	case errors.Is(cause, torch.ErrOutOfMemory):
		err = fmt.Errorf("%w; begin anew with fewer sampler.classes or sampler.samples, or go on where there is more memory", err)
	}
	return r.pause(log, reason, err)
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

// measure is an evaluation; one that fails ends the run, but loses no step.
func (r *Run) measure(ctx context.Context, log *journal) error {
	err := r.evaluate(ctx, log)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return r.interrupt(ctx, log)
	}
	if errors.Is(err, embed.ErrNotFinite) && r.step > 0 { // these weights are no state to go on from, and no fault of the user's files
		return r.stop(log, err.Error(), fmt.Errorf("evaluation after step %d: %v; %s", r.step, err, gentler))
	}
	err = fmt.Errorf("evaluation after step %d: %w", r.step, err)
	return r.pause(log, err.Error(), err)
}

// interrupt ends the run because its context has ended.
func (r *Run) interrupt(ctx context.Context, log *journal) error {
	if err := r.checkpoint(log); err != nil {
		return r.stop(log, "interrupted", err)
	}
	return errors.Join(fmt.Errorf("stopped after step %d of %d, checkpoint saved; continue with --resume %s: %w",
		r.step, r.recipe.Train.Steps, r.folder.Path, context.Cause(ctx)), log.add(Event{Kind: "stop", Step: r.step, Reason: "interrupted"}))
}

// pause ends the run between two steps, when what it needs cannot be had: a
// checkpoint is saved, from which it goes on once the cause is mended. Older ones
// stay, should this one turn out to be of no use.
func (r *Run) pause(log *journal, reason string, cause error) error {
	if err := r.save(log); err != nil {
		cause = fmt.Errorf("%w; and no checkpoint could be saved (%v)", cause, err)
	}
	return r.stop(log, reason, cause)
}

// stop ends the run as it is on disk: the log says why, the error how to go on.
func (r *Run) stop(log *journal, reason string, err error) error {
	if logging := log.add(Event{Kind: "stop", Step: r.step, Reason: reason}); logging != nil {
		err = fmt.Errorf("%w; and the log does not tell of it (%v)", err, logging)
	}
	steps, unreadable := r.folder.checkpoints()
	if len(steps) == 0 || unreadable != nil {
		return fmt.Errorf("%w; there is no checkpoint yet, so --resume %s begins at step 0", err, r.folder.Path)
	}
	return fmt.Errorf("%w; --resume %s goes on from the checkpoint of step %d (train.*, eval.* and optimizer.lr may change)", err, r.folder.Path, slices.Max(steps))
}
