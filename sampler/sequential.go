package sampler

import (
	"fmt"

	"roadmap/pkg/config"
)

func init() {
	register("sequential", func() Sampler { return &Sequential{Size: 64} })
}

// Sequential goes through the dataset in its own order, every image once, the
// same in every epoch: for embedding and evaluation. The last batch may be
// smaller, so a Size beyond the dataset is no mistake.
type Sequential struct {
	Size int `yaml:"size"` // images a batch
}

// Validate checks the settings that need no dataset.
func (s *Sequential) Validate() error {
	if s.Size < 1 {
		return config.Invalid("size", "is %d; give at least 1", s.Size)
	}
	return nil
}

// Plan implements Sampler; the seed is without effect. It refuses an empty
// dataset.
func (s *Sequential) Plan(labels, _ []int64, _ uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return nil, errEmpty("sequential")
	}
	return sequentialPlan{rows: len(labels), size: s.Size}, nil
}

type sequentialPlan struct{ rows, size int }

func (p sequentialPlan) Batches() int { return (p.rows + p.size - 1) / p.size }

func (p sequentialPlan) Why() string {
	return fmt.Sprintf("%d images, %d a batch, the rest a smaller one", p.rows, p.size)
}

func (p sequentialPlan) Epoch(int) [][]int { return cut(count(p.rows), p.size) }
