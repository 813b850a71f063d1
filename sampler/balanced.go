package sampler

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/rng"
)

func init() {
	register("balanced", func() Sampler { return &Balanced{Classes: 32, Samples: 4, Lone: "fail"} })
}

// Balanced fills a batch with Classes different classes and Samples images of
// each; the images of a class stand together.
//
// Classes are visited as evenly as can be: after any number of whole epochs
// the visits of any two classes differ by at most 1, and within one epoch too.
// So are the images of a class: within an epoch their uses differ by at most 1.
//
// A class of at least Samples images gives different ones to a batch. A class
// of n < Samples images gives all of them, each ⌊Samples/n⌋ or ⌈Samples/n⌉
// times: a repeated image has a copy of itself among its positives, so choose
// Samples with the small classes in mind.
type Balanced struct {
	Classes int    `yaml:"classes"` // classes a batch
	Samples int    `yaml:"samples"` // images of each class in a batch
	Batches int    `yaml:"batches"` // batches an epoch; 0: as many as the dataset fills, at least 1
	Lone    string `yaml:"lone"`    // classes of one image: "fail" refuses them, "skip" leaves them out
}

// Validate checks the settings that need no dataset.
func (s *Balanced) Validate() error {
	switch {
	case s.Classes < 1:
		return config.Invalid("classes", "is %d; give at least 1 (at least 2 for negatives)", s.Classes)
	case s.Samples < 2:
		return config.Invalid("samples", "is %d; give at least 2, or no image has a positive in its batch", s.Samples)
	case s.Batches < 0:
		return config.Invalid("batches", "is %d; give the batches an epoch, or 0 for as many as the dataset fills", s.Batches)
	case s.Lone != "fail" && s.Lone != "skip":
		return config.Invalid("lone", "is %q; give fail or skip", s.Lone)
	}
	if err := memory.Check("an epoch of them", 8*float64(s.Batches)*float64(s.Classes)*float64(s.Samples)); err != nil {
		return config.Invalid("batches", "is %d: %w", s.Batches, err)
	}
	return nil
}

// Plan implements Sampler. It refuses a dataset that is empty, smaller than a
// batch, with fewer classes than a batch holds, or with classes of one image
// (unless Lone is "skip").
func (s *Balanced) Plan(labels, _ []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	all := byClass(labels)
	if len(all) == 0 {
		return nil, errEmpty("balanced")
	}
	if err := needPair("balanced", all); err != nil {
		return nil, err
	}
	classes := slices.DeleteFunc(slices.Clone(all), func(c class) bool { return len(c.rows) < 2 })
	lone := len(all) - len(classes)
	if lone > 0 && s.Lone == "fail" {
		first := all[slices.IndexFunc(all, func(c class) bool { return len(c.rows) < 2 })]
		return nil, fault.Input(&LoneError{Lone: lone, Classes: len(all), Row: first.rows[0], Name: fmt.Sprintf("label %d", first.label)})
	}
	left := ""
	if lone > 0 {
		left = fmt.Sprintf(" with two images or more (%d with one are left out)", lone)
	}
	if len(classes) < s.Classes {
		return nil, fault.Inputf("sampler balanced: a batch holds %d classes but the dataset has %d%s; set sampler.classes to %d or less",
			s.Classes, len(classes), left, len(classes))
	}
	images := len(labels) - lone
	if size := s.Classes * s.Samples; size > images {
		return nil, fault.Inputf("sampler balanced: a batch of %d × %d = %d images is larger than the dataset of %d images; lower sampler.classes or sampler.samples",
			s.Classes, s.Samples, size, images)
	}
	batches := s.Batches
	if batches == 0 {
		batches = images / (s.Classes * s.Samples)
	}
	why := fmt.Sprintf("%d images of %d classes, %d × %d a batch", images, len(classes), s.Classes, s.Samples)
	if s.Batches > 0 {
		why = fmt.Sprintf("batches: %d", s.Batches)
	}
	return &balancedPlan{classes: classes, perBatch: s.Classes, samples: s.Samples, batches: batches, why: why, seed: seed}, nil
}

