package score

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Input is what a loss is evaluated on: embeddings with labels, or scores with
// relevance.
type Input struct {
	Query       *torch.Tensor // [q, d] embeddings, of any length and any floating-point dtype
	QueryLabels []int64       // q; equal labels are relevant to each other
	QueryIDs    []int64       // q, or nil: who the queries are; an entry of a query's own id in Gallery or Stored is excluded

	Gallery       *torch.Tensor // [g, d] on the queries' device; nil: the queries are the gallery
	GalleryLabels []int64       // g
	GalleryIDs    []int64       // g, or nil; with QueryIDs

	Stored *Stored // without Gallery: embeddings of earlier steps behind the queries in the gallery; with QueryIDs

	Scores    *torch.Tensor // [q, g], taken as they are
	Relevance *torch.Tensor // [q, g] of 0 and 1, any dtype

	QueryName, GalleryName string   // what errors call Query and Gallery, or Scores and Relevance, such as their files; "": what they are
	LabelNames             []string // what errors call label i; nil: the number
}

// Stored is gallery entries without gradient, as they enter the scores: divided
// by their lengths where the queries are.
type Stored struct {
	Rows   *torch.Tensor // [n, d]
	Labels []int64       // n
	IDs    []int64       // n
}

// named is the input with a name for each of its parts.
func (in Input) named() Input {
	query, gallery := "query embeddings", "gallery embeddings"
	if in.Scores != nil || in.Relevance != nil {
		query, gallery = "scores", "relevance"
	}
	in.QueryName, in.GalleryName = cmp.Or(in.QueryName, query), cmp.Or(in.GalleryName, gallery)
	return in
}

// label is a label in print.
func (in *Input) label(label int64) string {
	if in.LabelNames != nil {
		return in.LabelNames[label]
	}
	return strconv.FormatInt(label, 10)
}

// first is the tensor of the queries.
func (in *Input) first() *torch.Tensor {
	if in.Scores != nil {
		return in.Scores
	}
	return in.Query
}

// check refuses counts and shapes that do not fit together.
func (in *Input) check(t Traits, o Options) error {
	if in.Scores != nil || in.Relevance != nil {
		return in.checkScores(t, o)
	}
	if o.Flatten {
		return fault.Inputf("flatten joins rows of given scores; give scores and relevance, or leave flatten false")
	}
	if in.Query == nil {
		return fault.Inputf("no query embeddings are given")
	}
	if err := matrix(in.QueryName, in.Query, in.QueryLabels, in.QueryIDs); err != nil {
		return err
	}
	if in.Gallery == nil {
		if t.Proxies {
			return fault.Inputf("this loss compares queries with proxies; give one embedding a class, with its label, as gallery")
		}
		if in.GalleryLabels != nil || in.GalleryIDs != nil {
			return fault.Inputf("gallery labels or ids are given but no gallery embeddings; give both or neither")
		}
		return nil
	}
	if err := matrix(in.GalleryName, in.Gallery, in.GalleryLabels, in.GalleryIDs); err != nil {
		return err
	}
	switch {
	case in.Query.Size(1) != in.Gallery.Size(1):
		return fault.Inputf("%s: %d dimensions, but %s has %d; they must come from the same network", in.QueryName, in.Query.Size(1), in.GalleryName, in.Gallery.Size(1))
	case in.Query.Device() != in.Gallery.Device():
		return fault.Inputf("query embeddings are on %s and gallery embeddings on %s; move them to one device", in.Query.Device(), in.Gallery.Device())
	case (in.QueryIDs == nil) != (in.GalleryIDs == nil):
		return fault.Inputf("sample ids are given for one of query and gallery; give both or neither")
	}
	return nil
}

// checkScores is check for scores that are given.
func (in *Input) checkScores(t Traits, o Options) error {
	switch {
	case in.Scores == nil || in.Relevance == nil:
		return fault.Inputf("scores and relevance belong together; give both")
	case in.Query != nil || in.Gallery != nil:
		return fault.Inputf("give either embeddings with labels or scores with relevance, not both")
	case t.Proxies:
		return fault.Inputf("this loss compares queries with proxies and takes no scores; give embeddings with labels")
	}
	if err := in.Scores.Err(); err != nil {
		return err
	}
	if err := in.Relevance.Err(); err != nil {
		return err
	}
	shape, other := in.Scores.Shape(), in.Relevance.Shape()
	switch {
	case len(shape) != 2 || shape[0] == 0 || shape[1] == 0:
		return fault.Inputf("%s: the shape is %v; want [queries, gallery], at least one of each", in.QueryName, shape)
	case !slices.Equal(shape, other):
		return fault.Inputf("%s: the shape is %v, but that of %s %v; they must be the same", in.QueryName, shape, in.GalleryName, other)
	case !in.Scores.DType().IsFloat():
		return fault.Inputf("%s: the scores are %s; want floating-point numbers", in.QueryName, in.Scores.DType())
	case o.Flatten && shape[0] > math.MaxInt32/shape[1]:
		return fault.Inputf("flatten: one list of %d x %d scores is too long; give at most %d", shape[0], shape[1], math.MaxInt32)
	}
	return nil
}

// matrix checks one set of embeddings with its labels.
func matrix(what string, x *torch.Tensor, labels, ids []int64) error {
	if err := x.Err(); err != nil {
		return err
	}
	switch {
	case x.Dims() != 2:
		return fault.Inputf("%s: the shape is %v; want [rows, dimensions]", what, x.Shape())
	case x.Size(0) == 0 || x.Size(1) == 0:
		return fault.Inputf("%s: the shape is %v; give at least one row and one dimension", what, x.Shape())
	case !x.DType().IsFloat():
		return fault.Inputf("%s: the elements are %s; want floating-point numbers", what, x.DType())
	case int64(len(labels)) != x.Size(0):
		return fault.Inputf("%s: %d rows but %d labels; give one label a row", what, x.Size(0), len(labels))
	case ids != nil && int64(len(ids)) != x.Size(0):
		return fault.Inputf("%s: %d rows but %d sample ids; give one id a row", what, x.Size(0), len(ids))
	}
	return nil
}

// relevance says who is relevant to whom, and who is excluded.
func (in *Input) relevance(t Traits, o Options) (*relevance, error) {
	if in.Gallery == nil {
		return in.ownRelevance(t.Pairs || o.Self == "exclude"), nil
	}
	r := byLabel(in.QueryLabels, in.GalleryLabels)
	if in.GalleryIDs != nil {
		r.excludeSame(in.QueryIDs, in.GalleryIDs, 0)
	}
	if t.Proxies {
		for i, label := range in.QueryLabels {
			if n := len(r.members[r.class[i]]); n != 1 {
				return nil, fault.Inputf("%s: row %d has label %s, which comes %d times in %s; among proxies each label comes exactly once", in.QueryName, i, in.label(label), n, in.GalleryName)
			}
		}
	}
	return r, nil
}

// ownRelevance is relevance where the queries, and what is stored, are the gallery.
func (in *Input) ownRelevance(excludeSelf bool) *relevance {
	columns := in.QueryLabels
	if in.Stored != nil {
		columns = slices.Concat(columns, in.Stored.Labels)
	}
	r := byLabel(in.QueryLabels, columns)
	for i := range in.QueryLabels {
		if excludeSelf {
			r.exclude(i, int32(i))
		}
	}
	if in.Stored != nil {
		r.excludeSame(in.QueryIDs, in.Stored.IDs, len(in.QueryLabels))
	}
	return r
}
