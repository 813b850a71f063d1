package rank

import (
	"slices"

	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

// Split is which rows are queries and which are the gallery, each ascending.
type Split struct{ Query, Gallery []int }

// VehicleID draws the splits of the VehicleID protocol (Liu et al., CVPR 2016):
// one random image of each class is the gallery, the others are queries,
// repeated, each time with a random source of its own from seed.
func VehicleID(labels []int64, repeats int, seed uint64) ([]Split, error) {
	if repeats < 1 {
		return nil, fault.Inputf("repeats: %d; at least 1 split is needed", repeats)
	}
	rows := map[int64][]int{}
	var classes []int64
	for i, label := range labels {
		if rows[label] == nil {
			classes = append(classes, label)
		}
		rows[label] = append(rows[label], i)
	}
	slices.Sort(classes)
	if len(classes) == len(labels) {
		return nil, fault.Inputf("%d images of %d classes: no class has a second image to be a query", len(labels), len(classes))
	}
	splits := make([]Split, repeats)
	for i := range splits {
		random := rng.New(seed, uint64(i))
		chosen := make([]bool, len(labels))
		for _, class := range classes {
			chosen[rows[class][random.IntN(len(rows[class]))]] = true
		}
		for row, isGallery := range chosen {
			if isGallery {
				splits[i].Gallery = append(splits[i].Gallery, row)
			} else {
				splits[i].Query = append(splits[i].Query, row)
			}
		}
	}
	return splits, nil
}
