package sampler

import (
	"fmt"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

func init() {
	register("vehicle", func() Sampler { return &Vehicle{Batch: 256} })
}

// Vehicle is for datasets of which a part of the classes have a category, as
// PKU VehicleID, where 250 models of cars are labelled: half of a batch is
// images of one category, the other half of classes without any (FastAP, Cakir
// et al. 2019, supplementary). An epoch shows every image with a category: one
// of N_c images has ⌈2 N_c / Batch⌉ batches, so there are Σ_c ⌈2 N_c / Batch⌉,
// in a random order.
//
// Both halves are whole classes, cut to fit. Where the last batch of a category
// has too few images left, it goes back to the category's earlier ones; a
// category with fewer than half a batch gives all, and the batch is short.
type Vehicle struct {
	Batch int `yaml:"batch"` // images a batch; even
}

// Validate checks the settings that need no dataset.
func (s *Vehicle) Validate() error {
	if s.Batch < 4 || s.Batch%2 != 0 {
		return config.Invalid("batch", "is %d; give an even number of images, at least 4: half of them of one category", s.Batch)
	}
	return nil
}

// Plan implements Sampler. It refuses a dataset that is empty, where no image
// or every image has a category, or without two images of one class.
func (s *Vehicle) Plan(labels, categories []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return nil, errEmpty("vehicle")
	}
	if err := needCategories("vehicle", labels, categories); err != nil {
		return nil, err
	}
	if err := needPair("vehicle", byClass(labels)); err != nil {
		return nil, err
	}
	groups := byCategory(labels, categories)
	if groups[0].id != NoCategory || len(groups) == 1 {
		return nil, fault.Inputf("sampler vehicle: half of a batch has a category and half has none, but %d of the %d images have none; choose the sampler hard or balanced",
			withoutCategory(categories), len(labels))
	}
	p := &vehiclePlan{groups: groups[1:], rest: groups[0].classes, half: s.Batch / 2, seed: seed}
	for _, g := range p.groups {
		p.batches += p.batchesOf(g)
	}
	return p, nil
}

// withoutCategory is the number of images without a category.
func withoutCategory(categories []int64) int {
	n := 0
	for _, c := range categories {
		if c == NoCategory {
			n++
		}
	}
	return n
}

type vehiclePlan struct {
	groups        []category
	rest          []class // without a category
	half, batches int
	seed          uint64
}

func (p *vehiclePlan) batchesOf(g category) int { return (g.images + p.half - 1) / p.half }
func (p *vehiclePlan) Batches() int             { return p.batches }

func (p *vehiclePlan) Why() string {
	return fmt.Sprintf("%d categories in halves of %d images, those of a category once an epoch", len(p.groups), p.half)
}

func (p *vehiclePlan) Epoch(epoch int) [][]int {
	var halves [][]int
	for i, g := range p.groups {
		rows := inClasses(g.classes, p.seed, uint64(epoch), uint64(i))
		for b := range p.batchesOf(g) {
			begin := max(0, min(b*p.half, len(rows)-p.half))
			halves = append(halves, slices.Clone(rows[begin:min(begin+p.half, len(rows))]))
		}
	}
	random := rng.New(p.seed, streamPairs, uint64(epoch))
	random.Shuffle(len(halves), func(i, j int) { halves[i], halves[j] = halves[j], halves[i] })
	others := newDeck(p.rest, AllSamples, p.seed, epoch, 0)
	for i, half := range halves {
		halves[i] = slices.Clip(others.fill(half, p.half))
	}
	return halves
}
