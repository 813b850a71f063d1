package data

import (
	"fmt"
	"slices"

	"roadmap/pkg/config"
)

func init() {
	register("vehicleid", func() Collection {
		return &VehicleID{Official: Official{OnError: Fail, MaxImage: defaultImage}, Test: "small"}
	})
}

// VehicleID is PKU VehicleID (Liu et al., CVPR 2016): 221,567 photographs of
// 26,328 cars. ROOT holds the folders image, train_test_split (train_list.txt,
// test_list_800.txt, test_list_1600.txt, test_list_2400.txt: image car) and
// attribute (model_attr.txt, color_attr.txt: car number), or a folder
// VehicleID_V1.0 with all that. The category of a car is its model, one of 250,
// where that was labelled (the sampler vehicle is for that); colour is a
// further level.
//
// The test sets small, medium and large have 800, 1,600 and 2,400 cars. Their
// protocol is eval's --protocol vehicleid: one random image of each car is
// the gallery, ten times over.
type VehicleID struct {
	Official `yaml:",inline"`
	Test     string `yaml:"test"` // which set is the split test: small, medium or large
}

// vehicleSets are the test sets by name.
var vehicleSets = []struct {
	name, list string
	counts     []Counts
}{
	{"small", "test_list_800.txt", []Counts{{Images: 6493, Classes: 800, Note: "the official list; the paper prints 7,332"}}},
	{"medium", "test_list_1600.txt", []Counts{{Images: 13377, Classes: 1600, Note: "the official list; the paper prints 12,995"}}},
	{"large", "test_list_2400.txt", []Counts{{Images: 19777, Classes: 2400, Note: "the official list; the paper prints 20,038"}}},
}

// Validate checks the settings that need no file.
func (v *VehicleID) Validate() error {
	if !slices.Contains(v.Splits()[2:], v.Test) {
		return config.Invalid("test", "is %q; give small, medium or large", v.Test)
	}
	return v.Official.Validate()
}

// Splits implements Collection.
func (*VehicleID) Splits() []string {
	splits := []string{Train, Test}
	for _, s := range vehicleSets {
		splits = append(splits, s.name)
	}
	return splits
}

// Open implements Collection. The split all is training and the three test
// sets, each image once.
func (v *VehicleID) Open(split string) (*Dataset, error) {
	if err := v.Validate(); err != nil {
		return nil, err
	}
	counts := map[string][]Counts{Train: {
		{Images: 113346, Classes: 13164, Note: "the list as its authors revised it after the paper"},
		{Images: 110178, Classes: 13134, Note: "as the paper prints"},
	}}
	for _, s := range vehicleSets {
		counts[s.name] = s.counts
	}
	counts[Test] = counts[v.Test]
	wanted := split
	if split == Test {
		wanted = v.Test
	}
	d, err := v.open(split, layout{name: "vehicleid", splits: v.Splits(), markers: []string{"train_test_split"}, counts: counts, further: []string{"colour"},
		says: "the folders image, train_test_split and attribute, such as VehicleID_V1.0",
		list: func(p *place) ([]placed, error) { return v.list(p, split, wanted) }})
	if err == nil && split != Train && split != All {
		d.Protocol = "vehicleid"
	}
	return d, err
}

// list lists every image once; those of the set wanted are in the split asked
// for. An image may be in several of the test sets.
func (v *VehicleID) list(p *place, split, wanted string) ([]placed, error) {
	models, err := v.attribute(p, "attribute/model_attr.txt")
	if err != nil {
		return nil, err
	}
	colours, err := v.attribute(p, "attribute/color_attr.txt")
	if err != nil {
		return nil, err
	}
	var all []placed
	at := map[string]int{}
	sets := []struct{ name, list string }{{Train, "train_list.txt"}}
	for _, s := range vehicleSets {
		sets = append(sets, struct{ name, list string }{s.name, s.list})
	}
	for _, set := range sets {
		list := "train_test_split/" + set.list
		if !p.has(list) && set.name != wanted {
			continue
		}
		here := map[string]bool{}
		err := p.rows(list, 0, 2, func(f []string) error {
			entry, err := within("image", f[0]+".jpg")
			switch {
			case err != nil:
				return err
			case here[f[0]]:
				return fmt.Errorf("image %s is listed twice", f[0])
			}
			here[f[0]] = true
			i, known := at[f[0]]
			if !known {
				it := p.image(entry)
				it.Class, it.Category, it.Further = f[1], models[f[1]], []string{colours[f[1]]}
				i, at[f[0]] = len(all), len(all)
				all = append(all, placed{it, set.name})
			} else if all[i].Class != f[1] {
				return fmt.Errorf("image %s is of car %s here and of car %s in another list", f[0], f[1], all[i].Class)
			}
			if set.name == wanted {
				all[i].split = split
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attribute reads a list of car and number; none if there is no such file.
func (*VehicleID) attribute(p *place, entry string) (map[string]string, error) {
	of := map[string]string{}
	if !p.has(entry) {
		return of, nil
	}
	return of, p.rows(entry, 0, 2, func(f []string) error {
		of[f[0]] = f[1]
		return nil
	})
}