// LoneError says that classes have a single image, so that it has no positive.
type LoneError struct {
	Lone, Classes int    // how many of how many
	Row           int    // image of the first of them
	Name          string // of that class, which who knows better than its label may replace
}

// Error implements error.
func (e *LoneError) Error() string {
	return fmt.Sprintf("sampler balanced: %d of %d classes have a single image and so no positive (the first is %s); "+
		"add images or set sampler.lone=skip to leave these classes out", e.Lone, e.Classes, e.Name)
}

type balancedPlan struct {
	classes                    []class
	perBatch, samples, batches int
	why                        string
	seed                       uint64
}

func (p *balancedPlan) Batches() int { return p.batches }
func (p *balancedPlan) Why() string  { return p.why }

func (p *balancedPlan) Epoch(epoch int) [][]int {
	visits := p.visits(epoch)
	draw := make([]*images, len(p.classes))
	batches := make([][]int, p.batches)
	for b := range batches {
		batch := make([]int, 0, p.perBatch*p.samples)
		for _, c := range visits[b*p.perBatch : (b+1)*p.perBatch] {
			if draw[c] == nil {
				draw[c] = &images{rows: p.classes[c].rows, rng: rng.New(p.seed, streamImages, uint64(epoch), uint64(c))}
			}
			batch = draw[c].take(batch, p.samples)
		}
		batches[b] = batch
	}
	return batches
}

// visits lists the classes of an epoch in the order of the batches: rounds in
// which every class comes once, and before them the extras, those classes that
// have one visit more. No class is twice in a batch.
func (p *balancedPlan) visits(epoch int) []int {
	slots := p.batches * p.perBatch
	random := rng.New(p.seed, streamClasses, uint64(epoch))
	visits := make([]int, 0, slots)
	round := p.extras(epoch, slots%len(p.classes))
	for {
		random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		begun := len(visits) % p.perBatch // visits of the round before that are in the batch begun
		apart(round, visits[len(visits)-begun:], p.perBatch-begun)
		visits = append(visits, round...)
		if len(visits) == slots {
			return visits
		}
		round = count(len(p.classes))
	}
}

// extras chooses the classes that an epoch visits once more than the others.
// They are a window of n on a ring of all classes which moves on by n every
// epoch, so over the epochs they differ by at most 1 as well. When the windows
// have gone round a whole number of times, a new ring is drawn.
func (p *balancedPlan) extras(epoch, n int) []int {
	size := len(p.classes)
	if n == 0 {
		return nil
	}
	cycle := size / gcd(size, n) // epochs until the windows end where they began
	ring := rng.New(p.seed, streamExtras, uint64(epoch/cycle)).Perm(size)
	window := make([]int, n)
	for i := range window {
		window[i] = ring[(epoch%cycle*n+i)%size]
	}
	return window
}

// apart reorders round so that none of its first n is in taken, by moving
// those that are behind the n, in order.
func apart(round, taken []int, n int) {
	if len(taken) == 0 {
		return
	}
	var first, later []int
	for _, c := range round {
		if len(first) < n && !slices.Contains(taken, c) {
			first = append(first, c)
		} else {
			later = append(later, c)
		}
	}
	copy(round, append(first, later...))
}

// images deals the rows of one class: permutations of all rows, one behind the
// other, so that uses differ by at most 1.
type images struct {
	rows []int
	rng  *rand.Rand
	left []int // rest of the permutation begun
}

// take appends n rows to batch, different ones when the class has as many.
// Otherwise every row is taken ⌊n/rows⌋ times and the rest once more.
func (m *images) take(batch []int, n int) []int {
	for ; n >= len(m.rows); n -= len(m.rows) {
		batch = append(batch, m.rows...)
	}
	begun := len(batch)
	for range n {
		if len(m.left) == 0 {
			m.left = slices.Clone(m.rows)
			m.rng.Shuffle(len(m.left), func(i, j int) { m.left[i], m.left[j] = m.left[j], m.left[i] })
			apart(m.left, batch[begun:], n-(len(batch)-begun))
		}
		batch, m.left = append(batch, m.left[0]), m.left[1:]
	}
	return batch
}
