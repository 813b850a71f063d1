package eval

import (
	"fmt"

	"roadmap/eval/rank"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

// GroundTruth is a revisited dataset's lists and judgements.
type GroundTruth struct {
	Gallery    []string // image names
	Queries    []string
	Judgements []rank.Judgement // one a query
}

// ReadGroundTruth reads the official pickle (gnd_roxford5k.pkl,
// gnd_rparis6k.pkl), running nothing of it.
func ReadGroundTruth(path string) (*GroundTruth, error) {
	v, err := tensorio.UnpickleFile(path)
	if err != nil {
		return nil, err
	}
	g, err := groundTruth(v)
	if err != nil {
		return nil, fault.Inputf("%s: %w; the official file is a dict of imlist, qimlist and gnd", path, err)
	}
	return g, nil
}

func groundTruth(v any) (*GroundTruth, error) {
	root, ok := v.(*tensorio.Dict)
	if !ok {
		return nil, fmt.Errorf("not a dict")
	}
	g := &GroundTruth{}
	var err error
	if g.Gallery, err = all[string](root, "imlist"); err != nil {
		return nil, err
	}
	if g.Queries, err = all[string](root, "qimlist"); err != nil {
		return nil, err
	}
	entries, err := all[*tensorio.Dict](root, "gnd")
	if err != nil {
		return nil, err
	}
	if len(entries) != len(g.Queries) {
		return nil, fmt.Errorf("%d queries in qimlist, %d in gnd", len(g.Queries), len(entries))
	}
	for i, entry := range entries {
		j, err := judgement(entry, len(g.Gallery))
		if err != nil {
			return nil, fmt.Errorf("gnd[%d]: %w", i, err)
		}
		g.Judgements = append(g.Judgements, j)
	}
	return g, nil
}

func judgement(entry *tensorio.Dict, gallery int) (rank.Judgement, error) {
	var j rank.Judgement
	seen := map[int64]bool{}
	for _, part := range []struct {
		name string
		into *[]int
	}{{"easy", &j.Easy}, {"hard", &j.Hard}, {"junk", &j.Junk}} {
		indices, err := all[int64](entry, part.name)
		if err != nil {
			return j, err
		}
		for _, index := range indices {
			if index < 0 || index >= int64(gallery) {
				return j, fmt.Errorf("%s: image %d of %d", part.name, index, gallery)
			}
			if seen[index] {
				return j, fmt.Errorf("%s: image %d is listed twice", part.name, index)
			}
			seen[index] = true
			*part.into = append(*part.into, int(index))
		}
	}
	v, _ := entry.Get("bbx")
	box, ok := v.(*tensorio.List)
	if !ok || len(box.Items) != len(j.Box) {
		return j, fmt.Errorf("bbx: not a list of 4 numbers")
	}
	for i, side := range box.Items {
		switch side := side.(type) {
		case float64:
			j.Box[i] = side
		case int64:
			j.Box[i] = float64(side)
		default:
			return j, fmt.Errorf("bbx[%d]: not a number", i)
		}
	}
	return j, nil
}

// all reads a list under a key, all of whose items are of one type.
func all[T any](d *tensorio.Dict, key string) ([]T, error) {
	v, ok := d.Get(key)
	if !ok {
		return nil, fmt.Errorf("%s is missing", key)
	}
	list, ok := v.(*tensorio.List)
	if !ok {
		return nil, fmt.Errorf("%s: not a list; a NumPy array becomes one by its tolist()", key)
	}
	out := make([]T, len(list.Items))
	for i, item := range list.Items {
		if out[i], ok = item.(T); !ok {
			return nil, fmt.Errorf("%s[%d]: of an unexpected type", key, i)
		}
	}
	return out, nil
}
