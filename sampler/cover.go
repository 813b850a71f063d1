package sampler

import "slices"

// Coverage is what the batches of one epoch hold.
type Coverage struct {
	Epoch         int     `json:"epoch"`
	Batches       int     `json:"batches"`
	Why           string  `json:"why"`            // where the number of batches comes from
	Smallest      int     `json:"smallest_batch"` // images
	Largest       int     `json:"largest_batch"`  // images
	Short         int     `json:"short_batches"`  // those smaller than the largest
	Images        int     `json:"images"`         // of the dataset
	ImagesSeen    int     `json:"images_seen"`    // that are in a batch at least once
	Classes       int     `json:"classes"`        // of the dataset
	ClassesSeen   int     `json:"classes_seen"`   // likewise
	Repeats       int     `json:"repeats"`        // uses of images after the first one
	Copies        int     `json:"copies"`         // those within one batch, where an image is its own positive
	PositivesMin  int     `json:"positives_min"`  // other images of its class in the batch of an image: the fewest,
	PositivesMean float64 `json:"positives_mean"` // on average over all uses,
	PositivesMax  int     `json:"positives_max"`  // and the most
	Lone          int     `json:"lone"`           // uses of images without a positive in the batch
	Categories    int     `json:"categories"`     // of the dataset
	Pairs         int     `json:"category_pairs"` // pairs of categories that meet in a batch
	PairsPossible int     `json:"pairs_possible"` // pairs of categories that there are
	Without       int     `json:"images_without"` // images without a category
}

// Cover counts an epoch of a plan made for these labels and categories (nil:
// none).
func Cover(p Plan, labels, categories []int64, epoch int) Coverage {
	batches := p.Epoch(epoch)
	c := Coverage{Epoch: epoch, Batches: len(batches), Why: p.Why(), Images: len(labels), Classes: len(byClass(labels))}
	ids := slices.Clone(categories)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if i, found := slices.BinarySearch(ids, NoCategory); found {
		ids = slices.Delete(ids, i, i+1)
		c.Without = withoutCategory(categories)
	}
	c.Categories, c.PairsPossible = len(ids), len(ids)*(len(ids)-1)/2
	uses, classes, pairs := map[int]int{}, map[int64]bool{}, map[[2]int64]bool{}
	positives, total := 0, 0
	c.PositivesMin = len(labels)
	for b, batch := range batches {
		size := map[int64]int{}
		here := map[int]bool{}
		met := map[int64]bool{}
		for _, row := range batch {
			size[labels[row]]++
			if uses[row]++; uses[row] > 1 {
				c.Repeats++
			}
			if here[row] {
				c.Copies++
			}
			here[row] = true
			if categories != nil && categories[row] != NoCategory {
				met[categories[row]] = true
			}
		}
		for label, n := range size {
			classes[label] = true
			positives += n * (n - 1)
			c.PositivesMin, c.PositivesMax = min(c.PositivesMin, n-1), max(c.PositivesMax, n-1)
			if n == 1 {
				c.Lone++
			}
		}
		for x := range met {
			for y := range met {
				if x < y {
					pairs[[2]int64{x, y}] = true
				}
			}
		}
		total += len(batch)
		if b == 0 || len(batch) < c.Smallest {
			c.Smallest = len(batch)
		}
		c.Largest = max(c.Largest, len(batch))
	}
	for _, batch := range batches {
		if len(batch) < c.Largest {
			c.Short++
		}
	}
	c.ImagesSeen, c.ClassesSeen, c.Pairs = len(uses), len(classes), len(pairs)
	c.PositivesMean = float64(positives) / float64(max(total, 1))
	return c
}
