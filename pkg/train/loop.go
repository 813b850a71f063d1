package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"roadmap/losses"
	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/torch"
)

// Result is what a finished run leaves beside its folder.
type Result struct {
	Folder  string             `json:"run"`
	Steps   int                `json:"steps"`
	Seconds float64            `json:"seconds"` // of this process, evaluation included
	Queries int                `json:"queries"` // of an evaluation
	Lone    int                `json:"lone"`    // queries without a relevant image, in no mean
	Metrics map[string]Metrics `json:"metrics"` // "untrained", "trained"
}

// Train takes the steps that are left, evaluates before the first and after
// the last one, and writes weights, metrics and log. When the context ends it
// finishes the step it is in, saves a checkpoint and returns the context's error.
func (r *Run) Train(ctx context.Context) (result *Result, err error) {
	runtime.LockOSThread() // libtorch's threads belong to the one that calls it
	defer runtime.UnlockOSThread()
	torch.SetThreads(r.recipe.Train.Threads)
	begin := time.Now()
	log, err := openJournal(r.folder, r.step, r.step == 0 || r.step == r.recipe.Train.Steps)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := log.close(); err == nil {
			err = closing
		}
	}()
	if err := r.readMetrics(); err != nil {
		return nil, err
	}
	for _, text := range r.notes {
		if err := log.add(Event{Kind: "note", Step: r.step, Text: text}); err != nil {
			return nil, err
		}
	}
	if r.step == 0 {
		if err := r.evaluate(ctx, log, "untrained"); err != nil {
			return nil, err
		}
	} else if err := log.add(Event{Kind: "resume", Step: r.step}); err != nil {
		return nil, err
	}
	if err := r.steps(ctx, log); err != nil {
		return nil, err
	}
	if err := r.saveWeights(); err != nil {
		return nil, err
	}
	if err := r.evaluate(ctx, log, "trained"); err != nil {
		return nil, err
	}
	return &Result{Folder: r.folder.Path, Steps: r.step, Seconds: time.Since(begin).Seconds(), Queries: r.queries, Lone: r.lone, Metrics: r.metrics}, nil
}

// steps runs the loop from where the run is to its last step.
func (r *Run) steps(ctx context.Context, log *journal) error {
	watch := newStopwatch()
	for total := r.recipe.Train.Steps; r.step < total; {
		epoch, first := r.step/r.plan.Batches(), r.step%r.plan.Batches()
		for batch, err := range r.loader.Batches(context.WithoutCancel(ctx), epoch, r.plan.Epoch(epoch)[first:]) {
			if err != nil {
				return r.pause(log, fmt.Errorf("step %d: %w", r.step+1, err))
			}
			if err := r.take(log, batch, watch); err != nil {
				return err
			}
			if every := r.recipe.Train.EvalEvery; every > 0 && r.step%every == 0 && r.step < total {
				watch.pause()
				if err := r.evaluate(ctx, log, "trained"); err != nil && !errors.Is(err, context.Canceled) {
					return err
				}
				watch.resume()
			}
			stopping := ctx.Err() != nil
			if every := r.recipe.Train.CheckpointEvery; r.step == total || stopping || every > 0 && r.step%every == 0 {
				watch.pause()
				if err := r.save(log); err != nil {
					return err
				}
				watch.resume()
			}
			if stopping && r.step < total {
				return errors.Join(fmt.Errorf("stopped after step %d of %d, checkpoint saved; continue with --resume %s: %w",
					r.step, total, r.folder.Path, context.Cause(ctx)), log.add(Event{Kind: "stop", Step: r.step, Reason: "interrupted"}))
			}
			if r.step == total {
				break
			}
		}
	}
	return nil
}

