package sampler_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
	"roadmap/sampler"
	"roadmap/sampler/samplertest"
)

// Every registered sampler passes the suite with its defaults or, where they
// ask for larger datasets than the suite has, with the settings here.
func TestConformance(t *testing.T) {
	settings := map[string]func(labels []int64, random *rand.Rand) sampler.Sampler{
		"balanced": func(_ []int64, random *rand.Rand) sampler.Sampler {
			return &sampler.Balanced{Classes: 1 + random.IntN(12), Samples: 2 + random.IntN(5), Lone: "skip"}
		},
		"random": func(_ []int64, random *rand.Rand) sampler.Sampler {
			return &sampler.Random{Size: 2 + random.IntN(40)}
		},
		"classes": func(_ []int64, random *rand.Rand) sampler.Sampler {
			return &sampler.Classes{Batch: 2 + random.IntN(40)}
		},
		"vehicle": func(_ []int64, random *rand.Rand) sampler.Sampler {
			return &sampler.Vehicle{Batch: 4 + 2*random.IntN(20)}
		},
		"hard": func(_ []int64, random *rand.Rand) sampler.Sampler { return randomHard(random) },
		"confusion": func(_ []int64, random *rand.Rand) sampler.Sampler {
			return &sampler.Confusion{Hard: *randomHard(random), Clusters: 2 + random.IntN(5), Every: 1}
		},
	}
	for _, name := range sampler.Names() {
		t.Run(name, func(t *testing.T) {
			construct, ok := settings[name]
			if !ok {
				construct = func([]int64, *rand.Rand) sampler.Sampler { return must(t, name) }
			}
			samplertest.Conform(t, construct)
		})
	}
}

func randomHard(random *rand.Rand) *sampler.Hard {
	s := &sampler.Hard{Batch: 8 + 2*random.IntN(20), BatchesPerPair: 1 + random.IntN(3), Order: []string{"pairs", "mixed"}[random.IntN(2)]}
	if random.IntN(2) == 0 {
		s.Samples = sampler.Samples(2 + random.IntN(3))
	}
	return s
}

func TestNewGivesDefaultsThatAreValid(t *testing.T) {
	for _, name := range sampler.Names() {
		if v, ok := must(t, name).(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	_, err := sampler.New("balancd")
	faulttest.Refused(t, err, `unknown sampler "balancd"`, `"balanced"`)
}

// The whole of a small epoch, written out: 2 classes a batch and 2 images each
// from 3 classes of 2, 2 and 3 images. 7 images fill one batch of 4.
func TestBalancedByHand(t *testing.T) {
	labels := []int64{10, 20, 30, 10, 20, 30, 30}
	rows := map[int64][]int{10: {0, 3}, 20: {1, 4}, 30: {2, 5, 6}}
	plan := plan(t, &sampler.Balanced{Classes: 2, Samples: 2, Lone: "fail"}, labels)
	if plan.Batches() != 7/4 {
		t.Fatalf("%d batches, want 7/4 = 1", plan.Batches())
	}
	seen := map[int64]int{}
	for e := range 3 { // 3 epochs × 2 visits = 2 visits of each of 3 classes
		batch := plan.Epoch(e)[0]
		if len(batch) != 4 {
			t.Fatalf("epoch %d: a batch of %d", e, len(batch))
		}
		for _, pair := range [][]int{batch[:2], batch[2:]} {
			label := labels[pair[0]]
			seen[label]++
			if pair[0] == pair[1] || !slices.Contains(rows[label], pair[0]) || !slices.Contains(rows[label], pair[1]) {
				t.Errorf("epoch %d: rows %v are not two images of one class", e, pair)
			}
		}
		if labels[batch[0]] == labels[batch[2]] {
			t.Errorf("epoch %d: class %d twice in batch %v", e, labels[batch[0]], batch)
		}
	}
	if seen[10] != 2 || seen[20] != 2 || seen[30] != 2 {
		t.Errorf("visits after 3 epochs: %v, want 2 each", seen)
	}
}

// What Balanced promises, counted on random datasets and settings.
func TestBalancedInvariants(t *testing.T) {
	checked := 0
	for i := range samplertest.Datasets {
		labels := samplertest.Labels(i)
		random := rand.New(rand.NewPCG(uint64(i), 1))
		s := &sampler.Balanced{Classes: 1 + random.IntN(12), Samples: 2 + random.IntN(7), Batches: random.IntN(9), Lone: "skip"}
		p, err := s.Plan(labels, nil, uint64(i))
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatal(err)
			}
			continue
		}
		checked++
		images := map[int64]int{}
		for _, label := range labels {
			images[label]++
		}
		total := map[int64]int{} // visits over all epochs so far
		for e := range 12 {
			visits, uses := map[int64]int{}, map[int]int{}
			for b, batch := range p.Epoch(e) {
				if len(batch) != s.Classes*s.Samples {
					t.Fatalf("%+v: batch %d has %d images", s, b, len(batch))
				}
				inBatch := map[int64]bool{}
				for group := range slices.Chunk(batch, s.Samples) {
					label := labels[group[0]]
					if inBatch[label] {
						t.Fatalf("%+v: class %d twice in batch %d of epoch %d", s, label, b, e)
					}
					inBatch[label] = true
					visits[label]++
					total[label]++
					inGroup := map[int]int{}
					for _, row := range group {
						if labels[row] != label {
							t.Fatalf("%+v: row %d of class %d among class %d", s, row, labels[row], label)
						}
						inGroup[row]++
						uses[row]++
					}
					n := images[label]
					if want := min(n, s.Samples); len(inGroup) != want {
						t.Fatalf("%+v: %d different images of a class of %d, want %d", s, len(inGroup), n, want)
					}
					for row, times := range inGroup {
						if most := (s.Samples + n - 1) / n; times > most {
							t.Fatalf("%+v: row %d of a class of %d comes %d times, at most %d needed", s, row, n, times, most)
						}
					}
				}
			}
			even(t, "visits of an epoch", labels, images, visits)
			even(t, "visits of all epochs", labels, images, total)
			evenUses(t, labels, uses, visits)
		}
	}
	if checked < samplertest.Datasets/3 {
		t.Errorf("only %d datasets were accepted", checked)
	}
}

