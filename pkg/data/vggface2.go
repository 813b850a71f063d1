package data

import (
	"path"
	"strings"
)

func init() {
	register("vggface2", func() Collection { return &VGGFace2{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// VGGFace2 is the faces of Cao et al. (FG 2018): 3,141,890 of 8,631 people for
// training, 169,396 of 500 others for the test. ROOT holds the folders train
// and test, or data/train and data/test, with a folder a person (n000002/0001_01.jpg).
// Where the lists train_list.txt and test_list.txt are there too, a path a
// line, they decide which images count.
type VGGFace2 struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*VGGFace2) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (v *VGGFace2) Open(split string) (*Dataset, error) {
	return v.open(split, layout{name: "vggface2", splits: v.Splits(), markers: []string{"train", "data/train", "test", "data/test"},
		says: "the folders train and test, each with a folder a person",
		list: v.list,
		counts: map[string][]Counts{
			Train: {{Images: 3141890, Classes: 8631}},
			Test:  {{Images: 169396, Classes: 500}},
			All:   {{Images: 3311286, Classes: 9131}},
		}})
}

func (v *VGGFace2) list(p *place) ([]placed, error) {
	var all []placed
	for _, split := range []string{Train, Test} {
		dir := p.first(split, "data/"+split)
		list := p.first(split+"_list.txt", "data/"+split+"_list.txt")
		if !p.has(list) {
			if !p.has(dir) { // one of the two alone is of use
				continue
			}
			items, err := p.classes(dir)
			if err != nil {
				return nil, err
			}
			for _, it := range items {
				all = append(all, placed{it, split})
			}
			continue
		}
		err := p.rows(list, 0, 1, func(f []string) error {
			entry, err := within(dir, strings.TrimPrefix(f[0], split+"/"))
			if err != nil {
				return err
			}
			it := p.image(entry)
			it.Class = path.Base(path.Dir(entry))
			all = append(all, placed{it, split})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
