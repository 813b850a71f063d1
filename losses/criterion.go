package losses

import (
	"math"

	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Criterion is a loss at work in a training run, with what it keeps from step
// to step: proxies, which are trained beside the network, and the memory. For
// a loss without either it is Forward.
type Criterion struct {
	loss   Loss
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
func Start(l Loss, s Setup) (*Criterion, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if !Trainable(l) {
		return nil, fault.Inputf("this loss is a metric without gradient; choose another one to train with")
	}
	c := &Criterion{loss: l, params: s.Params}
	memory := l.Shared().Memory
	switch {
	case UsesProxies(l) && memory.on():
		return nil, fault.Inputf("memory: this loss compares queries with proxies, not with other samples; leave memory out")
	case UsesProxies(l):
		seen := map[int64]bool{}
		for _, label := range s.Labels {
			if !seen[label] {
				seen[label] = true
				c.classes = append(c.classes, label)
			}
		}
		width := nn.Normal(1 / math.Sqrt(float64(s.Dim)))
		c.proxies = s.Params.Root().Param("proxies", width, int64(len(c.classes)), int64(s.Dim))
	case memory.on():
		capacity := int(memory.Size)
		if memory.Size == memoryOfDataset {
			capacity = len(s.Labels)
		} else if memory.Batches > 0 {
			capacity = memory.Batches * s.Batch
		}
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
func (c *Criterion) Forward(in Input) (Result, error) {
	switch {
	case c.proxies != nil:
		in.Gallery, in.GalleryLabels, in.GalleryName, in.QueryIDs = c.proxies, c.classes, "the proxies", nil
	case c.ring != nil:
		return c.withMemory(in)
	}
	return Forward(c.loss, in)
}

// withMemory evaluates one step with the memory, and stores the batch in it.
func (c *Criterion) withMemory(in Input) (Result, error) {
	if in.QueryIDs == nil {
		return Result{}, fault.Inputf("memory: the samples of the batch have no ids, without which a sample would meet its own stored copy")
	}
	in.inRun = true
	started := c.ring.steps() >= c.loss.Shared().Memory.StartStep
	r, err := c.recall(in, started)
	if err != nil {
		return Result{}, err
	}
	if started {
		err = c.store(in)
	}
	c.ring.counters[1]++
	return r, err
}

// recall is the loss on the batch and, once there is something in it, the memory.
func (c *Criterion) recall(in Input, started bool) (Result, error) {
	if !started || c.ring.count() == 0 {
		return Forward(c.loss, in)
	}
	scope := in.Query.Scope().Child()
	defer scope.Close()
	earlier := c.ring.recall(scope)
	if c.loss.Shared().Memory.Combine == "union" {
		in.memory = earlier
		return Forward(c.loss, in)
	}
	batch, err := Forward(c.loss, in)
	if err != nil {
		return Result{}, err
	}
	in.Gallery, in.GalleryLabels, in.GalleryIDs, in.GalleryName = earlier.rows, earlier.labels, earlier.ids, "the memory"
	in.loneMayBe = true // a class need not be in the memory yet
	r, err := Forward(c.loss, in)
	if err != nil {
		return Result{}, err
	}
	batch.Value, batch.Positives = batch.Value.Add(r.Value), batch.Positives+r.Positives
	return batch, batch.Value.Err()
}

// store enters the batch, as its rows enter the scores.
func (c *Criterion) store(in Input) error {
	s := in.Query.Scope().Child()
	defer s.Close()
	var err error
	torch.NoAutocast(in.device(), func() {
		torch.NoGrad(func() {
			var batch rows
			if batch, err = prepare(in.Query.Alias(s), torch.Float32, c.loss.Shared().Normalize, in.named().QueryName, in.Plain); err == nil {
				c.ring.store(batch.unit, in.QueryLabels, in.QueryIDs)
			}
		})
	})
	if err != nil {
		return err
	}
	return s.Err()
}
