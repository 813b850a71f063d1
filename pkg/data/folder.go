package data

import (
	"cmp"
	"errors"
	"io/fs"
	"path"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

func init() {
	register("folder", func() Collection { return &Folder{TrainShare: 0.5, OnError: Fail, MaxImage: defaultImage} })
}

// Folder is images sorted into folders, or into a zip archive of that layout:
// ROOT/class/image or, Nested, ROOT/category/class/image. Images are PNG or
// JPEG by their name; other files, and folders without images, are passed over.
//
// An archive may hold all that in a folder of its own name.
//
// Where ROOT has folders named train and test, these are the splits (and hold
// the classes). Otherwise the classes, sorted by name, are divided: the first
// TrainShare of them train, rounded down, and the rest test.
type Folder struct {
	Root       string       `yaml:"root"`        // folder or zip archive
	Nested     bool         `yaml:"nested"`      // a level of categories above the classes
	TrainShare float64      `yaml:"train_share"` // of the classes, in [0, 1]
	OnError    OnError      `yaml:"on_error"`    // broken images: fail or skip
	MaxImage   config.Bytes `yaml:"max_image"`   // memory to decode and resize one image, such as 512MiB; 0: 1GiB
}

// Validate checks the settings that need no file.
func (f *Folder) Validate() error {
	if !(f.TrainShare >= 0 && f.TrainShare <= 1) {
		return config.Invalid("train_share", "is %g; give a share of the classes between 0 and 1", f.TrainShare)
	}
	return cmp.Or(checkMaxImage(f.MaxImage), f.OnError.validate("folder"))
}

func (f *Folder) at(root string) { f.Root = root }

// Splits implements Collection.
func (*Folder) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (f *Folder) Open(split string) (*Dataset, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit("folder", split, f.Splits()); err != nil {
		return nil, err
	}
	if f.Root == "" {
		return nil, fault.Inputf("folder: no root is given; set root to the folder that holds a folder of images a class")
	}
	t, err := openTree(f.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Inputf("folder: there is no %s; set root to the folder that holds a folder of images a class", f.Root)
	}
	if err != nil {
		return nil, fault.Inputf("folder: %w", err)
	}
	t.most = imageLimit(f.MaxImage)
	all, err := f.items(t)
	if err == nil && len(all) == 0 {
		err = fault.Inputf("folder: no image under %s; expected %s", t.name, t.path(f.layout()))
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return finish("folder", split, all, f.OnError, t)
}

// layout is the path of an image below the root, as the settings want it.
func (f *Folder) layout() string {
	if f.Nested {
		return "category/class/image.png (or .jpg)"
	}
	return "class/image.png (or .jpg)"
}

// placed is an item with the split that it belongs to.
type placed struct {
	Item
	split string
}

// items lists the whole collection.
func (f *Folder) items(t *tree) ([]placed, error) {
	depth := 1
	if f.Nested {
		depth = 2
	}
	top := t.top()
	if !t.isDir(path.Join(top, Train)) || !t.isDir(path.Join(top, Test)) {
		items, err := t.classes(top, depth)
		if err != nil {
			return nil, err
		}
		number(items)
		return divide(items, f.TrainShare), nil
	}
	var all []placed
	for _, split := range []string{Train, Test} {
		items, err := t.classes(path.Join(top, split), depth)
		if err != nil {
			return nil, err
		}
		number(items)
		for _, it := range items {
			it.ID = len(all)
			all = append(all, placed{it, split})
		}
	}
	return all, nil
}

// divide gives the first share of the classes, rounded down, to training and
// the rest to the test. The items are sorted by class.
func divide(items []Item, share float64) []placed {
	classes, labels := index(items, func(it *Item) string { return it.Class })
	train := int64(share*float64(len(classes)) + 1e-9) // 0.29 of 100 is 29, though the product is 28.999…
	all := make([]placed, len(items))
	for i, it := range items {
		all[i] = placed{it, Train}
		if labels[i] >= train {
			all[i].split = Test
		}
	}
	return all
}

// finish makes the dataset of one split, without its broken images if they are
// to be skipped. It takes over the trees: the dataset closes them, or finish
// itself when it fails.
func finish(name, split string, all []placed, onError OnError, trees ...*tree) (*Dataset, error) {
	d := &Dataset{Name: name, Split: split}
	for _, t := range trees {
		d.closers = append(d.closers, t)
		d.Empty = append(d.Empty, t.empty...)
		for ext, n := range t.others {
			if d.Others == nil {
				d.Others = map[string]int{}
			}
			d.Others[ext] += n
		}
	}
	for _, p := range all {
		if selects(split, p.split, p.Role) {
			d.Items = append(d.Items, p.Item)
		}
	}
	var err error
	switch {
	case len(d.Items) == 0:
		err = fault.Inputf("%s: split %s has no image (of %d in all); choose another split or divide the classes differently", name, split, len(all))
	case onError == Skip:
		err = d.skipBroken()
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	d.relabel()
	return d, nil
}