// take is one step: forward, loss, backward, update.
func (r *Run) take(log *journal, batch *data.Batch, watch *stopwatch) error {
	s := r.scope.Child()
	defer s.Close()
	var embeddings *torch.Tensor
	embed.InPrecision(r.device, r.precision, func() {
		embeddings = r.model.Forward(embed.Pixels(s, batch, r.device), true)
	})
	result, err := losses.Forward(r.loss, losses.Input{Query: embeddings, QueryLabels: batch.Labels})
	if err != nil {
		return r.fail(log, batch, err)
	}
	value, err := result.Value.Item()
	if err != nil {
		return r.fail(log, batch, err)
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return r.fail(log, batch, fmt.Errorf("the loss is %g", value))
	}
	if err := result.Value.Backward(); err != nil {
		return r.fail(log, batch, err)
	}
	last := r.step+1 == r.recipe.Train.Steps
	report := last || (r.step+1)%r.recipe.Train.LogEvery == 0
	event := Event{Kind: "step", Step: r.step + 1, Loss: &value, Lone: result.Lone}
	norm, err := r.optimizer.ClipGradNorm(r.recipe.Train.ClipNorm)
	if err != nil {
		return r.fail(log, batch, err)
	}
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return r.fail(log, batch, fmt.Errorf("the norm of the gradient is %g", norm))
	}
	event.GradNorm = &norm
	factor := r.schedule.Factor(r.step, r.recipe.Train.Steps, r.plan.Batches())
	if err := r.optimizer.Step(factor); err != nil {
		return r.fail(log, batch, err)
	}
	if err := r.optimizer.ZeroGrad(); err != nil {
		return err
	}
	r.step++
	r.observer.Step(r.step, r.recipe.Train.Steps, value)
	watch.images += len(batch.Items)
	if !report {
		return nil
	}
	event.LR = r.optimizer.LR(0, factor)
	event.Seconds, event.PerSecond = watch.lap()
	return log.add(event)
}

// pause ends the run between two steps, when what it needs cannot be had: a
// checkpoint is saved, from which it goes on once the cause is mended.
func (r *Run) pause(log *journal, cause error) error {
	if err := r.save(log); err != nil {
		return fmt.Errorf("%w; and no checkpoint could be saved: %w", cause, err)
	}
	if err := log.add(Event{Kind: "stop", Step: r.step, Reason: cause.Error()}); err != nil {
		return fmt.Errorf("%w; %w", cause, err)
	}
	return fmt.Errorf("%w; mend that and continue with --resume %s", cause, r.folder.Path)
}

// fail stops the run in a step that went wrong. The parameters are those before
// the step (running statistics have seen its batch); they are saved beside the
// regular checkpoints, which stay.
func (r *Run) fail(log *journal, batch *data.Batch, cause error) error {
	paths := make([]string, 0, 4)
	for _, row := range batch.Items[:min(3, len(batch.Items))] {
		paths = append(paths, r.trainSet.Items[row].Path)
	}
	if len(batch.Items) > 3 {
		paths = append(paths, "…")
	}
	path := r.folder.file(fmt.Sprintf("%s/stopped-%08d%s", checkpointDir, r.step, checkpointExt))
	// %v: a loss calls its embeddings input, but they came from the network, not from the user.
	err := fmt.Errorf("step %d, images %v (%s): %v; lower optimizer.lr, set train.clip_norm, or look for broken images among these; the weights before the step are in %s",
		r.step+1, batch.Items, strings.Join(paths, ", "), cause, path)
	if saving := r.saveAs(path); saving != nil {
		err = fmt.Errorf("%w; they could not be saved: %w", err, saving)
	}
	if logging := log.add(Event{Kind: "stop", Step: r.step, Reason: cause.Error()}); logging != nil {
		err = fmt.Errorf("%w; %w", err, logging)
	}
	return err
}

// stopwatch measures training alone.
type stopwatch struct {
	from   time.Time
	spent  time.Duration
	images int
}

func newStopwatch() *stopwatch { return &stopwatch{from: time.Now()} }

func (w *stopwatch) pause()  { w.spent += time.Since(w.from) }
func (w *stopwatch) resume() { w.from = time.Now() }

// lap returns the seconds since the last lap and the images of each, and starts anew.
func (w *stopwatch) lap() (seconds, perSecond float64) {
	seconds = (w.spent + time.Since(w.from)).Seconds()
	perSecond = float64(w.images) / max(seconds, 1e-9)
	*w = stopwatch{from: time.Now()}
	return seconds, perSecond
}
