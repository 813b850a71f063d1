package sampler

import (
	"fmt"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

func init() {
	register("hard", func() Sampler { return &Hard{Batch: 256, BatchesPerPair: 5, Order: "pairs"} })
}

// Hard fills one half of a batch from one category and the other half from
// another, so that negatives are alike: they share the category. An epoch
// takes every pair of categories once. It is FastAP's "hard" sampling (Cakir et
// al. 2019, supplementary A): Stanford Online Products has 12 categories,
// hence 66 pairs, and with 5 batches a pair an epoch has 330 batches; In-Shop
// has 23 categories, and with 2 batches a pair 506.
//
// A half is filled class after class, with all images of a class or Samples of
// them; the last class is cut to fit. No image is twice in a batch. Classes
// are dealt in a random order, each once before any comes again in the epoch. A
// category with too few images for a half gives all it has, and the batch is
// short.
//
// RaMBO (Rolínek et al. 2020) has batches of 128, with Samples 4 and 10 batches
// a pair on Online Products, 8 and 4 on In-Shop. ROADMAP's program has Samples
// 4, 10 batches a pair and Order mixed; of a class with fewer images it
// repeats some, which is not done here, since a copy is no positive to learn
// from.
//
// Images without a category are left out.
type Hard struct {
	Batch          int     `yaml:"batch"`            // images a batch; even
	BatchesPerPair int     `yaml:"batches_per_pair"` // batches of every pair of categories, an epoch
	Samples        Samples `yaml:"samples"`          // images of a class: a number, or all
	Order          string  `yaml:"order"`            // "pairs": the batches of a pair follow each other; "mixed": all batches in a random order
}

// Validate checks the settings that need no dataset.
func (s *Hard) Validate() error {
	switch {
	case s.Batch < 4 || s.Batch%2 != 0:
		return config.Invalid("batch", "is %d; give an even number of images, at least 4: half of them from either category", s.Batch)
	case s.BatchesPerPair < 1:
		return config.Invalid("batches_per_pair", "is %d; give at least 1", s.BatchesPerPair)
	case s.Samples == 1:
		return config.Invalid("samples", "is 1; give at least 2, or no image has a positive in its batch")
	case s.Samples < 0 || int(s.Samples) > s.Batch/2:
		return config.Invalid("samples", "is %d; half a batch is %d images, so give 2 to %d, or all", int(s.Samples), s.Batch/2, s.Batch/2)
	case s.Order != "pairs" && s.Order != "mixed":
		return config.Invalid("order", "is %q; give pairs or mixed", s.Order)
	}
	return nil
}

// Plan implements Sampler. It refuses a dataset that is empty, has fewer than
// two categories, or no class of two images.
func (s *Hard) Plan(labels, categories []int64, seed uint64) (Plan, error) {
	return s.plan("hard", labels, categories, seed)
}

func (s *Hard) plan(name string, labels, categories []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return nil, errEmpty(name)
	}
	if err := needCategories(name, labels, categories); err != nil {
		return nil, err
	}
	groups := slices.DeleteFunc(byCategory(labels, categories), func(c category) bool { return c.id == NoCategory })
	if len(groups) < 2 {
		return nil, fault.Inputf("sampler %s: %d category among the images, and a batch is drawn from two; choose the sampler balanced or confusion", name, len(groups))
	}
	var classes []class
	for _, g := range groups {
		classes = append(classes, g.classes...)
	}
	if err := needPair(name, classes); err != nil {
		return nil, err
	}
	return &hardPlan{Hard: *s, groups: groups, seed: seed}, nil
}

type hardPlan struct {
	Hard
	groups []category
	seed   uint64
}

func (p *hardPlan) pairs() int   { return len(p.groups) * (len(p.groups) - 1) / 2 }
func (p *hardPlan) Batches() int { return p.pairs() * p.BatchesPerPair }

func (p *hardPlan) Why() string {
	return fmt.Sprintf("%d pairs of %d categories × %d batches", p.pairs(), len(p.groups), p.BatchesPerPair)
}

func (p *hardPlan) Epoch(epoch int) [][]int {
	decks := make([]*deck, len(p.groups))
	for i, g := range p.groups {
		decks[i] = newDeck(g.classes, p.Samples, p.seed, epoch, i)
	}
	var pairs [][2]int
	for a := range p.groups {
		for b := range a {
			pairs = append(pairs, [2]int{b, a})
		}
	}
	random := rng.New(p.seed, streamPairs, uint64(epoch))
	random.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	batches := make([][]int, 0, p.Batches())
	for _, pair := range pairs {
		for range p.BatchesPerPair {
			batch := make([]int, 0, p.Batch)
			for _, side := range pair {
				batch = decks[side].fill(batch, p.Batch/2)
			}
			batches = append(batches, slices.Clip(batch))
		}
	}
	if p.Order == "mixed" {
		random.Shuffle(len(batches), func(i, j int) { batches[i], batches[j] = batches[j], batches[i] })
	}
	return batches
}
