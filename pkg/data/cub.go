package data

import (
	"fmt"
	"math"
	"path"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

func init() {
	register("cub", func() Collection {
		return &CUB{Official: Official{OnError: Fail, MaxImage: defaultImage}, Protocol: byClasses}
	})
}

// CUB is Caltech-UCSD Birds-200-2011 (Wah et al. 2011), 11,788 photographs of
// 200 species, or any dataset in its format: ROOT holds images.txt (id path),
// image_class_labels.txt (id class), classes.txt (class name),
// train_test_split.txt (id 1 for training) and the folder images, or a folder
// CUB_200_2011 with all that.
type CUB struct {
	Official `yaml:",inline"`
	// Protocol is how images are divided:
	//
	//	classes   the first TrainClasses classes, by number, train and the rest test, as in
	//	          metric learning: 5,864 images of 100 and 5,924 of 100
	//	official  train_test_split.txt: 5,994 and 5,794, every class in both
	Protocol     string `yaml:"protocol"`
	TrainClasses int    `yaml:"train_classes"` // of protocol classes; 0: half of them, rounded down
}

// Validate checks the settings that need no file.
func (c *CUB) Validate() error {
	if c.TrainClasses < 0 {
		return config.Invalid("train_classes", "is %d; give the number of classes that train, or 0 for half of them", c.TrainClasses)
	}
	if err := checkProtocol(c.Protocol); err != nil {
		return err
	}
	return c.Official.Validate()
}

// Splits implements Collection.
func (*CUB) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (c *CUB) Open(split string) (*Dataset, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := layout{name: "cub", splits: c.Splits(), markers: []string{"images.txt"},
		says: "images.txt, image_class_labels.txt and the folder images, such as CUB_200_2011"}
	l.list = func(p *place) ([]placed, error) {
		b, err := readBirds(p)
		if err != nil {
			return nil, err
		}
		if b.names["1"] == "001.Black_footed_Albatross" { // not another dataset in the format
			l.counts = c.counts()
		}
		return b.divide(p, c.Protocol, c.TrainClasses)
	}
	// The counts are known once the list is read.
	d, err := c.open(split, l)
	if err == nil {
		d.Official = l.counts[split]
	}
	return d, err
}

func (c *CUB) counts() map[string][]Counts {
	counts := map[string][]Counts{All: {{Images: 11788, Classes: 200}}}
	switch {
	case c.Protocol == byOfficial:
		counts[Train], counts[Test] = []Counts{{Images: 5994, Classes: 200}}, []Counts{{Images: 5794, Classes: 200}}
	case c.TrainClasses == 0 || c.TrainClasses == 100:
		counts[Train], counts[Test] = []Counts{{Images: 5864, Classes: 100}}, []Counts{{Images: 5924, Classes: 100}}
	}
	return counts
}

// birds are the lists of a dataset in CUB's format.
type birds struct {
	items []Item
	ids   []string          // of every item
	names map[string]string // of classes, by number
	order map[string]int    // number of a class, by its name in items
}

// readBirds reads images.txt, image_class_labels.txt and, if there is one,
// classes.txt.
func readBirds(p *place) (*birds, error) {
	b := &birds{names: map[string]string{}, order: map[string]int{}}
	if p.has("classes.txt") {
		if err := p.rows("classes.txt", 0, 2, func(f []string) error {
			b.names[f[0]] = f[1]
			return nil
		}); err != nil {
			return nil, err
		}
	}
	labels := map[string]string{}
	if err := p.rows("image_class_labels.txt", 0, 2, func(f []string) error {
		if _, double := labels[f[0]]; double {
			return fmt.Errorf("image %s is listed twice", f[0])
		}
		labels[f[0]] = f[1]
		return nil
	}); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	err := p.rows("images.txt", 0, 2, func(f []string) error {
		label, ok := labels[f[0]]
		if !ok {
			return fmt.Errorf("image %s has no line in image_class_labels.txt", f[0])
		}
		entry, err := within("images", f[1])
		switch {
		case err != nil:
			return err
		case seen[f[0]]:
			return fmt.Errorf("image %s is listed twice", f[0])
		}
		seen[f[0]] = true
		it := p.image(entry)
		it.Class = b.class(label)
		b.items, b.ids = append(b.items, it), append(b.ids, f[0])
		return nil
	})
	return b, err
}

// class is the name of a class by its number. Where names repeat, as species
// with several plumages do in NABirds, the number tells them apart.
func (b *birds) class(label string) string {
	name, ok := b.names[label]
	if !ok {
		name = label
	}
	number, err := wholeNumber("class", label)
	if err != nil {
		number = math.MaxInt
	}
	if other, taken := b.order[name]; taken && other != number {
		name += " (" + label + ")"
	}
	b.order[name] = number
	return name
}

// divide puts every image into a split.
func (b *birds) divide(p *place, protocol string, trainClasses int) ([]placed, error) {
	if protocol == byClasses {
		if trainClasses == 0 {
			trainClasses = len(b.order) / 2
		}
		return divideClasses(b.items, trainClasses, func(class string) int { return b.order[class] }), nil
	}
	split := map[string]string{}
	err := p.rows("train_test_split.txt", 0, 2, func(f []string) error {
		switch f[1] {
		case "0":
			split[f[0]] = Test
		case "1":
			split[f[0]] = Train
		default:
			return fmt.Errorf("image %s has %q; 1 is for training, 0 for the test", f[0], f[1])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := make([]placed, len(b.items))
	for i, it := range b.items {
		part, ok := split[b.ids[i]]
		if !ok {
			return nil, fault.Inputf("%s: image %s, %s, is not listed", p.path("train_test_split.txt"), b.ids[i], path.Base(it.Path))
		}
		all[i] = placed{it, part}
	}
	return trainFirst(all), nil
}
