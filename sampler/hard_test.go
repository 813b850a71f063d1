package sampler_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
	"roadmap/sampler"
)

// listed reads labels and categories from a list of class,path; the category is
// the first parts of the path.
func listed(t *testing.T, list string, category func(parts []string) string) (labels, categories []int64) {
	t.Helper()
	content, err := os.ReadFile(datatest.Shared(t, list))
	if err != nil {
		t.Fatal(err)
	}
	classes, groups := map[string]int64{}, map[string]int64{}
	number := func(in map[string]int64, name string) int64 {
		if _, known := in[name]; !known {
			in[name] = int64(len(in))
		}
		return in[name]
	}
	for line := range strings.Lines(string(content)) {
		class, path, ok := strings.Cut(strings.TrimSpace(line), ",")
		if !ok {
			t.Fatalf("line %q", line)
		}
		labels = append(labels, number(classes, class))
		categories = append(categories, number(groups, category(strings.Split(path, "/"))))
	}
	return labels, categories
}

// The four counts of the papers, on the official lists, with what else the
// batches must be: no image twice in a batch, halves of two categories.
func TestHardOnOfficialLists(t *testing.T) {
	sop := func(parts []string) string { return parts[0] }
	inshop := func(parts []string) string { return parts[1] + "/" + parts[2] }
	for _, c := range []struct {
		name, list string
		category   func([]string) string
		sampler    *sampler.Hard
		batches    int
	}{
		{"FastAP, Online Products", "sop-lists/stanford_online_train.csv", sop, &sampler.Hard{Batch: 256, BatchesPerPair: 5, Order: "pairs"}, 12 * 11 / 2 * 5},
		{"FastAP, In-Shop", "inshop-lists/deep_fashion_train.csv", inshop, &sampler.Hard{Batch: 256, BatchesPerPair: 2, Order: "pairs"}, 23 * 22 / 2 * 2},
		{"RaMBO, Online Products", "sop-lists/stanford_online_train.csv", sop, &sampler.Hard{Batch: 128, BatchesPerPair: 10, Samples: 4, Order: "pairs"}, 660},
		{"RaMBO, In-Shop", "inshop-lists/deep_fashion_train.csv", inshop, &sampler.Hard{Batch: 128, BatchesPerPair: 4, Samples: 8, Order: "pairs"}, 1012},
	} {
		t.Run(c.name, func(t *testing.T) {
			labels, categories := listed(t, c.list, c.category)
			p, err := c.sampler.Plan(labels, categories, 1)
			if err != nil {
				t.Fatal(err)
			}
			cover := sampler.Cover(p, labels, categories, 0)
			if p.Batches() != c.batches || cover.Batches != c.batches {
				t.Errorf("%d batches, %d in the epoch, want %d (%s)", p.Batches(), cover.Batches, c.batches, p.Why())
			}
			if cover.Pairs != cover.PairsPossible || cover.Copies != 0 || cover.Largest != c.sampler.Batch {
				t.Errorf("%+v", cover)
			}
			sizes := map[int64]int{} // of the categories
			for _, category := range categories {
				sizes[category]++
			}
			for b, batch := range p.Epoch(0) {
				of := map[int64]int{}
				for _, row := range batch {
					of[categories[row]]++
				}
				if len(of) != 2 {
					t.Fatalf("batch %d has %d categories", b, len(of))
				}
				for category, n := range of {
					if want := min(c.sampler.Batch/2, sizes[category]); c.sampler.Samples == sampler.AllSamples && n != want {
						t.Fatalf("batch %d has %d images of a category of %d, want %d", b, n, sizes[category], want)
					}
				}
			}
		})
	}
}

// grid is a dataset of categories × classes × images, in this order.
func grid(categories, classes, images int) (labels, of []int64) {
	for g := range categories {
		for c := range classes {
			for range images {
				labels, of = append(labels, int64(g*classes+c)), append(of, int64(g))
			}
		}
	}
	return labels, of
}

// All images of a class stand together, and of the last class as many as fit:
// 5 images from classes of 2 are 2 + 2 + 1.
func TestHardTakesWholeClasses(t *testing.T) {
	labels, categories := grid(3, 6, 2)
	p := planned(t, &sampler.Hard{Batch: 10, BatchesPerPair: 2, Order: "pairs"}, labels, categories)
	if want := 3 * 2; p.Batches() != want {
		t.Fatalf("%d batches, want %d", p.Batches(), want)
	}
	var pairs [][2]int64
	for _, batch := range p.Epoch(0) {
		pair := [2]int64{categories[batch[0]], categories[batch[5]]}
		pairs = append(pairs, pair)
		for side, half := range [][]int{batch[:5], batch[5:]} {
			sizes := map[int64]int{}
			for _, row := range half {
				if categories[row] != pair[side] {
					t.Fatalf("half %d of %v holds category %d", side, pair, categories[row])
				}
				sizes[labels[row]]++
			}
			if len(sizes) != 3 || sizes[labels[half[0]]] != 2 || sizes[labels[half[4]]] != 1 {
				t.Errorf("a half of classes %v, want 2, 2 and 1 images", sizes)
			}
		}
	}
	if pairs[0] != pairs[1] || pairs[2] != pairs[3] || pairs[4] != pairs[5] || pairs[0] == pairs[2] || pairs[2] == pairs[4] || pairs[0] == pairs[4] {
		t.Errorf("pairs in the order %v: each must come once, its batches one behind the other", pairs)
	}
}

