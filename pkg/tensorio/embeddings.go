package tensorio

import "roadmap/pkg/fault"

// Embeddings is an open file of embeddings, [N, d], mapped. Close it when the
// rows are no longer needed.
type Embeddings struct {
	Tensor
	Path   string
	Labels *Labels // of a file that holds them beside the embeddings; else nil
	file   *File
}

// OpenEmbeddings opens an .npy [N, d] of floating-point numbers, or a
// .safetensors or .pth whose tensor `embeddings` is one (`labels` may stand
// beside it). No rows, or rows of no width, are an input error.
func OpenEmbeddings(path string) (*Embeddings, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	e, err := f.embeddings()
	if err != nil {
		f.Close() // the error in hand is the one to report
		return nil, err
	}
	return e, nil
}

func (f *File) embeddings() (*Embeddings, error) {
	name := EmbeddingsName
	if len(f.entries) == 1 && f.entries[0].Name == Single {
		name = Single
	}
	t, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	switch {
	case !t.DType.IsFloat():
		return nil, fault.Inputf("%s: holds %v; embeddings are floating-point numbers (float16, float32 or float64)", f.Path, t.DType)
	case len(t.Shape) != 2:
		return nil, fault.Inputf("%s: has the shape %s; embeddings are one row an image, [N, d]", f.Path, shapeText(t.Shape))
	case t.Len() == 0:
		return nil, fault.Inputf("%s: has the shape %s, so no embeddings at all", f.Path, shapeText(t.Shape))
	}
	e := &Embeddings{Tensor: t, Path: f.Path, file: f}
	if name == EmbeddingsName && f.Has(LabelsName) {
		labels, err := f.labels()
		if err != nil {
			return nil, err
		}
		if labels.Len() != t.Shape[0] {
			return nil, fault.Inputf("%s: %d labels for %d embeddings", f.Path, labels.Len(), t.Shape[0])
		}
		e.Labels = &labels
	}
	return e, nil
}

// Close ends the mapping; the rows become invalid, the labels do not.
func (e *Embeddings) Close() error { return e.file.Close() }