// even fails when the visits of two classes with a pair differ by more than 1.
func even(t *testing.T, what string, labels []int64, images, visits map[int64]int) {
	t.Helper()
	least, most := 1<<30, 0
	for _, label := range labels {
		if images[label] < 2 {
			if visits[label] > 0 {
				t.Fatalf("%s: class %d has one image and is visited", what, label)
			}
			continue
		}
		least, most = min(least, visits[label]), max(most, visits[label])
	}
	if most-least > 1 {
		t.Fatalf("%s: between %d and %d", what, least, most)
	}
}

// evenUses fails when two images of a visited class differ by more than 1 use.
func evenUses(t *testing.T, labels []int64, uses map[int]int, visits map[int64]int) {
	t.Helper()
	least, most := map[int64]int{}, map[int64]int{}
	for row, label := range labels {
		if _, ok := least[label]; !ok {
			least[label] = uses[row]
		}
		least[label], most[label] = min(least[label], uses[row]), max(most[label], uses[row])
	}
	for label := range visits {
		if most[label]-least[label] > 1 {
			t.Fatalf("images of class %d are used between %d and %d times in an epoch", label, least[label], most[label])
		}
	}
}

// Over the epochs every class meets every other one: the batches are no fixed
// groups. 12 classes, 4 a batch, exactly 3 batches an epoch is the case where
// a careless sampler repeats itself.
func TestBalancedMixesClasses(t *testing.T) {
	var labels []int64
	for c := range int64(12) {
		labels = append(labels, c, c)
	}
	p := plan(t, &sampler.Balanced{Classes: 4, Samples: 2, Lone: "fail"}, labels)
	met := map[[2]int64]bool{}
	for e := range 60 {
		for _, batch := range p.Epoch(e) {
			for _, a := range batch {
				for _, b := range batch {
					met[[2]int64{labels[a], labels[b]}] = true
				}
			}
		}
	}
	if len(met) != 12*12 {
		t.Errorf("%d of 144 pairs of classes met in 60 epochs", len(met))
	}
}

