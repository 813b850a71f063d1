package train

import (
	"fmt"

	"roadmap/eval"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
)

// Input is what an evaluation compares: the embeddings of a dataset, [n, dim]
// in its order, divided into queries and gallery as the dataset says, with its
// levels. A dataset whose queries are all images, and its gallery too, has no
// gallery of its own: each image is compared with all others. What Evaluable
// refuses is refused.
func Input(d *data.Dataset, rows []float32, dim int) (eval.Input, error) {
	in := eval.Input{Query: eval.Float32s(rows, dim)}
	if err := Evaluable(d); err != nil {
		return in, err
	}
	queries, gallery := d.Queries(), d.Gallery()
	if all := in.Query; len(queries) < d.Len() {
		in.Query, in.Gallery = eval.Select(all, queries), eval.Select(all, gallery)
	}
	for i, level := range d.Levels() {
		l := eval.Level{Name: level.Name, Query: pick(level.Labels, queries)}
		if in.Gallery != nil {
			l.Gallery = pick(level.Labels, gallery)
		}
		if i == 0 {
			in.QueryLabels, in.GalleryLabels = l.Query, l.Gallery
			continue
		}
		in.Levels = append(in.Levels, l)
	}
	return in, nil
}

func pick(labels []int64, rows []int) []int64 {
	part := make([]int64, len(rows))
	for i, row := range rows {
		part[i] = labels[row]
	}
	return part
}

// Evaluable refuses datasets whose protocol cannot be kept here, rather than
// measure something else: pairs to leave out (Dataset.Groups), images that are
// query and gallery beside others that are one of them, relevance by a ground
// truth.
func Evaluable(d *data.Dataset) error {
	queries, gallery := len(d.Queries()), len(d.Gallery())
	divided := queries < d.Len() || gallery < d.Len()
	switch {
	case d.Protocol == "revisited":
		return fault.Inputf("%s %s: relevance is the ground truth's, not the class's; embed the splits query and gallery, and give them to roadmap eval --protocol revisited --ground-truth %s", d.Name, d.Split, d.GroundTruth)
	case d.Groups() != nil:
		return fault.Inputf("%s %s: a query must not meet images of its own sequence or camera, and evaluation cannot leave those out yet; roadmap embed exports the embeddings, with the column sequence", d.Name, d.Split)
	case divided && queries+gallery > d.Len():
		return fault.Inputf("%s %s: some images are query and gallery, others only one of them, which cannot be evaluated in one go; embed the splits query and gallery, and evaluate those", d.Name, d.Split)
	case divided && (queries == 0 || gallery == 0):
		return fault.Inputf("%s %s: %d queries and %d images in the gallery; choose the split test, which has both", d.Name, d.Split, queries, gallery)
	}
	return nil
}

// searched is the number of images that a query of the dataset is compared
// with.
func searched(d *data.Dataset) int {
	if gallery := len(d.Gallery()); gallery < d.Len() {
		return gallery
	}
	return d.Len() - 1
}

// unlike says how the evaluation of a run differs from the dataset's own
// protocol; "" for not at all.
func unlike(d *data.Dataset) string {
	if d.Protocol == "" {
		return ""
	}
	return fmt.Sprintf("%s %s is evaluated with every image a query against all others; its own protocol is that of roadmap eval --protocol %s", d.Name, d.Split, d.Protocol)
}
