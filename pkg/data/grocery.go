package data

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strings"

	"roadmap/pkg/fault"
)

func init() {
	register("grocery", func() Collection {
		return &Grocery{Official: Official{OnError: Fail, MaxImage: defaultImage}, Protocol: byOfficial}
	})
}

// Grocery is the Grocery Store Dataset (Klasson, Zhang and Kjellström, WACV
// 2019): 5,421 photographs of 81 products in 43 coarse classes. ROOT holds
// train.txt, val.txt and test.txt (path, class, coarse class), classes.csv and
// the folders train, val and test, or a folder dataset with all that. The
// category is the coarse class; the level group is Fruit, Vegetables or
// Packages.
type Grocery struct {
	Official `yaml:",inline"`
	// Protocol is how images are divided:
	//
	//	official  the three lists: 2,640, 296 and 2,485, classes shared
	//	classes   of all images: the first half of the classes, by number, trains and the rest tests
	Protocol string `yaml:"protocol"`
}

// groceryVal is the authors' split for validation.
const groceryVal = "val"

// Validate checks the settings that need no file.
func (g *Grocery) Validate() error {
	if err := checkProtocol(g.Protocol); err != nil {
		return err
	}
	return g.Official.Validate()
}

// Splits implements Collection.
func (g *Grocery) Splits() []string {
	if g.Protocol == byClasses {
		return []string{Train, Test}
	}
	return []string{Train, groceryVal, Test}
}

// Open implements Collection.
func (g *Grocery) Open(split string) (*Dataset, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	counts := map[string][]Counts{All: {{Images: 5421, Classes: 81, Categories: 43}}}
	if g.Protocol == byOfficial {
		counts[Train] = []Counts{{Images: 2640, Classes: 81, Categories: 43}}
		counts[groceryVal] = []Counts{{Images: 296, Classes: 60, Categories: 37}}
		counts[Test] = []Counts{{Images: 2485, Classes: 81, Categories: 43}}
	}
	return g.open(split, layout{name: "grocery", splits: g.Splits(), markers: []string{"classes.csv"}, counts: counts, further: []string{"group"},
		says: "train.txt, val.txt, test.txt, classes.csv and the folders train, val and test", list: g.list})
}

func (g *Grocery) list(p *place) ([]placed, error) {
	content, err := p.read("classes.csv")
	if err != nil {
		return nil, err
	}
	table, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err != nil {
		return nil, fault.Inputf("%s: %w", p.path("classes.csv"), err)
	}
	type names struct{ class, coarse string }
	of := map[string]names{} // by number
	number := map[string]int{}
	for line, row := range table[min(1, len(table)):] {
		if len(row) < 4 {
			return nil, fault.Inputf("%s:%d: %d columns; give name and number of class and coarse class", p.path("classes.csv"), line+2, len(row))
		}
		of[row[1]] = names{row[0], row[2]}
		if number[row[0]], err = wholeNumber("class", row[1]); err != nil {
			return nil, fault.Inputf("%s:%d: %w", p.path("classes.csv"), line+2, err)
		}
	}
	var all []placed
	for _, split := range []string{Train, groceryVal, Test} {
		err := p.rows(split+".txt", 0, 1, func(f []string) error {
			parts := strings.Split(f[0], ",")
			if len(parts) != 3 {
				return fmt.Errorf("%d fields; expected path, class, coarse class", len(parts))
			}
			entry, err := within(".", strings.TrimSpace(parts[0]))
			if err != nil {
				return err
			}
			class := strings.TrimSpace(parts[1])
			named, ok := of[class]
			if !ok {
				return fmt.Errorf("class %s is not in classes.csv", class)
			}
			it := p.image(entry)
			it.Class, it.Category, it.Further = named.class, named.coarse, []string{""}
			if folders := strings.Split(entry, "/"); len(folders) > 2 {
				it.Further[0] = folders[1]
			}
			all = append(all, placed{it, split})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if g.Protocol == byOfficial {
		return all, nil
	}
	items := make([]Item, len(all))
	for i := range all {
		items[i] = all[i].Item
	}
	return divideClasses(items, len(number)/2, func(class string) int { return number[class] }), nil
}
