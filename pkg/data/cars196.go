package data

import (
	"fmt"
	"math"
	"path"
	"strings"

	"roadmap/pkg/fault"
)

func init() {
	register("cars196", func() Collection { return &Cars196{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// Cars196 is the Cars of Krause et al. (3dRR 2013): 16,185 photographs of 196
// models, divided by class as metric learning does: the first 98 train (8,054),
// the last 98 test (8,131). ROOT holds cars_annos.mat and the folder car_ims; or,
// in place of the MATLAB file, cars_annos.csv with the columns
// relative_im_path and class (others are passed over), or cars_train.csv and
// cars_test.csv of class_id,path.
type Cars196 struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*Cars196) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (c *Cars196) Open(split string) (*Dataset, error) {
	return c.open(split, layout{name: "cars196", splits: c.Splits(), markers: []string{"cars_annos.mat", "cars_annos.csv", "cars_train.csv"},
		says: "cars_annos.mat (or cars_annos.csv) and the folder car_ims",
		list: c.list,
		counts: map[string][]Counts{
			Train: {{Images: 8054, Classes: 98}},
			Test:  {{Images: 8131, Classes: 98}},
			All:   {{Images: 16185, Classes: 196}},
		}})
}

func (c *Cars196) list(p *place) ([]placed, error) {
	var items []Item
	order := map[string]int{}
	add := func(class, name string, number int) error {
		entry, err := within(".", name)
		if err != nil {
			return err
		}
		if !strings.Contains(entry, "/") { // a bare name is in the folder of all images
			entry = path.Join("car_ims", entry)
		}
		it := p.image(entry)
		it.Class, order[class] = class, number
		items = append(items, it)
		return nil
	}
	byNumber := func(class, name string) error {
		number, err := wholeNumber("class", class)
		if err != nil {
			return err
		}
		return add(class, name, number)
	}
	var err error
	switch {
	case p.has("cars_annos.mat"):
		err = c.annotations(p, add)
	case p.has("cars_annos.csv"):
		err = p.csv("cars_annos.csv", byNumber)
	default:
		if err = p.csv("cars_train.csv", byNumber); err == nil {
			err = p.csv("cars_test.csv", byNumber)
		}
	}
	if err != nil {
		return nil, err
	}
	half := 0
	for _, number := range order {
		if number <= 98 {
			half++
		}
	}
	return divideClasses(items, half, func(class string) int { return order[class] }), nil
}

// annotations reads cars_annos.mat.
func (c *Cars196) annotations(p *place, add func(class, name string, number int) error) error {
	const file = "cars_annos.mat"
	content, err := p.read(file)
	if err != nil {
		return err
	}
	variables, err := readMat(content)
	if err != nil {
		return fault.Inputf("%s: %w", p.path(file), err)
	}
	names, _ := variables["class_names"].([]matValue)
	annotations, ok := variables["annotations"].([]map[string]matValue)
	if !ok {
		return fault.Inputf("%s: no structure annotations; give the official file", p.path(file))
	}
	for i, a := range annotations {
		name, isText := a["relative_im_path"].(string)
		class, isNumber := a["class"].([]float64)
		err := fmt.Errorf("no relative_im_path and class")
		if isText && isNumber && len(class) == 1 && class[0] == math.Trunc(class[0]) && class[0] >= 1 && class[0] <= 1e6 {
			number := int(class[0])
			title := fmt.Sprint(number)
			if number <= len(names) {
				if text, ok := names[number-1].(string); ok {
					title = text
				}
			}
			err = add(title, name, number)
		}
		if err != nil {
			return fault.Inputf("%s: annotations(%d): %w", p.path(file), i+1, err)
		}
	}
	return nil
}
