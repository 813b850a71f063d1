package eval

import (
	"context"
	"sync"
	"sync/atomic"

	"roadmap/eval/knn"
)

// pool shares work among goroutines, each with memory of its own.
type pool struct {
	ctx     context.Context
	workers []*scratch
}

// scratch is the memory of one goroutine.
type scratch struct {
	floats  []float32 // readRows rows as the source has them
	made    *knn.Rows // readRows rows in the form in which they are compared
	few     *knn.Rows // fewRows likewise
	scores  []float32 // [fewRows, readRows]
	keys    []uint64  // see rankedKey
	partial [][]int32 // counts for the fixed rows, by level
	tiles   *knn.Worker
}

const (
	readRows = knn.TileRows // rows converted or compared at a time
	fewRows  = 64           // queries whose wanted items are scored at a time
)

// newPool makes the memory of so many goroutines; close frees it.
func newPool(ctx context.Context, threads int, scorer *knn.Scorer, dim int) (*pool, error) {
	p := &pool{ctx: ctx}
	for range threads {
		s := &scratch{floats: make([]float32, readRows*dim), scores: make([]float32, fewRows*readRows)}
		p.workers = append(p.workers, s)
		var err error
		if s.made, err = scorer.Rows(readRows); err == nil {
			if s.few, err = scorer.Rows(fewRows); err == nil {
				s.tiles, err = scorer.Worker()
			}
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *pool) close() {
	for _, s := range p.workers {
		if s.made != nil {
			s.made.Close()
		}
		if s.few != nil {
			s.few.Close()
		}
		if s.tiles != nil {
			s.tiles.Close()
		}
	}
}

// run calls task for 0 … n-1, each once, in any order, until one fails or the
// context ends.
func (p *pool) run(n int, task func(s *scratch, i int) error) error {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wait sync.WaitGroup
	for _, s := range p.workers[:min(len(p.workers), n)] {
		wait.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= n {
					return
				}
				if err := task(s, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}
