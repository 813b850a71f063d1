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
	workers []*worker
}

// worker is the memory of one goroutine.
type worker struct {
	floats []float32   // readRows rows as the source has them
	rows   *knn.Rows   // readRows rows in the form in which they are compared
	few    *knn.Rows   // fewRows likewise
	scores []float32   // [fewRows, readRows]
	keys   []uint64    // see rankedKey
	counts [][]int32   // what it has counted for the fixed rows, by level
	tiles  *knn.Worker // compares
}

const (
	readRows = knn.TileRows // rows converted or compared at a time
	fewRows  = 64           // queries whose wanted items are scored at a time
)

// newPool makes the memory of so many goroutines; close frees it.
func newPool(ctx context.Context, threads int, scorer *knn.Scorer, dim int) (*pool, error) {
	p := &pool{ctx: ctx}
	for range threads {
		w := &worker{floats: make([]float32, readRows*dim), scores: make([]float32, fewRows*readRows)}
		p.workers = append(p.workers, w)
		var err error
		if w.rows, err = scorer.Rows(readRows); err == nil {
			if w.few, err = scorer.Rows(fewRows); err == nil {
				w.tiles, err = scorer.Worker()
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
	for _, w := range p.workers {
		if w.rows != nil {
			w.rows.Close()
		}
		if w.few != nil {
			w.few.Close()
		}
		if w.tiles != nil {
			w.tiles.Close()
		}
	}
}

// run calls task for 0 … n-1, each once, in any order, until one fails or the
// context ends.
func (p *pool) run(n int, task func(w *worker, i int) error) error {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wait sync.WaitGroup
	for _, w := range p.workers[:min(len(p.workers), n)] {
		wait.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1) - 1)
				if i >= n {
					return
				}
				if err := task(w, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// runChunks calls task for [0, size), [size, 2 size) … up to n, as run does.
func (p *pool) runChunks(n, size int, task func(w *worker, from, to int) error) error {
	return p.run((n+size-1)/size, func(w *worker, i int) error {
		return task(w, i*size, min((i+1)*size, n))
	})
}
