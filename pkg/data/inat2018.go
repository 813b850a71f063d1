package data

import (
	"fmt"
	"path"
	"strings"
)

func init() {
	register("inat2018", func() Collection { return &INat2018{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// INat2018 is iNaturalist 2018 (Van Horn et al., CVPR 2018) divided by classes
// as the program of Smooth-AP (Brown et al., ECCV 2020) does: 325,846 images of
// 5,690 species train, 136,093 of 2,452 test. ROOT holds the folder
// train_val2018 (SUPERCATEGORY/CLASS/image.jpg) and that program's lists
// Inaturalist_train_set1.txt and Inaturalist_test_set1.txt, a path a line, there
// or in Inat_dataset_splits. A class is SUPERCATEGORY/CLASS; the category is the
// super-category, Plantae or Insecta (14 of them).
type INat2018 struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*INat2018) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (s *INat2018) Open(split string) (*Dataset, error) {
	return s.open(split, layout{name: "inat2018", splits: s.Splits(),
		markers: []string{"Inaturalist_train_set1.txt", "Inat_dataset_splits/Inaturalist_train_set1.txt"},
		says:    "train_val2018 and the lists Inaturalist_train_set1.txt and Inaturalist_test_set1.txt of Smooth-AP's program",
		list:    s.list,
		counts: map[string][]Counts{
			Train: {{Images: 325846, Classes: 5690}},
			Test:  {{Images: 136093, Classes: 2452}},
			All:   {{Images: 461939, Classes: 8142, Categories: 14}},
		}})
}

func (s *INat2018) list(p *place) ([]placed, error) {
	var all []placed
	for _, part := range []struct{ split, file string }{{Train, "Inaturalist_train_set1.txt"}, {Test, "Inaturalist_test_set1.txt"}} {
		err := p.rows(p.first(part.file, "Inat_dataset_splits/"+part.file), 0, 1, func(f []string) error {
			entry, err := within(".", f[0])
			if err != nil {
				return err
			}
			parts := strings.Split(entry, "/")
			if len(parts) < 3 {
				return fmt.Errorf("%q is no path of the form train_val2018/SUPERCATEGORY/CLASS/IMAGE.jpg", f[0])
			}
			it := p.image(entry)
			it.Category = parts[len(parts)-3]
			it.Class = path.Join(it.Category, parts[len(parts)-2])
			all = append(all, placed{it, part.split})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
