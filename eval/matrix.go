package eval

import "roadmap/pkg/tensorio"

// Matrix is rows of embeddings, [N, d], wherever they are: in memory or in a
// mapped file. It is read from several goroutines at once.
type Matrix interface {
	Name() string // of the file, for errors
	Rows() int
	Dim() int
	// Copy converts rows [from, to) to float32, row after row.
	Copy(from, to int, into []float32) error
}

// Float32s is embeddings in memory: rows of dim floats one after another.
func Float32s(data []float32, dim int) Matrix { return slab{data, dim} }

type slab struct {
	data []float32
	dim  int
}

func (s slab) Name() string { return "embeddings" }
func (s slab) Dim() int     { return s.dim }

func (s slab) Rows() int {
	if s.dim <= 0 {
		return 0
	}
	return len(s.data) / s.dim
}

func (s slab) Copy(from, to int, into []float32) error {
	copy(into, s.data[from*s.dim:to*s.dim])
	return nil
}

// Stored is embeddings as a file holds them; the tensor has two dimensions and
// floating-point numbers, which are rounded to float32.
func Stored(name string, t tensorio.Tensor) Matrix { return stored{name, t} }

type stored struct {
	name string
	tensorio.Tensor
}

func (s stored) Name() string { return s.name }
func (s stored) Rows() int    { return s.Shape[0] }
func (s stored) Dim() int     { return s.Shape[1] }

func (s stored) Copy(from, to int, into []float32) error {
	return s.Tensor.Rows(from, to).CopyFloat32s(into[:(to-from)*s.Dim()])
}

// Select is some rows of a matrix, in the order given.
func Select(m Matrix, rows []int) Matrix { return selection{m, rows} }

type selection struct {
	Matrix
	rows []int
}

func (s selection) Rows() int { return len(s.rows) }

func (s selection) Copy(from, to int, into []float32) error {
	d := s.Dim()
	for i, row := range s.rows[from:to] {
		if err := s.Matrix.Copy(row, row+1, into[i*d:(i+1)*d]); err != nil {
			return err
		}
	}
	return nil
}

// number is that of a row in its file, for errors: a selection's rows are others.
func number(m Matrix, row int) int {
	if s, ok := m.(selection); ok {
		return number(s.Matrix, s.rows[row])
	}
	return row
}

// pick is the labels of some rows.
func pick(labels []int64, rows []int) []int64 {
	out := make([]int64, len(rows))
	for i, row := range rows {
		out[i] = labels[row]
	}
	return out
}
