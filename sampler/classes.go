package sampler

import (
	"fmt"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

func init() {
	register("classes", func() Sampler { return &Classes{Batch: 256} })
}

// Classes puts whole classes into a batch until it has Batch images: FastAP's
// "random" sampling (Cakir et al. 2019, supplementary A). Every epoch shuffles
// the classes, and the images within each, and cuts the row of images that
// results into batches, so that an image comes at most once an epoch; a class at
// a cut has images in two batches. What does not fill the last batch is left
// out of the epoch.
type Classes struct {
	Batch int `yaml:"batch"` // images a batch
}

// Validate checks the settings that need no dataset.
func (s *Classes) Validate() error {
	if s.Batch < 2 {
		return config.Invalid("batch", "is %d; give at least 2 images", s.Batch)
	}
	return nil
}

// Plan implements Sampler. It refuses a dataset that is empty, smaller than a
// batch, or without two images of one class.
func (s *Classes) Plan(labels, _ []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return nil, errEmpty("classes")
	}
	classes := byClass(labels)
	if err := needPair("classes", classes); err != nil {
		return nil, err
	}
	if s.Batch > len(labels) {
		return nil, fault.Inputf("sampler classes: a batch of %d images is larger than the dataset of %d images; lower sampler.batch", s.Batch, len(labels))
	}
	return &classesPlan{classes: classes, images: len(labels), batch: s.Batch, seed: seed}, nil
}

type classesPlan struct {
	classes       []class
	images, batch int
	seed          uint64
}

func (p *classesPlan) Batches() int { return p.images / p.batch }

func (p *classesPlan) Why() string {
	return fmt.Sprintf("%d images in whole classes, %d a batch, the rest left out", p.images, p.batch)
}

func (p *classesPlan) Epoch(epoch int) [][]int {
	return cut(inClasses(p.classes, p.seed, uint64(epoch))[:p.Batches()*p.batch], p.batch)
}

// inClasses lists all rows class by class, classes and the rows of each in a
// random order.
func inClasses(classes []class, seed uint64, path ...uint64) []int {
	random := rng.New(seed, append([]uint64{streamRows}, path...)...)
	var rows []int
	for _, c := range random.Perm(len(classes)) {
		begin := len(rows)
		rows = append(rows, classes[c].rows...)
		of := rows[begin:]
		random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	}
	return rows
}