// A large class shows different images from epoch to epoch: all of 50 within
// 100 epochs of 4 (a given one is missed with probability 0.92^100 = 0.0002).
func TestBalancedMixesImages(t *testing.T) {
	labels := make([]int64, 100)
	for row := range labels {
		labels[row] = int64(row % 2)
	}
	p := plan(t, &sampler.Balanced{Classes: 2, Samples: 4, Batches: 1, Lone: "fail"}, labels)
	seen := map[int]bool{}
	for e := range 100 {
		for _, row := range p.Epoch(e)[0] {
			seen[row] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d of 100 images came in 100 epochs", len(seen))
	}
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	labels := samplertest.Labels(31)
	for _, s := range []sampler.Sampler{
		&sampler.Balanced{Classes: 4, Samples: 2, Lone: "skip"},
		&sampler.Random{Size: 8},
	} {
		a, b := plan(t, s, labels), must1(s.Plan(labels, nil, 99))
		if slices.EqualFunc(a.Epoch(0), a.Epoch(1), slices.Equal) {
			t.Errorf("%T: epochs 0 and 1 are the same", s)
		}
		if slices.EqualFunc(a.Epoch(0), b.Epoch(0), slices.Equal) {
			t.Errorf("%T: two seeds give the same epoch", s)
		}
	}
}

func TestRandomUsesARowOnce(t *testing.T) {
	labels := []int64{1, 1, 2, 2, 3, 3, 4}
	p := plan(t, &sampler.Random{Size: 3}, labels)
	if p.Batches() != 7/3 {
		t.Fatalf("%d batches of 3 from 7 rows, want 2 and the rest left out", p.Batches())
	}
	dropped := map[int]bool{}
	for e := range 50 {
		seen := map[int]bool{}
		for _, batch := range p.Epoch(e) {
			if len(batch) != 3 {
				t.Fatalf("a batch of %d", len(batch))
			}
			for _, row := range batch {
				if seen[row] {
					t.Fatalf("epoch %d: row %d twice", e, row)
				}
				seen[row] = true
			}
		}
		for row := range labels {
			if !seen[row] {
				dropped[row] = true
			}
		}
	}
	if len(dropped) != len(labels) {
		t.Errorf("only rows %v are ever left out in 50 epochs", dropped)
	}
}

func TestSequentialByHand(t *testing.T) {
	p := plan(t, &sampler.Sequential{Size: 3}, []int64{5, 5, 5, 5, 5, 5, 9})
	want := [][]int{{0, 1, 2}, {3, 4, 5}, {6}}
	for e := range 2 {
		if got := p.Epoch(e); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("epoch %d: %v, want %v", e, got, want)
		}
	}
	if whole := plan(t, &sampler.Sequential{Size: 100}, make([]int64, 7)).Epoch(0); len(whole) != 1 || len(whole[0]) != 7 {
		t.Errorf("a batch larger than the dataset: %v, want one of 7", whole)
	}
}

func TestRefusals(t *testing.T) {
	pairs := []int64{0, 0, 1, 1, 2, 2}
	balanced := func(classes, samples int) *sampler.Balanced {
		return &sampler.Balanced{Classes: classes, Samples: samples, Lone: "fail"}
	}
	cases := []struct {
		name   string
		s      sampler.Sampler
		labels []int64
		says   []string
	}{
		{"empty", balanced(2, 2), nil, []string{"empty", "root and split"}},
		{"empty random", &sampler.Random{Size: 2}, nil, []string{"empty"}},
		{"empty sequential", &sampler.Sequential{Size: 2}, nil, []string{"empty"}},
		{"batch larger than the dataset", balanced(3, 3), pairs, []string{"3 × 3 = 9", "6 images", "lower"}},
		{"batch larger than the dataset, random", &sampler.Random{Size: 7}, pairs, []string{"7", "6 images", "lower sampler.size"}},
		{"too few classes", balanced(4, 2), pairs, []string{"4 classes", "has 3", "sampler.classes to 3"}},
		{"all classes with one image", balanced(2, 2), []int64{1, 2, 3}, []string{"each of the 3 classes", "single image"}},
		{"all classes with one image, skipped", &sampler.Balanced{Classes: 2, Samples: 2, Lone: "skip"}, []int64{1, 2, 3}, []string{"each of the 3 classes"}},
		{"all classes with one image, random", &sampler.Random{Size: 2}, []int64{1, 2, 3}, []string{"each of the 3 classes"}},
		{"a class with one image", balanced(2, 2), []int64{0, 0, 7, 1, 1}, []string{"1 of 3 classes", "the first is label 7)", "sampler.lone=skip"}},
		{"too few classes after skipping", &sampler.Balanced{Classes: 3, Samples: 2, Lone: "skip"}, []int64{0, 0, 7, 1, 1}, []string{"has 2 with two images or more (1 with one are left out)"}},
		{"no classes", balanced(0, 2), pairs, []string{"classes is 0"}},
		{"one sample", balanced(2, 1), pairs, []string{"samples is 1", "at least 2"}},
		{"negative batches", &sampler.Balanced{Classes: 2, Samples: 2, Batches: -1, Lone: "fail"}, pairs, []string{"batches is -1"}},
		{"lone", &sampler.Balanced{Classes: 2, Samples: 2, Lone: "maybe"}, pairs, []string{`lone is "maybe"`, "fail or skip"}},
		{"random size", &sampler.Random{Size: 1}, pairs, []string{"size is 1"}},
		{"sequential size", &sampler.Sequential{}, pairs, []string{"size is 0"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.s.Plan(c.labels, nil, 0)
			faulttest.Refused(t, err, c.says...)
		})
	}
}

func must(t *testing.T, name string) sampler.Sampler {
	t.Helper()
	s, err := sampler.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func plan(t *testing.T, s sampler.Sampler, labels []int64) sampler.Plan {
	t.Helper()
	p, err := s.Plan(labels, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func must1(p sampler.Plan, err error) sampler.Plan {
	if err != nil {
		panic(err)
	}
	return p
}
