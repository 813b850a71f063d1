package train

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"roadmap/losses/score"
	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Result is what a finished run leaves beside its folder.
type Result struct {
	Folder  string             `json:"run"`
	Steps   int                `json:"steps"`
	Seconds float64            `json:"seconds"` // of this process, evaluation included
	Queries int                `json:"queries"` // of an evaluation
	Lone    int                `json:"lone"`    // queries without a relevant image, in no mean
	Metrics map[string]Metrics `json:"metrics"` // "before" the first step, "after" the newest that was evaluated
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
	if err := r.work(ctx, log); err != nil {
		return nil, r.end(log, err)
	}
	return &Result{Folder: r.folder.Path, Steps: r.step, Seconds: time.Since(begin).Seconds(), Queries: r.queries, Lone: r.lone, Metrics: r.metrics}, nil
}

// work is the run from where it is to its end.
func (r *Run) work(ctx context.Context, log *journal) error {
	if err := r.start(ctx, log); err != nil {
		return err
	}
	if err := r.steps(ctx, log); err != nil {
		return err
	}
	if err := r.saveWeights(); err != nil {
		return err
	}
	return r.evaluate(ctx, log)
}

// start evaluates the network as it begins; in a run that goes on, it makes up for
// an evaluation that the run was stopped in.
func (r *Run) start(ctx context.Context, log *journal) error {
	r.metrics = log.metrics
	r.latest = log.latest
	r.observer.Begin(r.Summary())
	if log.damage != "" {
		r.note(log.damage)
	}
	if r.step > 0 && r.metrics[evaluationAt(0)] == nil {
		r.note("the evaluation before the first step is lost: neither the log nor metrics.json has it")
	}
	for _, text := range r.notes {
		if err := log.add(Event{Kind: "note", Step: r.step, Text: text}); err != nil {
			return err
		}
	}
	if r.step == 0 {
		return r.evaluate(ctx, log)
	}
	if err := log.add(Event{Kind: "resume", Step: r.step}); err != nil {
		return err
	}
	if r.evaluates() && !log.evaluated {
		return r.evaluate(ctx, log)
	}
	return nil
}

// evaluates says whether there is an evaluation between the last step and the next.
func (r *Run) evaluates() bool {
	every := r.recipe.Train.EvalEvery
	return every > 0 && r.step%every == 0 && r.step < r.recipe.Train.Steps
}

// steps runs the loop from where the run is to its last step.
func (r *Run) steps(ctx context.Context, log *journal) error {
	r.past = newPast(r.changing(), r.generators())
	watch := newStopwatch()
	for total := r.recipe.Train.Steps; r.step < total; {
		epoch, first := r.step/r.plan.Batches(), r.step%r.plan.Batches()
		for batch, err := range r.loader.Batches(context.WithoutCancel(ctx), epoch, r.plan.Epoch(epoch)[first:]) {
			if err != nil {
				return fmt.Errorf("step %d: %w", r.step+1, err)
			}
			event, err := r.take(batch)
			if err != nil {
				return err
			}
			watch.images += len(batch.Items)
			if r.step%r.recipe.Train.LogEvery == 0 || r.step == total {
				event.Seconds, event.PerSecond = watch.lap()
				if err := log.add(event); err != nil {
					return err
				}
			}
			watch.pause()
			if r.evaluates() {
				if err := r.evaluate(ctx, log); err != nil {
					return err
				}
			}
			if ctx.Err() != nil && r.step < total {
				return context.Cause(ctx)
			}
			if every := r.recipe.Train.CheckpointEvery; r.step == total || every > 0 && r.step%every == 0 {
				if err := r.checkpoint(log); err != nil {
					return err
				}
			}
			watch.resume()
			if r.step == total {
				break
			}
		}
	}
	return nil
}

// take is one step, and what the log says of it.
func (r *Run) take(batch *data.Batch) (event Event, err error) {
	if err := r.past.keep(); err != nil {
		return event, fmt.Errorf("step %d: %w", r.step+1, err)
	}
	r.condition = begun
	if event, err = r.gradients(batch); err != nil {
		return event, &batchError{r.step + 1, batch.Items, err}
	}
	r.condition = partial
	factor := r.schedule.Factor(r.step, r.recipe.Train.Steps, r.plan.Batches())
	if err := r.update(event.Skipped, factor); err != nil {
		return event, fmt.Errorf("step %d: %w; the weights may have moved in part, so they were not saved", r.step+1, err)
	}
	r.condition = whole
	r.step++
	r.observer.Step(r.step, r.recipe.Train.Steps, *event.Loss)
	event.Kind, event.Step, event.LR = "step", r.step, r.optimizer.LR(0, factor)
	return event, nil
}

// gradients is the part of a step that moves no weight: forward, loss, backward.
func (r *Run) gradients(batch *data.Batch) (event Event, err error) {
	s := r.scope.Child()
	defer s.Close()
	var embeddings *torch.Tensor
	embed.InPrecision(r.device, r.precision, func() {
		embeddings = r.model.Forward(embed.Pixels(s, batch, r.device), true)
	})
	result, err := r.criterion.Forward(score.Input{Query: embeddings, QueryLabels: batch.Labels, QueryIDs: ids(batch)})
	if fault.IsInput(err) { // a loss refuses embeddings that are not finite
		err = diverged{err}
	}
	if err != nil {
		return event, err
	}
	value, err := finite("the loss")(result.Value.Item())
	if err != nil {
		return event, err
	}
	event.Loss, event.Lone = &value, result.Lone
	event.Skipped, err = r.backward(result.Value)
	if err != nil || event.Skipped {
		return event, err
	}
	norm, err := finite("the norm of the gradient")(r.optimizer.ClipGradNorm(r.recipe.Train.ClipNorm))
	event.GradNorm = &norm
	return event, err
}

// update moves the weights along the gradients, unless the step is skipped.
// factor scales the learning rate.
func (r *Run) update(skipped bool, factor float64) error {
	if !skipped {
		if err := r.optimizer.Step(factor); err != nil {
			return err
		}
	}
	if err := r.optimizer.ZeroGrad(); err != nil {
		return err
	}
	if r.average != nil {
		return r.average.Update()
	}
	return nil
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
