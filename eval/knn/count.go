package knn

/*
#include "kernels.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// TileRows is the most rows of a moving side.
const TileRows = 256

var _ = [1]struct{}{}[TileRows-C.KNN_MOVING_ROWS] // they are equal

// Wanted are items whose ranks are wanted, of a side's rows as queries. Those
// of row i are entries Start[i]-Start[0] … Start[i+1]-Start[0] of the other
// lists, in descending order of score, then ascending of item.
//
// An item ranks before a wanted one if its score is higher, or equal and its
// number smaller than the wanted one's; under a Limit an item of another label
// than the query's has to have a number below that instead.
type Wanted struct {
	Start []int64   // [rows + 1]
	Score []float32 // the wanted items' exact scores
	Item  []int32   // their numbers in the gallery
	Limit []int32   // nil: Item
	Count []int32   // raised by what ranks before them; see Total
	// Label of the side's rows and Other of the opposite side's; nil without Limit.
	Label, Other []int64
}

// check finds lists too short for the kernels.
func (w *Wanted) check(rows, others int) error {
	if len(w.Start) < rows+1 {
		return errors.New("Wanted: Start has too few entries")
	}
	n := w.Start[rows] - w.Start[0]
	if n > int64(min(len(w.Score), len(w.Item), len(w.Count))) || w.Limit != nil && n > int64(len(w.Limit)) {
		return errors.New("Wanted: Start points past the lists")
	}
	if w.Limit != nil && (len(w.Label) < rows || len(w.Other) < others) {
		return errors.New("Wanted: limits need labels")
	}
	return nil
}

func (w *Wanted) c(pin *runtime.Pinner) C.knn_wanted {
	return C.knn_wanted{
		start: (*C.int64_t)(pinned(pin, w.Start)),
		score: (*C.float)(pinned(pin, w.Score)),
		item:  (*C.int32_t)(pinned(pin, w.Item)),
		limit: (*C.int32_t)(pinned(pin, w.Limit)),
		count: (*C.int32_t)(pinned(pin, w.Count)),
		label: (*C.int64_t)(pinned(pin, w.Label)),
		other: (*C.int64_t)(pinned(pin, w.Other)),
	}
}

// lists passes lists of wanted items to C; nil for none.
func lists(pin *runtime.Pinner, list []Wanted) *C.knn_wanted {
	if len(list) == 0 {
		return nil
	}
	c := make([]C.knn_wanted, len(list))
	for i := range list {
		c[i] = list[i].c(pin)
	}
	return &c[0]
}

// NotePlaces counts items that some other program has placed among the wanted
// ones of row i: so many at[p] rank before wanted item p and all after it, and
// not before those ahead of it.
func (w *Wanted) NotePlaces(i int, at []int32) {
	count := w.Count[w.Start[i]-w.Start[0] : w.Start[i+1]-w.Start[0]]
	sum := int32(0)
	for p := range count {
		if sum += at[p]; len(count) > C.KNN_FEW {
			count[p] += at[p] // Total sums up
		} else {
			count[p] += sum
		}
	}
}

// Total turns counts, once all comparisons are done, into the number of items
// that rank before each wanted one.
func (w *Wanted) Total() {
	C.knn_total((*C.int32_t)(unsafe.SliceData(w.Count)), (*C.int64_t)(unsafe.SliceData(w.Start)), C.int64_t(len(w.Start)-1))
}

// Worker holds what one goroutine needs to compare; Close frees it.
type Worker struct {
	scorer *Scorer
	w      *C.knn_worker
}

// Worker returns a worker. All rows must have been made known to the scorer before.
func (s *Scorer) Worker() (*Worker, error) {
	w := C.knn_worker_new(&s.plan)
	if w == nil {
		return nil, errors.New("no memory for a tile of scores")
	}
	return &Worker{s, w}, nil
}

// Close frees the worker's memory.
func (w *Worker) Close() {
	C.knn_worker_free(w.w)
	w.w = nil
}

// Pairs counts pairs of rows by how their scores were computed, and the
// comparisons of screened scores that the exact one had to decide.
type Pairs struct{ Screened, Exact, Settled int64 }

// Add adds what the worker has done to p.
func (w *Worker) Add(p *Pairs) {
	c := C.knn_worker_pairs(w.w)
	p.Screened += int64(c.screened)
	p.Exact += int64(c.exact)
	p.Settled += int64(c.settled)
}

// Count compares a moving side of at most TileRows rows with rows [from, to) of
// a block, from being a multiple of TileRows, and counts for the rows of either
// as queries, with as many lists of wanted items as there are levels of labels;
// nil where a side has no queries. A query's own row, where it is among the other
// side's, counts like any other.
func (w *Worker) Count(moving Side, fixed *Block, from, to int, byMoving, byFixed []Wanted) error {
	if moving.Len() > TileRows || from < 0 || from%TileRows != 0 || to > fixed.Len() {
		return fmt.Errorf("Worker.Count: %d moving rows, rows %d to %d of %d fixed ones", moving.Len(), from, to, fixed.Len())
	}
	for i := range byMoving {
		if err := byMoving[i].check(moving.Len(), fixed.Len()); err != nil {
			return err
		}
	}
	for i := range byFixed {
		if err := byFixed[i].check(fixed.Len(), moving.Len()); err != nil {
			return err
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	m, f := lists(&pin, byMoving), lists(&pin, byFixed)
	C.knn_count(w.w, &w.scorer.plan, &moving.c, &fixed.side.c, C.int64_t(from), C.int64_t(to), m, f, C.int(max(len(byMoving), len(byFixed))))
	return nil
}

// CountPairs counts single pairs of two sides, by their exact scores, for the
// rows of queries: places are i·len(items) + j for row i of queries and row j of
// items. A query is to be counted for by one goroutine at a time.
func (s *Scorer) CountPairs(queries, items Side, wanted *Wanted, places []int64) error {
	if err := wanted.check(queries.Len(), items.Len()); err != nil {
		return err
	}
	if err := checkPlaces(queries, items, places); err != nil {
		return err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	w := wanted.c(&pin)
	C.knn_count_pairs(&s.plan, &queries.c, &items.c, &w, (*C.int64_t)(pinned(&pin, places)), C.int64_t(len(places)))
	return nil
}

func checkPlaces(queries, items Side, places []int64) error {
	for _, p := range places {
		if p < 0 || p >= int64(queries.Len())*int64(items.Len()) {
			return fmt.Errorf("place %d of %d x %d", p, queries.Len(), items.Len())
		}
	}
	return nil
}
