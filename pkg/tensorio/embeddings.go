package tensorio

import "roadmap/pkg/fault"

// Embeddings is an open file of embeddings, [N, d], mapped. Close it when the
// rows are no longer needed.
type Embeddings struct {
	Tensor
	Path string
	file *File
}

// OpenEmbeddings opens an .npy [N, d] of floating-point numbers, or a
// .safetensors, .npz or .pth whose tensor `embeddings` is one (`labels` may stand
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
	t, err := f.Tensor(f.only(EmbeddingsName))
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
	return &Embeddings{Tensor: t, Path: f.Path, file: f}, nil
}

// Labels reads the labels that the file holds beside the embeddings; nil if it
// holds none. They are read when asked for: where others are given, these do
// not matter.
func (e *Embeddings) Labels() (*Labels, error) {
	if !e.file.Has(LabelsName) {
		return nil, nil
	}
	labels, err := e.file.labels()
	switch {
	case err != nil:
		return nil, err
	case labels.Len() != e.Shape[0]:
		return nil, fault.Inputf("%s: %d labels for %d embeddings", e.Path, labels.Len(), e.Shape[0])
	}
	return &labels, nil
}

// Close ends the mapping; the rows become invalid, the labels do not.
func (e *Embeddings) Close() error { return e.file.Close() }
