package sampler

import (
	"fmt"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

func init() {
	register("random", func() Sampler { return &Random{Size: 128} })
}

// Random shuffles the whole dataset every epoch and cuts it into batches of
// Size images. The rest that does not fill a batch is left out of that epoch,
// so that every batch has the same shape and no loss sees a batch of one.
type Random struct {
	Size int `yaml:"size"` // images a batch
}

// Validate checks the settings that need no dataset.
func (s *Random) Validate() error {
	if s.Size < 2 {
		return config.Invalid("size", "is %d; give at least 2", s.Size)
	}
	return nil
}

// Plan implements Sampler. It refuses a dataset that is empty, smaller than a
// batch, or without two images of one class.
func (s *Random) Plan(labels, _ []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return nil, errEmpty("random")
	}
	if err := needPair("random", byClass(labels)); err != nil {
		return nil, err
	}
	if s.Size > len(labels) {
		return nil, fault.Inputf("sampler random: a batch of %d images is larger than the dataset of %d images; lower sampler.size", s.Size, len(labels))
	}
	return randomPlan{rows: len(labels), size: s.Size, seed: seed}, nil
}

type randomPlan struct {
	rows, size int
	seed       uint64
}

func (p randomPlan) Batches() int { return p.rows / p.size }

func (p randomPlan) Why() string {
	return fmt.Sprintf("%d images, %d a batch, the rest left out", p.rows, p.size)
}

func (p randomPlan) Epoch(epoch int) [][]int {
	rows := rng.New(p.seed, streamRows, uint64(epoch)).Perm(p.rows)
	return cut(rows[:p.Batches()*p.size], p.size)
}
