package data

import (
	"fmt"
	"path"
	"strings"
)

func init() {
	register("inshop", func() Collection { return &InShop{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// InShop is DeepFashion's In-Shop Clothes Retrieval (Liu et al., CVPR 2016):
// 25,882 photographs of 3,997 items for training; for the test 14,218 queries
// and a gallery of 12,612, of 3,985 items. ROOT holds list_eval_partition.txt,
// or Eval/list_eval_partition.txt (a count, a header, then image_name item_id
// evaluation_status), and the folder img or Img/img, or img.zip in their
// place. The category is the folder of the item: WOMEN/Dresses, 23 of them.
//
// The split test is both queries and gallery; query and gallery are either.
type InShop struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*InShop) Splits() []string { return []string{Train, Test, Query, Gallery} }

// Open implements Collection.
func (s *InShop) Open(split string) (*Dataset, error) {
	note := "the official list; one paper prints 28,760"
	return s.open(split, layout{name: "inshop", splits: s.Splits(), markers: []string{"list_eval_partition.txt", "Eval/list_eval_partition.txt"},
		says: "list_eval_partition.txt (or Eval/list_eval_partition.txt) and the folder img",
		list: s.list,
		counts: map[string][]Counts{
			Train:   {{Images: 25882, Classes: 3997, Categories: 23}},
			Test:    {{Images: 26830, Classes: 3985, Categories: 23, Note: note}},
			Query:   {{Images: 14218, Classes: 3985}},
			Gallery: {{Images: 12612, Classes: 3985}},
			All:     {{Images: 52712, Classes: 7982, Categories: 23}},
		}})
}

func (s *InShop) list(p *place) ([]placed, error) {
	images := path.Dir(p.first("img", "Img/img", "Img/img_highres", "images/img"))
	var all []placed
	err := p.rows(p.first("list_eval_partition.txt", "Eval/list_eval_partition.txt"), 2, 3, func(f []string) error {
		entry, err := within(images, f[0])
		if err != nil {
			return err
		}
		parts := strings.Split(f[0], "/")
		if len(parts) < 5 {
			return fmt.Errorf("%q is no path of the form img/WOMEN/Dresses/ITEM/IMAGE.jpg", f[0])
		}
		it := p.image(entry)
		it.Class, it.Category = f[1], strings.Join(parts[len(parts)-4:len(parts)-2], "/")
		split := Test
		switch f[2] {
		case "train":
			split = Train
		case "query":
			it.Role = QueryOnly
		case "gallery":
			it.Role = GalleryOnly
		default:
			return fmt.Errorf("the status %q is none of train, query and gallery", f[2])
		}
		all = append(all, placed{it, split})
		return nil
	})
	return trainFirst(all), err
}
