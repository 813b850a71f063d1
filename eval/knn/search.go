package knn

/*
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"math"
	"runtime"
)

// Neighbour is one item of a search's result.
type Neighbour struct {
	Score float32
	Item  int32 // its number in the gallery
}

// Best collects the k best items of each of some queries.
type Best struct {
	k, room, rows int
	skipOwn       bool
	found, worst  []Neighbour
	filled        []int32
}

// Room is how many items a query's collection holds on the way to its k best.
func Room(k int) int { return k + max(k, 64) }

// NewBest begins collections of k items for so many queries. skipOwn: query i
// is gallery item i, which is not to be found.
func NewBest(k, queries int, skipOwn bool) *Best {
	b := &Best{k: k, room: Room(k), rows: queries, skipOwn: skipOwn}
	b.found = make([]Neighbour, queries*b.room)
	b.worst = make([]Neighbour, queries)
	b.filled = make([]int32, queries)
	b.Reset()
	return b
}

// Reset empties all collections.
func (b *Best) Reset() {
	clear(b.filled)
	for i := range b.worst {
		b.worst[i] = Neighbour{float32(math.Inf(-1)), math.MaxInt32}
	}
}

// K is how many items are collected.
func (b *Best) K() int { return b.k }

func (b *Best) c(pin *runtime.Pinner, row int) *C.knn_best {
	return &C.knn_best{
		found:    (*C.knn_found)(pinned(pin, b.found[row*b.room:])),
		filled:   (*C.int32_t)(pinned(pin, b.filled[row:])),
		worst:    (*C.knn_found)(pinned(pin, b.worst[row:])),
		k:        C.int(b.k),
		room:     C.int(b.room),
		skip_own: cbool(b.skipOwn),
	}
}

// Search offers every row of a block to the queries of a moving side, whose
// first is query row of the collections.
func (w *Worker) Search(moving Side, fixed *Block, best *Best, row int) error {
	if moving.Len() > TileRows || row < 0 || row+moving.Len() > best.rows {
		return fmt.Errorf("Worker.Search: %d moving rows at query %d of %d", moving.Len(), row, best.rows)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_search(w.w, &w.scorer.plan, &moving.c, &fixed.side.c, best.c(&pin, row))
	return nil
}

// Offer offers single pairs of two sides, by their exact scores: places are
// i·len(items) + j for row i of queries, whose first is query row of the
// collections, and row j of items. A query is to be offered to by one goroutine
// at a time.
func (b *Best) Offer(s *Scorer, queries, items Side, row int, places []int64) error {
	if row < 0 || row+queries.Len() > b.rows {
		return fmt.Errorf("Best.Offer: %d rows at query %d of %d", queries.Len(), row, b.rows)
	}
	if err := checkPlaces(queries, items, places); err != nil {
		return err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_offer(&s.plan, &queries.c, &items.c, b.c(&pin, row), (*C.int64_t)(pinned(&pin, places)), C.int64_t(len(places)))
	return nil
}

// Worst is a score for each of n queries, from query row on, below which no item
// is among the k best: minus infinity as long as k have not been offered.
func (b *Best) Worst(row, n int) []float32 {
	scores := make([]float32, n)
	for i := range scores {
		scores[i] = b.worst[row+i].Score
	}
	return scores
}

// Sorted returns the best items of a query, best first: k of them, or as many
// as were offered. The slice is the collection's own.
func (b *Best) Sorted(query int) []Neighbour {
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_sort(b.c(&pin, query), 1)
	return b.found[query*b.room:][:min(b.k, int(b.filled[query]))]
}
