package data

import (
	"cmp"
	"fmt"
	"path"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

func init() {
	register("sfm120k", func() Collection { return &SfM120k{Official{OnError: Fail, MaxImage: defaultImage}} })
}

// SfM120k is retrieval-SfM-120k (Radenović, Tolias and Chum, PAMI 2018):
// photographs of landmarks, grouped by 3D reconstruction, 91,642 of 551 for
// training and 6,403 of 162 for validation, which is the split test. A class is
// a reconstruction's number. ROOT holds retrieval-SfM-120k.pkl and the folder
// ims, in which image abcdef lies at ef/cd/ab/abcdef by the last letters of its
// name, or a folder retrieval-SfM-120k with both. The images are not square.
type SfM120k struct {
	Official `yaml:",inline"`
}

// Splits implements Collection.
func (*SfM120k) Splits() []string { return []string{Train, Test} }

// Open implements Collection.
func (s *SfM120k) Open(split string) (*Dataset, error) {
	return s.open(split, layout{name: "sfm120k", splits: s.Splits(), markers: []string{"retrieval-SfM-120k.pkl"},
		says: "retrieval-SfM-120k.pkl and the folder ims",
		list: s.list,
		counts: map[string][]Counts{
			Train: {{Images: 91642, Classes: 551}},
			Test:  {{Images: 6403, Classes: 162}},
			All:   {{Images: 98045, Classes: 713}},
		}})
}

func (s *SfM120k) list(p *place) ([]placed, error) {
	const list = "retrieval-SfM-120k.pkl"
	root, err := p.pickle(list)
	if err != nil {
		return nil, err
	}
	var all []placed
	for _, part := range []struct{ split, key string }{{Train, "train"}, {Test, "val"}} {
		v, _ := root.Get(part.key)
		db, ok := v.(*tensorio.Dict)
		if !ok {
			return nil, fault.Inputf("%s: no dict %s; give the official file", p.path(list), part.key)
		}
		names, e1 := pickled[string](db, "cids")
		clusters, e2 := pickled[int64](db, "cluster")
		switch {
		case e1 != nil || e2 != nil:
			return nil, fault.Inputf("%s: %s: %w", p.path(list), part.key, cmp.Or(e1, e2))
		case len(names) != len(clusters):
			return nil, fault.Inputf("%s: %s: %d cids, but %d of cluster", p.path(list), part.key, len(names), len(clusters))
		}
		for i, name := range names {
			n := len(name)
			if n < 6 {
				return nil, fault.Inputf("%s: %s: cids[%d] is %q; a name has at least 6 letters", p.path(list), part.key, i, name)
			}
			entry, err := within("ims", path.Join(name[n-2:], name[n-4:n-2], name[n-6:n-4], name))
			if err != nil {
				return nil, fault.Inputf("%s: %s: cids[%d]: %w", p.path(list), part.key, i, err)
			}
			it := p.image(entry)
			it.Class = fmt.Sprintf("%s %d", part.key, clusters[i])
			all = append(all, placed{it, part.split})
		}
	}
	return all, nil
}

// pickle reads a pickle that is a dict; nothing in it is run.
func (p *place) pickle(entry string) (*tensorio.Dict, error) {
	content, err := p.read(entry)
	if err != nil {
		return nil, err
	}
	v, err := tensorio.Unpickle(content)
	if err != nil {
		return nil, fault.Inputf("%s: %w", p.path(entry), err)
	}
	root, ok := v.(*tensorio.Dict)
	if !ok {
		return nil, fault.Inputf("%s: the pickle is no dict; give the official file", p.path(entry))
	}
	return root, nil
}

// pickled reads a list of a dict, all of whose items are of one type.
func pickled[T any](d *tensorio.Dict, key string) ([]T, error) {
	v, _ := d.Get(key)
	var items []any
	switch v := v.(type) {
	case *tensorio.List:
		items = v.Items
	case tensorio.Tuple:
		items = v
	default:
		return nil, fmt.Errorf("no list %s; a NumPy array becomes one by its tolist()", key)
	}
	out := make([]T, len(items))
	for i, item := range items {
		x, ok := item.(T)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is not of the type expected", key, i)
		}
		out[i] = x
	}
	return out, nil
}