// Within an epoch no class comes again before all of its category have come: 6
// classes, 3 a half (the third in part), so two halves show all 6.
func TestHardDealsClassesEvenly(t *testing.T) {
	labels, categories := grid(2, 6, 4)
	p := planned(t, &sampler.Hard{Batch: 12, BatchesPerPair: 2, Samples: 2, Order: "pairs"}, labels, categories)
	if cover := sampler.Cover(p, labels, categories, 3); cover.ClassesSeen != 12 || cover.Repeats != 0 || cover.PositivesMin != 1 || cover.PositivesMax != 1 {
		t.Errorf("%+v, want all 12 classes, 2 images of each", cover)
	}
}

// Mixed is the same batches in another order.
func TestHardMixed(t *testing.T) {
	labels, categories := grid(4, 5, 3)
	pairs := planned(t, &sampler.Hard{Batch: 8, BatchesPerPair: 4, Order: "pairs"}, labels, categories).Epoch(1)
	mixed := planned(t, &sampler.Hard{Batch: 8, BatchesPerPair: 4, Order: "mixed"}, labels, categories).Epoch(1)
	if slices.EqualFunc(pairs, mixed, slices.Equal) {
		t.Error("the order is the same")
	}
	slices.SortFunc(pairs, slices.Compare[[]int])
	slices.SortFunc(mixed, slices.Compare[[]int])
	if !slices.EqualFunc(pairs, mixed, slices.Equal) {
		t.Error("the batches differ")
	}
}

// A category with fewer images than half a batch gives them all, once.
func TestHardShortBatches(t *testing.T) {
	labels := []int64{0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 9}
	categories := []int64{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, sampler.NoCategory}
	p := planned(t, &sampler.Hard{Batch: 12, BatchesPerPair: 1, Order: "pairs"}, labels, categories)
	cover := sampler.Cover(p, labels, categories, 0)
	if cover.Batches != 1 || cover.Largest != 11 || cover.ImagesSeen != 11 || cover.Without != 1 || cover.Categories != 2 {
		t.Errorf("%+v, want one batch of the 5 + 6 images that have a category", cover)
	}
}

func TestCategoriesRefused(t *testing.T) {
	labels, categories := grid(2, 2, 2)
	none := slices.Repeat([]int64{sampler.NoCategory}, len(labels))
	hard := &sampler.Hard{Batch: 4, BatchesPerPair: 1, Order: "pairs"}
	for _, c := range []struct {
		name       string
		s          sampler.Sampler
		categories []int64
		says       []string
	}{
		{"hard, no categories", hard, nil, []string{"sampler hard", "has no categories", "balanced"}},
		{"hard, no image has one", hard, none, []string{"0 category", "two"}},
		{"too few", hard, categories[1:], []string{"8 labels and 7 categories"}},
		{"hard, odd batch", &sampler.Hard{Batch: 7, BatchesPerPair: 1, Order: "pairs"}, categories, []string{"batch is 7", "even"}},
		{"hard, no batch of a pair", &sampler.Hard{Batch: 8, Order: "pairs"}, categories, []string{"batches_per_pair is 0"}},
		{"hard, one sample", &sampler.Hard{Batch: 8, BatchesPerPair: 1, Samples: 1, Order: "pairs"}, categories, []string{"samples is 1"}},
		{"hard, samples beyond a half", &sampler.Hard{Batch: 8, BatchesPerPair: 1, Samples: 5, Order: "pairs"}, categories, []string{"samples is 5", "2 to 4"}},
		{"hard, order", &sampler.Hard{Batch: 8, BatchesPerPair: 1, Order: "up"}, categories, []string{`order is "up"`}},
		{"vehicle, no categories", &sampler.Vehicle{Batch: 4}, nil, []string{"sampler vehicle", "has no categories"}},
		{"vehicle, all labelled", &sampler.Vehicle{Batch: 4}, categories, []string{"0 of the 8 images have none"}},
		{"vehicle, none labelled", &sampler.Vehicle{Batch: 4}, none, []string{"8 of the 8 images have none"}},
		{"vehicle, batch", &sampler.Vehicle{Batch: 2}, categories, []string{"batch is 2"}},
		{"classes, batch", &sampler.Classes{Batch: 1}, nil, []string{"batch is 1"}},
		{"classes, too large", &sampler.Classes{Batch: 9}, nil, []string{"9 images", "8 images", "sampler.batch"}},
		{"confusion, too few classes", &sampler.Confusion{Hard: *hard, Clusters: 5, Every: 1}, nil, []string{"4 classes", "5 clusters", "sampler.clusters to 4"}},
		{"confusion, clusters", &sampler.Confusion{Hard: *hard, Clusters: 1, Every: 1}, nil, []string{"clusters is 1"}},
		{"confusion, every", &sampler.Confusion{Hard: *hard, Clusters: 2}, nil, []string{"every is 0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.s.Plan(labels, c.categories, 0)
			faulttest.Refused(t, err, c.says...)
		})
	}
	for _, name := range []string{"hard", "vehicle", "classes", "confusion"} {
		_, err := must(t, name).Plan(nil, nil, 0)
		faulttest.Refused(t, err, "sampler "+name, "empty")
	}
}

func TestSamplesAsText(t *testing.T) {
	for text, want := range map[string]sampler.Samples{"all": sampler.AllSamples, "4": 4} {
		var s sampler.Samples
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want || s.String() != text {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "4.5", "ALL", "99999999999999999999"} {
		var s sampler.Samples
		faulttest.Refused(t, s.UnmarshalText([]byte(text)), "neither all nor a number")
	}
}

func planned(t *testing.T, s sampler.Sampler, labels, categories []int64) sampler.Plan {
	t.Helper()
	p, err := s.Plan(labels, categories, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
