package data

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"image"
	"image/color"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

func init() {
	register("cifar100", func() Collection {
		return &CIFAR100{Official: Official{OnError: Fail, MaxImage: defaultImage}, Protocol: byOfficial}
	})
}

// CIFAR100 is the 32 × 32 images of Krizhevsky (2009): 500 and 100 of each of
// 100 classes in 20 super-classes, which are the categories. ROOT holds one of
// the official forms, or a folder with it:
//
//	cifar-100-python   train, test and meta, pickles, which are read without running them
//	cifar-100-binary   train.bin, test.bin, fine_label_names.txt and coarse_label_names.txt
//	train/CLASS/*.png  and test/CLASS/*.png, with classes.csv (fine_id, fine_name, coarse_id, coarse_name) for the categories
type CIFAR100 struct {
	Official `yaml:",inline"`
	// Protocol is how images are divided:
	//
	//	official  50,000 and 10,000, every class in both
	//	classes   of all images: the first 50 classes, by name, train and the rest test
	Protocol string `yaml:"protocol"`
}

// Validate checks the settings that need no file.
func (c *CIFAR100) Validate() error {
	if err := checkProtocol(c.Protocol); err != nil {
		return err
	}
	return c.Official.Validate()
}

// Splits implements Collection.
func (*CIFAR100) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (c *CIFAR100) Open(split string) (*Dataset, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	counts := map[string][]Counts{All: {{Images: 60000, Classes: 100, Categories: 20}}}
	if c.Protocol == byOfficial {
		counts[Train], counts[Test] = []Counts{{Images: 50000, Classes: 100, Categories: 20}}, []Counts{{Images: 10000, Classes: 100, Categories: 20}}
	} else {
		counts[Train], counts[Test] = []Counts{{Images: 30000, Classes: 50}}, []Counts{{Images: 30000, Classes: 50}}
	}
	return c.open(split, layout{name: "cifar100", splits: c.Splits(), markers: []string{"meta", "train.bin", "train"}, counts: counts,
		says: "cifar-100-python (train, test, meta), cifar-100-binary (train.bin, test.bin) or the folders train and test of PNG files", list: c.list})
}

func (c *CIFAR100) list(p *place) ([]placed, error) {
	read := c.folders
	switch {
	case p.has("train.bin"):
		read = c.binary
	case p.has("meta"):
		read = c.python
	}
	all, err := read(p)
	if err != nil || c.Protocol == byOfficial {
		return all, err
	}
	items := make([]Item, len(all))
	for i := range all {
		items[i] = all[i].Item
	}
	return divideClasses(items, 50, func(string) int { return 0 }), nil
}

// cifarPixels is the bytes of an image: 32 × 32, the planes of red, green and
// blue one behind the other.
const cifarPixels = 3 * 32 * 32

// cifarImage is an image of the official files, in memory.
type cifarImage []byte

// Image implements Source.
func (c cifarImage) Image() (image.Image, error) {
	img := image.NewNRGBA(image.Rect(0, 0, 32, 32))
	for i := range 32 * 32 {
		img.SetNRGBA(i%32, i/32, color.NRGBA{c[i], c[1024+i], c[2048+i], 255})
	}
	return img, nil
}

// binary reads records of a super-class, a class and the pixels.
func (c *CIFAR100) binary(p *place) ([]placed, error) {
	names := map[string][]string{}
	for _, list := range []string{"fine_label_names.txt", "coarse_label_names.txt"} {
		if err := p.rows(list, 0, 1, func(f []string) error {
			names[list] = append(names[list], f[0])
			return nil
		}); err != nil {
			return nil, err
		}
	}
	const record = 2 + cifarPixels
	var all []placed
	for _, split := range []string{Train, Test} {
		content, err := p.read(split + ".bin")
		if err != nil {
			return nil, err
		}
		if len(content)%record != 0 {
			return nil, fault.Inputf("%s: %d bytes are no whole number of records of %d; the file is cut off", p.path(split+".bin"), len(content), record)
		}
		for i := range len(content) / record {
			r := content[i*record : (i+1)*record]
			it, err := cifarItem(p.path(split+".bin"), i, int64(r[1]), int64(r[0]), names["fine_label_names.txt"], names["coarse_label_names.txt"], r[2:])
			if err != nil {
				return nil, err
			}
			all = append(all, placed{it, split})
		}
	}
	return all, nil
}

func cifarItem(file string, record int, fine, coarse int64, fines, coarses []string, pixels []byte) (Item, error) {
	if fine < 0 || coarse < 0 || int(fine) >= len(fines) || int(coarse) >= len(coarses) {
		return Item{}, fault.Inputf("%s: record %d: class %d of %d and super-class %d of %d; the file is damaged", file, record, fine, len(fines), coarse, len(coarses))
	}
	return Item{Path: fmt.Sprintf("%s:%d", file, record), Class: fines[fine], Category: coarses[coarse], Source: cifarImage(pixels)}, nil
}

// python reads the pickles, dicts of a NumPy array and lists.
func (c *CIFAR100) python(p *place) ([]placed, error) {
	meta, err := p.pickle("meta")
	if err != nil {
		return nil, err
	}
	fines, e1 := pickled[string](meta, "fine_label_names")
	coarses, e2 := pickled[string](meta, "coarse_label_names")
	if e1 != nil || e2 != nil {
		return nil, fault.Inputf("%s: no fine_label_names and coarse_label_names; give the official file", p.path("meta"))
	}
	var all []placed
	for _, split := range []string{Train, Test} {
		root, err := p.pickle(split)
		if err != nil {
			return nil, err
		}
		fine, e1 := pickled[int64](root, "fine_labels")
		coarse, e2 := pickled[int64](root, "coarse_labels")
		pixels, ok := arrayBytes(root, "data")
		if e1 != nil || e2 != nil || !ok || len(fine) != len(coarse) || len(pixels) != len(fine)*cifarPixels {
			return nil, fault.Inputf("%s: no fine_labels, coarse_labels and data of one length; give the official file", p.path(split))
		}
		for i := range fine {
			it, err := cifarItem(p.path(split), i, fine[i], coarse[i], fines, coarses, pixels[i*cifarPixels:(i+1)*cifarPixels])
			if err != nil {
				return nil, err
			}
			all = append(all, placed{it, split})
		}
	}
	return all, nil
}

// arrayBytes is the content of a pickled NumPy array of bytes: what its state
// ends with.
func arrayBytes(d *tensorio.Dict, key string) ([]byte, bool) {
	v, _ := d.Get(key)
	object, ok := v.(*tensorio.Object)
	if !ok {
		return nil, false
	}
	state, ok := object.State.(tensorio.Tuple)
	if !ok || len(state) == 0 {
		return nil, false
	}
	switch content := state[len(state)-1].(type) {
	case string:
		return []byte(content), true
	case tensorio.Bytes:
		return content, true
	}
	return nil, false
}

// folders reads PNG files in folders by class.
func (c *CIFAR100) folders(p *place) ([]placed, error) {
	category := map[string]string{}
	if p.has("classes.csv") {
		content, err := p.read("classes.csv")
		if err != nil {
			return nil, err
		}
		table, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
		if err != nil {
			return nil, fault.Inputf("%s: %w", p.path("classes.csv"), err)
		}
		for _, row := range table {
			if len(row) == 4 {
				category[row[1]] = row[3]
			}
		}
	}
	var all []placed
	for _, split := range []string{Train, Test} {
		items, err := p.classes(split)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			it.Category = category[strings.TrimSpace(it.Class)]
			all = append(all, placed{it, split})
		}
	}
	return all, nil
}
