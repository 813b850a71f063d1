package eval

import (
	"errors"
	"fmt"

	"roadmap/eval/knn"
	"roadmap/pkg/fault"
)

// rowStore is a set of rows in the form in which they are compared: all of them
// kept, or, where they would take too much memory, made anew when asked for.
type rowStore struct {
	source Matrix
	rows   int
	kept   *knn.Rows // nil: made anew
}

// newRowStore reads every row once: it finds the first row that cannot be
// compared and the longest one, and keeps the rows if keep is set.
func newRowStore(source Matrix, scorer *knn.Scorer, keep bool, p *pool) (*rowStore, error) {
	s := &rowStore{source: source, rows: source.Rows()}
	if keep {
		rows, err := scorer.Rows(s.rows)
		if err != nil {
			return nil, err
		}
		s.kept = rows
	}
	blocks := (s.rows + readRows - 1) / readRows
	longest, faults := make([]float32, blocks), make([]error, blocks)
	err := p.runChunks(s.rows, readRows, func(w *worker, from, to int) error {
		into, at := s.kept, from
		if !keep {
			into, at = w.rows, 0
		}
		longest[from/readRows], faults[from/readRows] = s.fill(w, into, at, from, to)
		return nil
	})
	for block := 0; block < blocks && err == nil; block++ {
		err = faults[block]
		scorer.Extend(longest[block])
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// fill makes rows [from, to) of the source into rows at and on of a memory.
func (s *rowStore) fill(w *worker, into *knn.Rows, at, from, to int) (longest float32, err error) {
	floats := w.floats[:(to-from)*s.source.Dim()]
	if err := s.source.Copy(from, to, floats); err != nil {
		return 0, fmt.Errorf("%s, rows %d to %d: %w", s.source.Name(), from, to-1, err)
	}
	longest, err = into.Fill(at, floats)
	var bad *knn.BadRow
	if errors.As(err, &bad) {
		bad.Row = number(s.source, from+bad.Row)
		return 0, fault.Inputf("%s: %w", s.source.Name(), bad)
	}
	return longest, err
}

// few gives rows [from, to), at most readRows of them, valid until the next
// call with the same worker.
func (s *rowStore) few(w *worker, from, to int) (knn.Side, error) {
	if s.kept != nil {
		return s.kept.Side(from, to, from), nil
	}
	if _, err := s.fill(w, w.rows, 0, from, to); err != nil {
		return knn.Side{}, err
	}
	return w.rows.Side(0, to-from, from), nil
}

// many gives any number of rows [from, to); spare is the memory for them where
// rows are made anew.
func (s *rowStore) many(p *pool, spare *knn.Rows, from, to int) (knn.Side, error) {
	if s.kept != nil {
		return s.kept.Side(from, to, from), nil
	}
	err := p.runChunks(to-from, readRows, func(w *worker, first, last int) error {
		_, err := s.fill(w, spare, first, from+first, from+last)
		return err
	})
	return spare.Side(0, to-from, from), err
}

// gather copies single rows into a memory, for exact scores.
func (s *rowStore) gather(w *worker, rows []int32, into *knn.Rows) error {
	for i, row := range rows {
		if s.kept != nil {
			into.CopyFrom(i, s.kept, int(row))
		} else if _, err := s.fill(w, into, i, int(row), int(row)+1); err != nil {
			return err
		}
	}
	return nil
}

func (s *rowStore) close() {
	if s != nil && s.kept != nil {
		s.kept.Close()
	}
}
