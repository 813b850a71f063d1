package eval

import (
	"errors"
	"fmt"

	"roadmap/eval/knn"
	"roadmap/pkg/fault"
)

// shelf is a set of rows in the form in which they are compared: all of them
// kept, or, where they would take too much memory, made anew when asked for.
type shelf struct {
	scorer *knn.Scorer
	source Matrix
	rows   int
	kept   *knn.Rows // nil: made anew
}

// newShelf reads every row once: it finds the first row that cannot be compared
// and the longest one, and keeps the rows if keep is set.
func newShelf(source Matrix, scorer *knn.Scorer, keep bool, p *pool) (*shelf, error) {
	s := &shelf{scorer: scorer, source: source, rows: source.Rows()}
	if keep {
		rows, err := scorer.Rows(s.rows)
		if err != nil {
			return nil, err
		}
		s.kept = rows
	}
	blocks := (s.rows + readRows - 1) / readRows
	longest, faults := make([]float32, blocks), make([]error, blocks)
	err := p.run(blocks, func(scratch *scratch, block int) error {
		from, to := block*readRows, min((block+1)*readRows, s.rows)
		into, at := s.kept, from
		if !keep {
			into, at = scratch.made, 0
		}
		longest[block], faults[block] = s.fill(scratch, into, at, from, to)
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

// fill makes rows [from, to) into a KNNRows.
func (s *shelf) fill(scratch *scratch, into *knn.Rows, at, from, to int) (longest float32, err error) {
	floats := scratch.floats[:(to-from)*s.source.Dim()]
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

// side gives rows [from, to), at most readRows of them, valid until the next
// call with the same scratch.
func (s *shelf) side(scratch *scratch, from, to int) (knn.Side, error) {
	if s.kept != nil {
		return s.kept.Side(from, to, from), nil
	}
	if _, err := s.fill(scratch, scratch.made, 0, from, to); err != nil {
		return knn.Side{}, err
	}
	return scratch.made.Side(0, to-from, from), nil
}

// gather copies single rows into a KNNRows, for exact scores.
func (s *shelf) gather(scratch *scratch, rows []int32, into *knn.Rows) error {
	for i, row := range rows {
		if s.kept != nil {
			into.CopyFrom(i, s.kept, int(row))
		} else if _, err := s.fill(scratch, into, i, int(row), int(row)+1); err != nil {
			return err
		}
	}
	return nil
}

// run gives any number of rows [from, to); made is the memory for them where rows
// are made anew.
func (s *shelf) run(p *pool, made *knn.Rows, from, to int) (knn.Side, error) {
	if s.kept != nil {
		return s.kept.Side(from, to, from), nil
	}
	err := p.run((to-from+readRows-1)/readRows, func(scratch *scratch, i int) error {
		at := i * readRows
		_, err := s.fill(scratch, made, at, from+at, min(from+at+readRows, to))
		return err
	})
	return made.Side(0, to-from, from), err
}

func (s *shelf) close() {
	if s != nil && s.kept != nil {
		s.kept.Close()
	}
}
