// Package criterion is a loss at work: as a section of a recipe, with the
// options of its evaluation, and in a training run, with the proxies that are
// trained beside the network and the memory of earlier embeddings.
package criterion

import (
	"fmt"
	"math"

	"roadmap/losses"
	"roadmap/losses/score"
	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/nn"
	"roadmap/pkg/registry"
	"roadmap/pkg/torch"
)

// Config is a loss with all that its section in a recipe may set.
type Config struct {
	losses.Loss   `yaml:",inline"`
	score.Options `yaml:",inline"`
	Memory        Memory `yaml:"memory"` // embeddings of earlier steps in the gallery
}

// Registry has a Config of every loss, with its defaults.
var Registry = registry.New[*Config]("loss")

func init() {
	for _, name := range losses.Names() {
		Registry.Register(name, func() *Config {
			l, o, _ := losses.New(name) // which knows its own names
			return &Config{Loss: l, Options: o, Memory: Memory{Combine: "union"}}
		})
	}
}

// Evaluate evaluates the loss once. A memory, which is kept from step to step,
// is refused.
func (c *Config) Evaluate(in score.Input) (score.Result, error) {
	if c.Memory.on() {
		return score.Result{}, fault.Inputf("memory keeps embeddings from step to step of a training run; a single evaluation has none, so leave memory out")
	}
	return losses.Evaluate(c.Loss, c.Options, in)
}

// Criterion is a loss at work in a training run, with what it keeps from step
// to step: proxies, which are trained beside the network, and the memory. For
// a loss without either it is Evaluate.
type Criterion struct {
	config *Config
	params *nn.Params

	proxies *torch.Tensor // [classes, d]; nil: none
	classes []int64       // label of each proxy
	ring    *ring         // nil: none
}

// Setup is what a Criterion has to know of the run.
type Setup struct {
	Params *nn.Params // empty; proxies and memory go there, with initial values from its seed
	Dim    int        // of the embeddings
	Batch  int        // samples a batch
	Labels []int64    // of the training samples
}

// Start makes the Criterion of a loss. Proxies start at random, with lengths
// about 1, one for each distinct label in the order of their first samples.
func Start(config *Config, s Setup) (*Criterion, error) {
	traits, kept := losses.Traits(config.Loss), config.Memory
	if traits.Metric {
		return nil, fault.Inputf("this loss is a metric without gradient; choose another one to train with")
	}
	c := &Criterion{config: config, params: s.Params}
	switch {
	case traits.Proxies && kept.on():
		return nil, fault.Inputf("memory: this loss compares queries with proxies, not with other samples; leave memory out")
	case traits.Proxies:
		seen := map[int64]bool{}
		for _, label := range s.Labels {
			if !seen[label] {
				seen[label] = true
				c.classes = append(c.classes, label)
			}
		}
		width := nn.Normal(1 / math.Sqrt(float64(s.Dim)))
		c.proxies = s.Params.Root().Param("proxies", width, int64(len(c.classes)), int64(s.Dim))
	case kept.on():
		rows := float64(kept.Size)
		if kept.Size == memoryOfDataset {
			rows = float64(len(s.Labels))
		} else if kept.Batches > 0 {
			rows = float64(kept.Batches) * float64(s.Batch)
		}
		if err := memory.Check(fmt.Sprintf("memory: %.0f embeddings of %d dimensions", rows, s.Dim), 4*rows*float64(s.Dim)); err != nil {
			return nil, err
		}
		capacity := int(rows)
		if capacity < 1 {
			return nil, fault.Inputf("memory: there is nothing to keep; is the dataset empty?")
		}
		c.ring = newRing(s.Params, capacity, s.Dim)
	}
	return c, s.Params.Scope().Err()
}

// State is the Criterion's parameters (the proxies) and buffers (the memory).
func (c *Criterion) State() nn.State { return c.params.State() }

// Forward evaluates the loss on a batch, given as Query with QueryLabels and,
// for a memory, QueryIDs. Each call is a step of the memory.
func (c *Criterion) Forward(in score.Input) (score.Result, error) {
	switch {
	case c.proxies != nil:
		in.Gallery, in.GalleryLabels, in.GalleryName, in.QueryIDs = c.proxies, c.classes, "the proxies", nil
	case c.ring != nil:
		return c.withMemory(in)
	}
	return c.evaluate(in)
}

func (c *Criterion) evaluate(in score.Input) (score.Result, error) {
	return losses.Evaluate(c.config.Loss, c.config.Options, in)
}

// withMemory evaluates one step with the memory, and stores the batch in it.
func (c *Criterion) withMemory(in score.Input) (score.Result, error) {
	if in.QueryIDs == nil {
		return score.Result{}, fault.Inputf("memory: the samples of the batch have no ids, without which a sample would meet its own stored copy")
	}
	started := c.ring.steps() >= c.config.Memory.StartStep
	r, err := c.recall(in, started)
	if err != nil {
		return score.Result{}, err
	}
	if started {
		err = c.store(in)
	}
	c.ring.counters[1]++
	return r, err
}

// recall is the loss on the batch and, once there is something in it, the memory.
func (c *Criterion) recall(in score.Input, started bool) (score.Result, error) {
	if !started || c.ring.count() == 0 {
		return c.evaluate(in)
	}
	scope := in.Query.Scope().Child()
	defer scope.Close()
	earlier := c.ring.recall(scope)
	if c.config.Memory.Combine == "union" {
		in.Stored = earlier
		return c.evaluate(in)
	}
	batch, err := c.evaluate(in)
	if err != nil {
		return score.Result{}, err
	}
	in.Gallery, in.GalleryLabels, in.GalleryIDs, in.GalleryName = earlier.Rows, earlier.Labels, earlier.IDs, "the memory"
	o := c.config.Options
	o.Lone = "skip" // a class need not be in the memory yet
	r, err := losses.Evaluate(c.config.Loss, o, in)
	if err != nil {
		return score.Result{}, err
	}
	batch.Value, batch.Positives = batch.Value.Add(r.Value), batch.Positives+r.Positives
	return batch, batch.Value.Err()
}

// store enters the batch, as its rows enter the scores.
func (c *Criterion) store(in score.Input) error {
	s := in.Query.Scope().Child()
	defer s.Close()
	var err error
	torch.NoAutocast(in.Query.Device(), func() {
		torch.NoGrad(func() {
			var batch score.Rows
			if batch, err = score.Normalize(in.Query.Alias(s), torch.Float32, c.config.Normalize, "query embeddings", c.config.Plain); err == nil {
				c.ring.store(batch.Unit, in.QueryLabels, in.QueryIDs)
			}
		})
	})
	if err != nil {
		return err
	}
	return s.Err()
}
