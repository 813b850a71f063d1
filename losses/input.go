package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Input is what a loss is evaluated on.
type Input struct {
	Query       *torch.Tensor // [q, d] embeddings, of any length and any floating-point dtype
	QueryLabels []int64       // q; equal labels are relevant to each other
	QueryIDs    []int64       // q, or nil: who the queries are; a query never meets a gallery entry of its own id

	Gallery       *torch.Tensor // [g, d] on the queries' device; nil: the queries are the gallery
	GalleryLabels []int64       // g
	GalleryIDs    []int64       // g, or nil
}

// check refuses counts and shapes that do not fit together.
func (in *Input) check() error {
	if in.Query == nil {
		return fault.Inputf("no query embeddings are given")
	}
	if err := matrix("query embeddings", in.Query, in.QueryLabels, in.QueryIDs); err != nil {
		return err
	}
	if in.Gallery == nil {
		if in.GalleryLabels != nil || in.GalleryIDs != nil {
			return fault.Inputf("gallery labels or ids are given but no gallery embeddings; give both or neither")
		}
		return nil
	}
	if err := matrix("gallery embeddings", in.Gallery, in.GalleryLabels, in.GalleryIDs); err != nil {
		return err
	}
	switch {
	case in.Query.Size(1) != in.Gallery.Size(1):
		return fault.Inputf("query embeddings have %d dimensions and gallery embeddings %d; they must come from the same network", in.Query.Size(1), in.Gallery.Size(1))
	case in.Query.Device() != in.Gallery.Device():
		return fault.Inputf("query embeddings are on %s and gallery embeddings on %s; move them to one device", in.Query.Device(), in.Gallery.Device())
	case (in.QueryIDs == nil) != (in.GalleryIDs == nil):
		return fault.Inputf("sample ids are given for one of query and gallery; give both or neither")
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
		return fault.Inputf("%s have shape %v; want [rows, dimensions]", what, x.Shape())
	case x.Size(0) == 0 || x.Size(1) == 0:
		return fault.Inputf("%s have shape %v; give at least one row and one dimension", what, x.Shape())
	case !x.DType().IsFloat():
		return fault.Inputf("%s are %s; want floating-point numbers", what, x.DType())
	case int64(len(labels)) != x.Size(0):
		return fault.Inputf("%s have %d rows but %d labels are given; give one label a row", what, x.Size(0), len(labels))
	case ids != nil && int64(len(ids)) != x.Size(0):
		return fault.Inputf("%s have %d rows but %d sample ids are given; give one id a row", what, x.Size(0), len(ids))
	}
	return nil
}

// relevance says who is relevant to whom, and whom a query never meets.
func (in *Input) relevance(self string) *relevance {
	if in.Gallery == nil {
		r := byLabel(in.QueryLabels, in.QueryLabels)
		if self == "exclude" {
			for i := range in.QueryLabels {
				r.exclude(i, int32(i))
			}
		}
		return r
	}
	r := byLabel(in.QueryLabels, in.GalleryLabels)
	if in.GalleryIDs == nil {
		return r
	}
	at := make(map[int64][]int32, len(in.GalleryIDs))
	for j, id := range in.GalleryIDs {
		at[id] = append(at[id], int32(j))
	}
	for i, id := range in.QueryIDs {
		if own := at[id]; own != nil {
			r.exclude(i, own...)
		}
	}
	return r
}
