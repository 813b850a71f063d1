package data

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

func init() {
	register("omniglot", func() Collection {
		return &Omniglot{Root: filepath.Join("data", "omniglot"), Protocol: "official", OnError: Fail, MaxImage: defaultImage}
	})
}

// Omniglot is the handwritten characters of Lake, Salakhutdinov and Tenenbaum
// (Science 350, 2015): 1,623 characters of 50 alphabets, drawn by 20 people
// each, 105 × 105 pixels, black ink on white paper. A class is
// alphabet/character; the category is the alphabet.
//
// The official archives images_background.zip (964 classes) and
// images_evaluation.zip (659 classes) are read in place, or the folders of
// these names that they unpack to.
type Omniglot struct {
	Root string `yaml:"root"` // folder that holds the archives or the unpacked folders
	// Protocol is how the classes are divided:
	//
	//	official      background trains, evaluation tests
	//	background80  of background alone: its classes sorted by name, the first
	//	              80 % (771 of 964) train and the rest (193) test
	Protocol string       `yaml:"protocol"`
	OnError  OnError      `yaml:"on_error"`  // broken images: fail or skip
	MaxImage config.Bytes `yaml:"max_image"` // memory to decode and resize one image, such as 512MiB; 0: 1GiB
}

// Validate checks the settings that need no file.
func (o *Omniglot) Validate() error {
	if o.Protocol != "official" && o.Protocol != "background80" {
		return config.Invalid("protocol", "is %q; give official or background80", o.Protocol)
	}
	return cmp.Or(checkMaxImage(o.MaxImage), o.OnError.validate("omniglot"))
}

func (o *Omniglot) at(root string) { o.Root = root }

// Splits implements Collection.
func (*Omniglot) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (o *Omniglot) Open(split string) (*Dataset, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkSplit("omniglot", split, o.Splits()); err != nil {
		return nil, err
	}
	if o.Protocol == "background80" {
		items, t, err := o.part("images_background")
		if err != nil {
			return nil, err
		}
		number(items)
		return finish("omniglot", split, divide(items, 0.8), o.OnError, t)
	}
	background, t1, err := o.part("images_background")
	if err != nil {
		return nil, err
	}
	evaluation, t2, err := o.part("images_evaluation")
	if err != nil {
		t1.Close()
		return nil, err
	}
	number(background)
	number(evaluation)
	all := divide(background, 1)
	for _, it := range evaluation {
		it.ID += len(background)
		all = append(all, placed{it, Test})
	}
	return finish("omniglot", split, all, o.OnError, t1, t2)
}

// part lists the images of one archive, or of the folder of that name.
func (o *Omniglot) part(name string) ([]Item, *tree, error) {
	t, err := openTree(filepath.Join(o.Root, name+".zip"))
	if errors.Is(err, fs.ErrNotExist) {
		t, err = openTree(filepath.Join(o.Root, name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Inputf("omniglot: neither %s.zip nor the folder %s is in %s; "+
			"set root to the folder that holds them (https://github.com/brendenlake/omniglot, python/)", name, name, o.Root)
	}
	if err != nil {
		return nil, nil, fault.Inputf("omniglot: %w", err)
	}
	t.most = imageLimit(o.MaxImage)
	top := "."
	if t.isDir(name) { // the archives hold one folder of their own name
		top = name
	}
	items, err := t.classes(top, 2)
	if err == nil && len(items) == 0 {
		err = fault.Inputf("omniglot: no image in %s; expected alphabet/character/image.png", t.path(top))
	}
	if err != nil {
		t.Close()
		return nil, nil, err
	}
	return items, t, nil
}
