package train

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"roadmap/eval"
	"roadmap/eval/rank"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
)

// evaluationAt is what the evaluation after a step is called; of several names
// the same the newest counts.
func evaluationAt(step int) string {
	if step == 0 {
		return "before"
	}
	return "after"
}

// Metrics are the values of an evaluation by name, such as "r@1".
type Metrics map[string]float64

// measurable checks, before anything is trained, that the test split can be
// evaluated by the recipe's metrics.
func (r *Run) measurable() error {
	o, err := r.evalOptions()
	if err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if err := Evaluable(r.testSet); err != nil {
		return err
	}
	candidates := searched(r.testSet)
	for _, m := range o.Metrics {
		if m.K > candidates {
			return fault.Inputf("eval.metrics: %s looks at more than the %d candidates of %s %s; lower it", m, candidates, r.testSet.Name, r.testSet.Split)
		}
	}
	if stats := r.testSet.Stats(); stats.Max < 2 {
		return fault.Inputf("%s %s: every class has one image, so no query has anything to find; give classes of two or more", r.testSet.Name, r.testSet.Split)
	}
	for _, d := range []*data.Dataset{r.trainSet, r.testSet} {
		if len(d.Classes) == 1 {
			r.note(fmt.Sprintf("%s %s: all images are of one class, so there are no negatives", d.Name, d.Split))
		}
	}
	return nil
}

// evalOptions are what the recipe asks of an evaluation.
func (r *Run) evalOptions() (eval.Options, error) {
	metrics, err := rank.ParseMetrics(r.recipe.Eval.Metrics...)
	if err != nil {
		return eval.Options{}, fmt.Errorf("eval.%w", err) // which begins with "metrics: "
	}
	return eval.Options{Metrics: metrics, Device: r.device}, nil
}

// evaluate measures the network on the test split and records the result by
// name.
func (r *Run) evaluate(ctx context.Context, log *journal) error {
	if err := r.measure(ctx, log); err != nil {
		return fmt.Errorf("evaluation after step %d: %w", r.step, err)
	}
	return nil
}

func (r *Run) measure(ctx context.Context, log *journal) error {
	begin := time.Now()
	o, err := r.evalOptions()
	if err != nil {
		return err
	}
	embeddings, err := r.embedTest(ctx)
	if err != nil {
		return err
	}
	in, err := Input(r.testSet, embeddings, r.model.Dim())
	if err != nil {
		return err
	}
	in.Levels = nil // a run logs the classes' metrics alone
	result, err := eval.Run(ctx, in, o)
	if err != nil {
		return fmt.Errorf("evaluate %s %s: %w", r.testSet.Name, r.testSet.Split, err)
	}
	r.metrics[evaluationAt(r.step)], r.queries, r.lone = result.Metrics, result.Queries, result.Lone
	text, err := json.MarshalIndent(r.metrics, "", "  ")
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if err := r.folder.write(metricsFile, append(text, '\n')); err != nil {
		return err
	}
	// The line comes last: a run that goes on takes an evaluation with a line for done.
	if err := log.add(Event{Kind: "eval", Step: r.step, Queries: result.Queries, Lone: result.Lone, Metrics: result.Metrics}); err != nil {
		return err
	}
	r.observer.Evaluated(Evaluated{r.step, result.Metrics, r.latest, time.Since(begin).Seconds(), r.recipe.Train.evaluationsLeft(r.step)})
	r.latest = result.Metrics
	return nil
}

// embedTest embeds the test split with the network, or with the moving average
// of its weights where there is one.
func (r *Run) embedTest(ctx context.Context) (embeddings []float32, err error) {
	if r.average != nil {
		if err := r.average.Swap(); err != nil {
			return nil, err
		}
		defer func() {
			if back := r.average.Swap(); err == nil {
				err = back
			}
		}()
	}
	return r.test.All(ctx, r.model, r.device)
}
