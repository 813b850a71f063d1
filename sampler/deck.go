package sampler

import (
	"math/rand/v2"
	"strconv"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Samples is the number of images of a class in a batch: 0, written "all",
// takes the whole class.
type Samples int

// AllSamples takes every image of a class.
const AllSamples Samples = 0

// UnmarshalText reads "all" or a number of at least 1.
func (s *Samples) UnmarshalText(text []byte) error {
	if string(text) == "all" {
		*s = AllSamples
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 {
		return fault.Inputf("%q is neither all nor a number of images of at least 1", text)
	}
	*s = Samples(n)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (s Samples) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String is "all" or the number.
func (s Samples) String() string {
	if s == AllSamples {
		return "all"
	}
	return strconv.Itoa(int(s))
}

// of is the number of images to take from a class of n.
func (s Samples) of(n int) int {
	if s == AllSamples {
		return n
	}
	return min(n, int(s))
}

// deck deals classes in a random order, each once before any comes again, over
// all the batches of an epoch.
type deck struct {
	classes []class
	samples Samples
	stream  func(use, of uint64) *rand.Rand // of this deck alone
	order   *rand.Rand
	draw    []*images // of every class; nil until it has come
	left    []int     // classes that are yet to come, before a new order is drawn
}

// newDeck is the deck number i of an epoch.
func newDeck(classes []class, samples Samples, seed uint64, epoch, i int) *deck {
	stream := func(use, of uint64) *rand.Rand { return rng.New(seed, use, uint64(epoch), uint64(i), of) }
	return &deck{classes: classes, samples: samples, stream: stream, order: stream(streamClasses, 0), draw: make([]*images, len(classes))}
}

// fill appends n images to batch: class after class, of each as many as samples
// says, of the last as many as still fit. No class comes twice, so that there
// are fewer than n images where the classes have no more.
func (d *deck) fill(batch []int, n int) []int {
	came := map[int]bool{}
	for n > 0 && len(came) < len(d.classes) {
		c := d.next(came)
		came[c] = true
		if d.draw[c] == nil {
			d.draw[c] = &images{rows: d.classes[c].rows, rng: d.stream(streamImages, uint64(c))}
		}
		take := min(d.samples.of(len(d.classes[c].rows)), n)
		batch = d.draw[c].take(batch, take)
		n -= take
	}
	return batch
}

// next takes the first class off the deck that is not in came.
func (d *deck) next(came map[int]bool) int {
	for {
		for i, c := range d.left {
			if !came[c] {
				d.left = append(d.left[:i:i], d.left[i+1:]...)
				return c
			}
		}
		d.left = append(d.left, d.order.Perm(len(d.classes))...)
	}
}
