package sampler

import (
	"cmp"
	"math"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/rng"
)

func init() {
	register("confusion", func() Sampler {
		return &Confusion{Hard: Hard{Batch: 256, BatchesPerPair: 5, Order: "pairs"}, Clusters: 12, Every: 5}
	})
}

// Confusion is Hard for datasets without categories, or with ones that say
// little: a category is a cluster of classes whose mean embeddings are close,
// which the network takes for alike. The network is asked again every Every
// epochs. (No paper describes it.)
//
// Plan takes such clusters as categories. Without any, before the network has
// said anything, it divides the classes at random into Clusters of nearly equal
// numbers of classes, so an epoch has as many batches then as later.
type Confusion struct {
	Hard     `yaml:",inline"`
	Clusters int `yaml:"clusters"` // number of clusters
	Every    int `yaml:"every"`    // epochs between two clusterings
}

// Regrouper is a sampler whose categories come from the network that is
// trained. Whoever trains calls Regroup before every epoch that is a multiple of
// Period, with the class means of the network of that moment, gives the result
// to Plan as categories, and saves it with the checkpoint, since it cannot be
// computed again from the seed.
type Regrouper interface {
	Sampler
	// Regroup divides the classes by their mean embeddings: means[i], all of one
	// length, is that of class i, and the result's i-th number its category, 0
	// to the number of clusters - 1, none of them empty.
	Regroup(means [][]float32, seed uint64) ([]int64, error)
	// Period is the number of epochs between two calls.
	Period() int
}

// Validate checks the settings that need no dataset.
func (s *Confusion) Validate() error {
	switch {
	case s.Clusters < 2:
		return config.Invalid("clusters", "is %d; give at least 2: a batch is drawn from two of them", s.Clusters)
	case s.Every < 1:
		return config.Invalid("every", "is %d; give the epochs between two clusterings, at least 1", s.Every)
	}
	return s.Hard.Validate()
}

// Period implements Regrouper.
func (s *Confusion) Period() int { return s.Every }

// Plan implements Sampler. Beyond what Hard refuses it refuses fewer classes
// than clusters.
func (s *Confusion) Plan(labels, categories []int64, seed uint64) (Plan, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if categories == nil && len(labels) > 0 {
		classes := byClass(labels)
		if err := s.enough(len(classes)); err != nil {
			return nil, err
		}
		categories = make([]int64, len(labels))
		for i, c := range rng.New(seed, streamClusters).Perm(len(classes)) {
			for _, row := range classes[c].rows {
				categories[row] = int64(i % s.Clusters)
			}
		}
	}
	return s.plan("confusion", labels, categories, seed)
}

func (s *Confusion) enough(classes int) error {
	if classes < s.Clusters {
		return fault.Inputf("sampler confusion: %d classes cannot be divided into %d clusters; set sampler.clusters to %d or less", classes, s.Clusters, classes)
	}
	return nil
}

// rounds bounds the iterations of k-means; it ends earlier when nothing moves.
const rounds = 100

// Regroup implements Regrouper by k-means on directions (means of length 1, by
// cosine), begun as k-means++ does (Arthur and Vassilvitskii 2007). A cluster
// that loses its last class takes the one that lies farthest from its own.
// Means that are all zeros or not finite are errors.
func (s *Confusion) Regroup(means [][]float32, seed uint64) ([]int64, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if err := s.enough(len(means)); err != nil {
		return nil, err
	}
	points := make([][]float64, len(means))
	for i, mean := range means {
		points[i] = make([]float64, len(mean))
		for d, x := range mean {
			points[i][d] = float64(x)
		}
		if !normalize(points[i]) {
			return nil, fault.Inputf("sampler confusion: the mean embedding of class %d has no direction: all zeros, or not finite", i)
		}
	}
	centres := s.begin(points, seed)
	of := make([]int64, len(points))
	for range rounds {
		moved := nearest(points, centres, of)
		refill(points, centres, of)
		if !moved {
			break
		}
		average(points, centres, of)
	}
	return of, nil
}

// begin chooses the first centres: one at random, each next one with a
// probability proportional to its squared distance from those chosen.
func (s *Confusion) begin(points [][]float64, seed uint64) [][]float64 {
	random := rng.New(seed, streamClusters)
	centres := [][]float64{slices.Clone(points[random.IntN(len(points))])}
	for len(centres) < s.Clusters {
		weights := make([]float64, len(points))
		total := 0.0
		for i, p := range points {
			best := math.Inf(-1)
			for _, c := range centres {
				best = max(best, dot(p, c))
			}
			weights[i] = max(0, 1-best) // half the squared distance of directions
			total += weights[i]
		}
		draw, chosen := random.Float64()*total, len(points)-1
		for i, w := range weights {
			if draw -= w; draw < 0 {
				chosen = i
				break
			}
		}
		centres = append(centres, slices.Clone(points[chosen]))
	}
	return centres
}

// nearest puts every point to the centre with the highest cosine, the first of
// equal ones, and reports whether any changed.
func nearest(points, centres [][]float64, of []int64) (moved bool) {
	for i, p := range points {
		best, at := math.Inf(-1), int64(0)
		for c, centre := range centres {
			if s := dot(p, centre); s > best {
				best, at = s, int64(c)
			}
		}
		moved = moved || of[i] != at
		of[i] = at
	}
	return moved
}

// refill gives every empty cluster the point farthest from its centre of those
// that are not alone.
func refill(points, centres [][]float64, of []int64) {
	sizes := make([]int, len(centres))
	for _, c := range of {
		sizes[c]++
	}
	for c := range centres {
		if sizes[c] > 0 {
			continue
		}
		order := count(len(points))
		slices.SortStableFunc(order, func(a, b int) int {
			return cmp.Compare(dot(points[a], centres[of[a]]), dot(points[b], centres[of[b]]))
		})
		far := order[slices.IndexFunc(order, func(i int) bool { return sizes[of[i]] > 1 })]
		sizes[of[far]]--
		of[far], sizes[c] = int64(c), 1
	}
}

// average moves every centre to the direction of the mean of its points; one
// whose points cancel out stays.
func average(points, centres [][]float64, of []int64) {
	for c := range centres {
		mean := make([]float64, len(centres[c]))
		for i, p := range points {
			if of[i] == int64(c) {
				for d, x := range p {
					mean[d] += x
				}
			}
		}
		if normalize(mean) {
			centres[c] = mean
		}
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// normalize scales to length 1 and reports whether that is possible.
func normalize(v []float64) bool {
	length := math.Sqrt(dot(v, v))
	if !(length > 0) || math.IsInf(length, 0) {
		return false
	}
	for i := range v {
		v[i] /= length
	}
	return true
}
