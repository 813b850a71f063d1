package data

import "roadmap/pkg/fault"

func init() {
	register("nabirds", func() Collection {
		return &NABirds{Official: Official{OnError: Fail, MaxImage: defaultImage}, Protocol: byOfficial}
	})
}

// NABirds is the photographs of Van Horn et al. (CVPR 2015): 48,562 of 555
// classes of North American birds, in CUB's format, with hierarchy.txt (child
// parent, 0 the root) and classes.txt for its 1,011 nodes. The category of a
// class is its node below the root (22 of them).
type NABirds struct {
	Official `yaml:",inline"`
	// Protocol is how images are divided:
	//
	//	official  train_test_split.txt: 23,929 and 24,633, every class in both
	//	classes   the first half of the classes, by number, trains and the rest tests
	Protocol string `yaml:"protocol"`
}

// Validate checks the settings that need no file.
func (n *NABirds) Validate() error {
	if err := checkProtocol(n.Protocol); err != nil {
		return err
	}
	return n.Official.Validate()
}

// Splits implements Collection.
func (*NABirds) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (n *NABirds) Open(split string) (*Dataset, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	counts := map[string][]Counts{All: {{Images: 48562, Classes: 555, Categories: 22}}}
	if n.Protocol == byOfficial {
		counts[Train] = []Counts{{Images: 23929, Classes: 555, Categories: 22}}
		counts[Test] = []Counts{{Images: 24633, Classes: 555, Categories: 22}}
	}
	return n.open(split, layout{name: "nabirds", splits: n.Splits(), markers: []string{"hierarchy.txt"}, counts: counts,
		says: "images.txt, image_class_labels.txt, hierarchy.txt and the folder images, such as nabirds", list: n.list})
}

func (n *NABirds) list(p *place) ([]placed, error) {
	b, err := readBirds(p)
	if err != nil {
		return nil, err
	}
	parent := map[string]string{}
	if err := p.rows("hierarchy.txt", 0, 2, func(f []string) error {
		parent[f[0]] = f[1]
		return nil
	}); err != nil {
		return nil, err
	}
	labels := map[string]string{} // by image
	if err := p.rows("image_class_labels.txt", 0, 2, func(f []string) error {
		labels[f[0]] = f[1]
		return nil
	}); err != nil {
		return nil, err
	}
	for i := range b.items {
		node := labels[b.ids[i]]
		for steps := 0; parent[node] != "0"; steps++ {
			if parent[node] == "" || steps > len(parent) {
				return nil, fault.Inputf("%s: class %s does not lead to the root, 0", p.path("hierarchy.txt"), labels[b.ids[i]])
			}
			node = parent[node]
		}
		b.items[i].Category = b.names[node]
		if b.names[node] == "" {
			b.items[i].Category = node
		}
	}
	return b.divide(p, n.Protocol, 0)
}
