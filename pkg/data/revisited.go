package data

import (
	"fmt"
	"image"
	"math"
	"path"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

func init() {
	for _, r := range []Revisited{
		{dataset: "roxford5k", gallery: 4993}, {dataset: "rparis6k", gallery: 6322},
	} {
		register(r.dataset, func() Collection {
			r.OnError, r.MaxImage = Fail, defaultImage
			return &r
		})
	}
}

// Revisited is revisited Oxford5k or Paris6k (Radenović et al., CVPR 2018): 70
// queries, which are boxes of photographs, and 4,993 or 6,322 photographs to
// search. ROOT holds gnd_roxford5k.pkl or gnd_rparis6k.pkl and the folder jpg. Rows
// are in the ground truth's order, queries first.
//
// There is no training split. Relevance is the ground truth's easy, hard and
// junk, not the class, which is the landmark that a photograph is named for;
// eval's --protocol revisited is for that.
type Revisited struct {
	Official `yaml:",inline"`

	dataset string
	gallery int
}

// Splits implements Collection.
func (*Revisited) Splits() []string { return []string{Test, Query, Gallery} }

// Open implements Collection.
func (r *Revisited) Open(split string) (*Dataset, error) {
	truth := "gnd_" + r.dataset + ".pkl"
	where := ""
	d, err := r.open(split, layout{name: r.dataset, splits: r.Splits(), markers: []string{truth}, says: truth + " and the folder jpg",
		list: func(p *place) ([]placed, error) {
			where = p.path(truth)
			return r.list(p, truth)
		},
		counts: map[string][]Counts{Test: {{Images: 70 + r.gallery}}, All: {{Images: 70 + r.gallery}}, Query: {{Images: 70}}, Gallery: {{Images: r.gallery}}}})
	if err == nil {
		d.Protocol, d.GroundTruth = "revisited", where
	}
	return d, err
}

func (r *Revisited) list(p *place, truth string) ([]placed, error) {
	root, err := p.pickle(truth)
	if err != nil {
		return nil, err
	}
	var all []placed
	wrong := func(format string, args ...any) error {
		return fault.Inputf("%s: %w; give the official file", p.path(truth), fmt.Errorf(format, args...))
	}
	judged, err := pickled[*tensorio.Dict](root, "gnd")
	if err != nil {
		return nil, wrong("%w", err)
	}
	for _, part := range []struct {
		key  string
		role Role
	}{{"qimlist", QueryOnly}, {"imlist", GalleryOnly}} {
		names, err := pickled[string](root, part.key)
		if err != nil {
			return nil, wrong("%w", err)
		}
		if part.role == QueryOnly && len(names) != len(judged) {
			return nil, wrong("%d queries in qimlist, %d in gnd", len(names), len(judged))
		}
		for i, name := range names {
			entry, err := within("jpg", name+".jpg")
			if err != nil {
				return nil, wrong("%s[%d]: %w", part.key, i, err)
			}
			it := p.image(entry)
			it.Role, it.Class = part.role, path.Base(name)
			if end := strings.LastIndexByte(it.Class, '_'); end > 0 {
				it.Class = it.Class[:end]
			}
			if part.role == QueryOnly {
				if it.Box, err = boxOf(judged[i]); err != nil {
					return nil, wrong("gnd[%d]: %w", i, err)
				}
			}
			all = append(all, placed{it, Test})
		}
	}
	return all, nil
}

// boxOf reads bbx: left, upper, right and lower edge, rounded as Pillow's crop
// does, halves to even.
func boxOf(entry *tensorio.Dict) (image.Rectangle, error) {
	v, _ := entry.Get("bbx")
	list, ok := v.(*tensorio.List)
	if !ok || len(list.Items) != 4 {
		return image.Rectangle{}, fmt.Errorf("bbx is not a list of 4 numbers")
	}
	var edges [4]float64
	for i, item := range list.Items {
		switch x := item.(type) {
		case float64:
			edges[i] = x
		case int64:
			edges[i] = float64(x)
		default:
			return image.Rectangle{}, fmt.Errorf("bbx[%d] is no number", i)
		}
	}
	return rectangle(edges)
}

// rectangle is the box between edges, in whole pixels.
func rectangle(edges [4]float64) (image.Rectangle, error) {
	var at [4]int
	for i, x := range edges {
		if !(math.Abs(x) < 1<<30) {
			return image.Rectangle{}, fmt.Errorf("the box %v is not in pixels", edges)
		}
		at[i] = int(math.RoundToEven(x))
	}
	if at[0] >= at[2] || at[1] >= at[3] {
		return image.Rectangle{}, fmt.Errorf("the box %v is empty; give its left, upper, right and lower edge", edges)
	}
	return image.Rect(at[0], at[1], at[2], at[3]), nil
}
