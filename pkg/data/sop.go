package data

import (
	"fmt"
	"path"

	"roadmap/pkg/fault"
)

func init() {
	register("sop", func() Collection { return &SOP{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// SOP is Stanford Online Products (Song et al., CVPR 2016): photographs of
// 22,634 products in 12 categories, 59,551 of 11,318 for training and 60,502 of
// 11,316 for the test. ROOT holds Ebay_train.txt and Ebay_test.txt (a header,
// then image_id class_id super_class_id path) and the folders bicycle_final to
// toaster_final, or a folder Stanford_Online_Products with all that. The lists
// in their published CSV form, stanford_online_train.csv and
// stanford_online_test.csv (class_id,path), do as well.
type SOP struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*SOP) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (s *SOP) Open(split string) (*Dataset, error) {
	return s.open(split, layout{name: "sop", splits: s.Splits(), markers: []string{"Ebay_train.txt", "Ebay_test.txt", "stanford_online_train.csv"},
		says: "Ebay_train.txt, Ebay_test.txt and the folders of images, such as Stanford_Online_Products",
		list: func(p *place) ([]placed, error) { return s.list(p, split) },
		counts: map[string][]Counts{
			Train: {{Images: 59551, Classes: 11318, Categories: 12}},
			Test:  {{Images: 60502, Classes: 11316, Categories: 12}},
			All:   {{Images: 120053, Classes: 22634, Categories: 12}},
		}})
}

// list reads the lists; that of the split that is not asked for may be missing.
func (s *SOP) list(p *place, asked string) ([]placed, error) {
	var all []placed
	for _, part := range []struct{ split, txt, csv string }{
		{Train, "Ebay_train.txt", "stanford_online_train.csv"}, {Test, "Ebay_test.txt", "stanford_online_test.csv"},
	} {
		add := func(class, name string) error {
			entry, err := within(".", name)
			if err != nil {
				return err
			}
			it := p.image(entry)
			it.Class, it.Category = class, path.Dir(entry)
			if it.Category == "." {
				return fmt.Errorf("%q is in no folder of a category", name)
			}
			all = append(all, placed{it, part.split})
			return nil
		}
		var err error
		switch {
		case p.has(part.csv):
			err = p.csv(part.csv, add)
		case p.has(part.txt) || asked == part.split || asked == All:
			err = p.rows(part.txt, 1, 4, func(f []string) error { return add(f[1], f[3]) })
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// csv reads a list of label and path in CSV, the columns in either order.
func (p *place) csv(entry string, each func(label, path string) error) error {
	content, err := p.read(entry)
	if err != nil {
		return err
	}
	t, err := parseTable(content, func(name string) bool {
		entry, err := within(".", name)
		return err == nil && p.has(entry)
	})
	if err != nil {
		return fault.Inputf("%s:%w", p.path(entry), err)
	}
	for _, r := range t.rows {
		if err := each(r.cells[t.label], r.cells[t.path]); err != nil {
			return fault.Inputf("%s:%d: %w", p.path(entry), r.line, err)
		}
	}
	return nil
}
