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

// take is one step, and its line in the log.
func (r *Run) take(log *journal, batch *data.Batch, watch *stopwatch) error {
	factor := r.schedule.Factor(r.step, r.recipe.Train.Steps, r.plan.Batches())
	event, err := r.learn(batch, factor)
	if err != nil {
		return r.fail(log, batch, err)
	}
	r.step++
	r.observer.Step(r.step, r.recipe.Train.Steps, *event.Loss)
	watch.images += len(batch.Items)
	if r.step%r.recipe.Train.LogEvery != 0 && r.step != r.recipe.Train.Steps {
		return nil
	}
	event.Kind, event.Step, event.LR = "step", r.step, r.optimizer.LR(0, factor)
	event.Seconds, event.PerSecond = watch.lap()
	return log.add(event)
}

// learn is the work of a step: forward, loss, backward, update. factor scales
// the learning rate.
func (r *Run) learn(batch *data.Batch, factor float64) (event Event, err error) {
	s := r.scope.Child()
	defer s.Close()
	var embeddings *torch.Tensor
	embed.InPrecision(r.device, r.precision, func() {
		embeddings = r.model.Forward(embed.Pixels(s, batch, r.device), true)
	})
	result, err := r.criterion.Forward(losses.Input{Query: embeddings, QueryLabels: batch.Labels, QueryIDs: ids(batch)})
	if err != nil {
		return event, err
	}
	value, err := finite("the loss")(result.Value.Item())
	if err != nil {
		return event, err
	}
	event.Loss, event.Lone = &value, result.Lone
	event.Skipped, err = r.backward(result.Value)
	if err != nil {
		return event, err
	}
	if !event.Skipped {
		norm, err := finite("the norm of the gradient")(r.optimizer.ClipGradNorm(r.recipe.Train.ClipNorm))
		if err != nil {
			return event, err
		}
		event.GradNorm = &norm
		if err := r.optimizer.Step(factor); err != nil {
			return event, err
		}
	}
	if err := r.optimizer.ZeroGrad(); err != nil {
		return event, err
	}
	if r.average != nil {
		return event, r.average.Update()
	}
	return event, nil
}

// backward computes the gradients. In float16 they may overflow: then the step
// is skipped, and the next one is scaled less.
func (r *Run) backward(loss *torch.Tensor) (skipped bool, err error) {
	if r.scaler == nil {
		return false, loss.Backward()
	}
	if err := r.scaler.Scale(loss).Backward(); err != nil {
		return false, err
	}
	fits, err := r.scaler.Unscale(r.optimizer.Params())
	return !fits, err
}

// ids names the samples of a batch: their rows in the training split.
func ids(b *data.Batch) []int64 {
	rows := make([]int64, len(b.Items))
	for i, row := range b.Items {
		rows[i] = int64(row)
	}
	return rows
}

// finite passes a number on, unless it is none.
func finite(what string) func(float64, error) (float64, error) {
	return func(v float64, err error) (float64, error) {
		if err == nil && (math.IsNaN(v) || math.IsInf(v, 0)) {
			err = fmt.Errorf("%s is %g", what, v)
		}
		return v, err
	}
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
