package rank

import (
	"iter"
	"maps"
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Split is which rows are queries and which are the gallery, each ascending.
type Split struct{ Query, Gallery []int }

// MaxRepeats is the most repetitions that a protocol makes.
const MaxRepeats = 100_000

// CheckRepeats refuses a number of repetitions, of an option's name, that no
// protocol makes.
func CheckRepeats(option string, n int) error {
	if n < 1 || n > MaxRepeats {
		return fault.Inputf("%s: %d; give a number from 1 to %d", option, n, MaxRepeats)
	}
	return nil
}

// VehicleID draws the splits of the VehicleID protocol (Liu et al., CVPR 2016):
// one random image of each class is the gallery, the others are queries,
// repeated, each time with a random source of its own from seed. A split is
// drawn when it is asked for.
func VehicleID(labels []int64, repeats int, seed uint64) (iter.Seq[Split], error) {
	if err := CheckRepeats("repeats", repeats); err != nil {
		return nil, err
	}
	rows := map[int64][]int{}
	for i, label := range labels {
		rows[label] = append(rows[label], i)
	}
	if len(rows) == len(labels) {
		return nil, fault.Inputf("%d images of %d classes: no class has a second image to be a query", len(labels), len(rows))
	}
	classes := slices.Sorted(maps.Keys(rows))
	return func(yield func(Split) bool) {
		for i := range repeats {
			random := rng.New(seed, uint64(i))
			chosen := make([]bool, len(labels))
			for _, class := range classes {
				chosen[rows[class][random.IntN(len(rows[class]))]] = true
			}
			if !yield(split(chosen)) {
				return
			}
		}
	}, nil
}

func split(gallery []bool) Split {
	var s Split
	for row, chosen := range gallery {
		if chosen {
			s.Gallery = append(s.Gallery, row)
		} else {
			s.Query = append(s.Query, row)
		}
	}
	return s
}
