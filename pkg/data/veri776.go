package data

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"roadmap/pkg/fault"
)

func init() {
	register("veri776", func() Collection { return &VeRi776{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// VeRi776 is VeRi (Liu et al., ECCV 2016): photographs of 776 vehicles by 20
// cameras, 37,778 of 576 for training; for the test 1,678 queries and a gallery
// of 11,579, of 200. ROOT holds the folders image_train, image_query and
// image_test, name_train.txt, name_query.txt and name_test.txt (a name a line;
// without one all images of the folder), and train_label.xml and
// test_label.xml, from which the category (the type) and the level colour come.
// A name is VEHICLE_CAMERA_…: 0001_c001_00016450_0.jpg.
//
// A query never meets the images of its vehicle by its own camera.
type VeRi776 struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*VeRi776) Splits() []string { return []string{Train, Test, Query, Gallery} }

// Open implements Collection.
func (v *VeRi776) Open(split string) (*Dataset, error) {
	return v.open(split, layout{name: "veri776", splits: v.Splits(), markers: []string{"image_train", "name_train.txt"}, further: []string{"colour"},
		says: "image_train, image_query, image_test and name_train.txt, name_query.txt, name_test.txt",
		list: v.list,
		counts: map[string][]Counts{
			Train:   {{Images: 37778, Classes: 576}},
			Test:    {{Images: 1678 + 11579, Classes: 200}},
			Query:   {{Images: 1678, Classes: 200}},
			Gallery: {{Images: 11579, Classes: 200}},
			All:     {{Images: 37778 + 1678 + 11579, Classes: 776}},
		}})
}

func (v *VeRi776) list(p *place) ([]placed, error) {
	attributes := map[string]vehicle{}
	for _, entry := range []string{"train_label.xml", "test_label.xml"} {
		if err := readVehicles(p, entry, attributes); err != nil {
			return nil, err
		}
	}
	var all []placed
	for _, part := range []struct {
		split, folder, names string
		role                 Role
	}{{Train, "image_train", "name_train.txt", QueryAndGallery}, {Test, "image_query", "name_query.txt", QueryOnly}, {Test, "image_test", "name_test.txt", GalleryOnly}} {
		add := func(name string) error {
			parts := strings.Split(name, "_")
			if len(parts) < 3 {
				return fmt.Errorf("%q is no name of the form VEHICLE_CAMERA_….jpg", name)
			}
			entry, err := within(part.folder, name)
			if err != nil {
				return err
			}
			it := p.image(entry)
			it.Class, it.Role = parts[0], part.role
			of := attributes[strings.TrimLeft(parts[0], "0")]
			it.Category, it.Further = of.Type, []string{of.Colour}
			if part.split == Test {
				it.Group = parts[0] + "/" + parts[1]
			}
			all = append(all, placed{it, part.split})
			return nil
		}
		if p.has(part.names) {
			if err := p.rows(part.names, 0, 1, func(f []string) error { return add(f[0]) }); err != nil {
				return nil, err
			}
			continue
		}
		t, dir := p.find(part.folder)
		_, images, _, err := t.list(dir)
		if err != nil {
			return nil, fault.Inputf("veri776: neither %s nor %s: %w", part.names, part.folder, err)
		}
		for _, name := range images {
			if err := add(name); err != nil {
				return nil, fault.Inputf("veri776: %s: %w", p.path(part.folder), err)
			}
		}
	}
	return all, nil
}

// vehicle is what the XML files say of an image.
type vehicle struct {
	ID     string `xml:"vehicleID,attr"`
	Colour string `xml:"colorID,attr"`
	Type   string `xml:"typeID,attr"`
}

// readVehicles reads the attributes of vehicles, by their number without
// leading zeros. A file that is not there says nothing.
func readVehicles(p *place, entry string, into map[string]vehicle) error {
	if !p.has(entry) {
		return nil
	}
	content, err := p.read(entry)
	if err != nil {
		return err
	}
	// The files say that they are gb2312; what is read of them is digits.
	for i, b := range content {
		if b >= 0x80 {
			content[i] = '?'
		}
	}
	decoder := xml.NewDecoder(bytes.NewReader(content))
	decoder.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if start, ok := token.(xml.StartElement); err == nil && ok && start.Name.Local == "Item" {
			var v vehicle
			if err = decoder.DecodeElement(&v, &start); err == nil {
				into[strings.TrimLeft(v.ID, "0")] = v
			}
		}
		if err != nil {
			return fault.Inputf("%s: %w; give the official file, or none", p.path(entry), err)
		}
	}
}
