package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Find opens what --data names:
//
//	glyphs, omniglot:test    a collection by name, with its split (all if none is given)
//	photos/, photos.zip      a folder or archive of classes; all of it
//	photos.csv               a list; all of it
//
// root, if not empty, is where the collection, or the paths of the list, are
// found. A name is taken for a collection before it is taken for a file; write
// ./glyphs for a folder of that name.
func Find(spec, root string) (*Dataset, error) {
	name, split, _ := strings.Cut(spec, ":")
	if split == "" {
		split = All
	}
	switch {
	case slices.Contains(Names(), name):
		c, err := New(name)
		if err != nil {
			return nil, err
		}
		if err := setRoot(c, name, root); err != nil {
			return nil, err
		}
		return c.Open(split)
	case strings.EqualFold(filepath.Ext(spec), ".csv"):
		return (&List{Test: spec, Root: root, OnError: Fail}).Open(All)
	}
	if _, err := os.Stat(spec); err != nil {
		hint := ""
		if near, ok := registry.Nearest(name, Names()); ok {
			hint = "; did you mean " + near + "?"
		}
		return nil, fault.Inputf("data %q is neither a dataset (%s), nor a folder, an archive or a list%s", spec, strings.Join(Names(), ", "), hint)
	}
	if root != "" {
		return nil, fault.Inputf("data %q is a folder or archive itself; drop the root %q", spec, root)
	}
	return (&Folder{Root: spec, OnError: Fail}).Open(All)
}

// rooted is a collection whose files are in a place of the user's. Each says so
// in its own file, by a method at.
type rooted interface{ at(root string) }

func setRoot(c Collection, name, root string) error {
	if root == "" {
		return nil
	}
	r, ok := c.(rooted)
	if !ok {
		return fault.Inputf("%s has no root; drop the root %q", name, root)
	}
	r.at(root)
	return nil
}
