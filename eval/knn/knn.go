// Package knn is the kernels of exact search.
package knn

/*
#cgo CXXFLAGS: -std=c++17 -DGOTCH_COMPAT_H
#include <stdlib.h>
#include "kernels.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"
)

// Scorer compares rows of embeddings with each other on the CPU, tile by tile, and
// keeps of a tile only what was asked for: how many items rank before wanted
// ones ([Worker.Count]) or the best k ([Worker.Search]).
//
// The score of two rows is their product (of rows scaled to length 1) or minus
// their squared distance, in float32 with one fixed order of float32 fused
// multiply-adds. So it depends on the two rows alone: not on their places, the
// tile, the number of threads or the instructions that the processor has, and
// equal rows have equal scores.
//
// Where the processor multiplies tiles of 8-bit integers (AMX), a tile of scores
// is first computed with rows rounded to 16 bits. The exact score lies within a
// proven distance of that, which decides nearly all comparisons; the exact
// score decides the rest. What comes out is the same.
type Scorer struct {
	plan C.knn_plan
	dim  int
}

// ISA is a set of instructions, each with those before it.
type ISA int

// The levels; Any is the best that the machine has.
const (
	Any ISA = iota - 1
	Baseline
	AVX2
	AVX512
	AMX // tiles of integers
)

func (l ISA) String() string {
	if l < Baseline || l > AMX {
		return "any"
	}
	return [...]string{"baseline", "avx2", "avx512", "amx_int8"}[l]
}

// Processor is the best level of this machine.
func Processor() ISA { return ISA(C.knn_processor()) }

// Ties says how an irrelevant item stands to a wanted one of the same score.
type Ties int

// The rules for ties. Relevant items go by index under every rule.
const (
	ByIndex     Ties = C.KNN_BY_INDEX
	Pessimistic Ties = C.KNN_PESSIMISTIC
	Optimistic  Ties = C.KNN_OPTIMISTIC
)

// Options say what the score is and how it may be computed.
type Options struct {
	Dim   int  // floats a row
	L2    bool // minus the squared distance instead of the cosine
	Ties  Ties //
	Level ISA  // at most; Baseline when not set
	Exact bool // float32 alone, no integers
}

// TileRows is the most rows of a moving side.
const TileRows = C.KNN_MOVING_ROWS

// New prepares comparisons.
func New(o Options) *Scorer {
	level := min(o.Level, Processor())
	if o.Level == Any {
		level = Processor()
	}
	k := &Scorer{dim: o.Dim}
	k.plan.width = C.int((o.Dim + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND)
	k.plan.l2 = cbool(o.L2)
	k.plan.level = C.int(level)
	k.plan.ties = C.int(o.Ties)
	k.plan.screen = cbool(!o.Exact && level >= AMX)
	return k
}

// Level is the set of instructions in use.
func (k *Scorer) Level() ISA { return ISA(k.plan.level) }

// Screens says whether tiles are computed in integers first.
func (k *Scorer) Screens() bool { return k.plan.screen != 0 }

// Extend makes it known that there are rows of a length (see [Rows.Fill]).
// All rows that are compared must have been made known before.
func (k *Scorer) Extend(longest float32) { k.plan.longest = max(k.plan.longest, C.float(longest)) }

// Rows is memory for rows in the form in which they are compared. It is not
// Go's: Close frees it.
type Rows struct {
	knn      *Scorer
	side     C.knn_side
	capacity int
}

// BytesPerRow is what a row takes in a Rows.
func (k *Scorer) BytesPerRow() int64 {
	n := int64(k.plan.width) * 4
	if k.Screens() {
		n += int64(k.plan.width)*2 + int64(unsafe.Sizeof(C.knn_row{}))
	}
	return n
}

// Rows returns memory for so many rows.
func (k *Scorer) Rows(capacity int) (*Rows, error) {
	r := &Rows{knn: k, capacity: capacity}
	rows := C.int64_t((capacity + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND)
	elements := rows * C.int64_t(k.plan.width)
	ok := allocate(&r.side.x, elements)
	if k.Screens() {
		ok = ok && allocate(&r.side.q, 2*elements) && allocate(&r.side.row, rows)
	}
	if !ok {
		r.Close()
		return nil, fmt.Errorf("no memory for %d rows of %d floats (%d bytes)", capacity, k.dim, int64(rows)*k.BytesPerRow())
	}
	return r, nil
}

func allocate[T any](p **T, elements C.int64_t) bool {
	*p = (*T)(C.knn_allocate(elements * C.int64_t(unsafe.Sizeof(**p))))
	return *p != nil
}

func release[T any](p **T) {
	C.free(unsafe.Pointer(*p))
	*p = nil
}

// Close frees the memory; sides of it become invalid.
func (r *Rows) Close() {
	release(&r.side.x)
	release(&r.side.q)
	release(&r.side.row)
}

// BadRow is the error about a row that has no score.
type BadRow struct {
	Row    int // of those given to Fill
	Reason string
}

func (e *BadRow) Error() string { return fmt.Sprintf("row %d %s", e.Row, e.Reason) }

// Fill puts whole rows, [n, dim], at row at and on, and returns the length of
// the longest. A row with NaN or infinity, of length 0 (cosine) or too long
// to square (L2) is a *BadRow.
func (r *Rows) Fill(at int, rows []float32) (longest float32, err error) {
	n := len(rows) / r.knn.dim
	if at < 0 || at+n > r.capacity || n*r.knn.dim != len(rows) {
		return 0, fmt.Errorf("Rows.Fill: %d floats at row %d of %d", len(rows), at, r.capacity)
	}
	var long C.float
	var why C.int
	s := r.knn.shift(r.side, at)
	bad := C.knn_prepare(&r.knn.plan, (*C.float)(unsafe.SliceData(rows)), C.int64_t(n), C.int(r.knn.dim), s.x, s.q, s.row, &long, &why)
	switch why {
	case C.KNN_NOT_FINITE:
		return 0, &BadRow{int(bad), "has a NaN, an infinity or a number that float32 cannot hold"}
	case C.KNN_ZERO_ROW:
		return 0, &BadRow{int(bad), "is all zeros, so it has no direction and no cosine"}
	case C.KNN_TOO_LONG:
		return 0, &BadRow{int(bad), "is longer than 2^60: its squared distances overflow float32"}
	}
	return float32(long), nil
}

func (k *Scorer) shift(s C.knn_side, rows int) C.knn_side {
	move(&s.x, rows*int(k.plan.width))
	move(&s.q, 2*rows*int(k.plan.width))
	move(&s.row, rows)
	return s
}

func move[T any](p **T, elements int) {
	if *p != nil {
		*p = (*T)(unsafe.Add(unsafe.Pointer(*p), elements*int(unsafe.Sizeof(**p))))
	}
}

// Read copies row i, as it is compared, into row.
func (r *Rows) Read(i int, row []float32) {
	s := r.knn.shift(r.side, i)
	copy(row, unsafe.Slice((*float32)(unsafe.Pointer(s.x)), r.knn.dim))
}

// CopyFrom copies the floats of row from of another Rows into row to; such
// rows are for [Scorer.Scores] only.
func (r *Rows) CopyFrom(to int, other *Rows, from int) {
	width := int(r.knn.plan.width)
	dst, src := r.knn.shift(r.side, to), other.knn.shift(other.side, from)
	copy(unsafe.Slice((*float32)(unsafe.Pointer(dst.x)), width), unsafe.Slice((*float32)(unsafe.Pointer(src.x)), width))
}

// Side is a run of rows, as one side of a comparison.
type Side struct{ c C.knn_side }

// Len is the number of rows.
func (s Side) Len() int { return int(s.c.rows) }

// Side is rows [from, to), of which the first has a number in its whole set.
func (r *Rows) Side(from, to, first int) Side {
	s := r.knn.shift(r.side, from)
	s.first, s.rows = C.int64_t(first), C.int64_t(to-from)
	return Side{s}
}

// Scores writes the exact scores of one side's rows with another's, [a, b].
func (k *Scorer) Scores(a, b Side, scores []float32) error {
	if a.Len()*b.Len() > len(scores) {
		return fmt.Errorf("Scorer.Scores: room for %d of %d x %d scores", len(scores), a.Len(), b.Len())
	}
	C.knn_exact(&k.plan, a.c.x, a.c.rows, b.c.x, b.c.rows, (*C.float)(unsafe.SliceData(scores)))
	return nil
}

// Block is a fixed side: rows laid out once to be compared with many.
type Block struct {
	knn      *Scorer
	capacity int
	packed   *C.int8_t
	Side
}

// Block returns memory for a fixed side of so many rows.
func (k *Scorer) Block(capacity int) (*Block, error) {
	b := &Block{knn: k, capacity: capacity}
	elements := C.int64_t((capacity + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND * int(k.plan.width))
	if k.Screens() && !allocate(&b.packed, 2*elements) {
		return nil, fmt.Errorf("no memory for a block of %d rows of %d floats", capacity, k.dim)
	}
	return b, nil
}

// Set makes rows the fixed side; they must live as long as it is used.
func (b *Block) Set(s Side) error {
	if s.Len() > b.capacity {
		return fmt.Errorf("Block.Set: %d rows in a block for %d", s.Len(), b.capacity)
	}
	b.Side = s
	if b.packed != nil {
		C.knn_pack(&b.knn.plan, s.c.q, s.c.rows, b.packed)
		b.c.packed = b.packed
	}
	return nil
}

// Close frees the block's memory.
func (b *Block) Close() { release(&b.packed) }

// Wanted are items whose ranks are wanted, of a side's rows as queries.
// Those of row i are entries Start[i]-Start[0] … Start[i+1]-Start[0] of Score
// and Item, in descending order of score, then ascending of item.
type Wanted struct {
	Start []int64   // [rows + 1]
	Score []float32 // their exact scores
	Item  []int32   // their numbers in the gallery
	Count []int32   // raised by what ranks before them; see Total
	// Label of the side's rows and Other of the opposite side's say which items
	// are relevant; both nil where ties go by index.
	Label, Other []int64
}

func (w *Wanted) check(rows, others int, ties C.int) error {
	if len(w.Start) < rows+1 {
		return errors.New("Wanted: Start has too few entries")
	}
	n := w.Start[rows] - w.Start[0]
	if n > int64(min(len(w.Score), len(w.Item), len(w.Count))) {
		return errors.New("Wanted: Start points past the lists")
	}
	if ties != C.KNN_BY_INDEX && (len(w.Label) < rows || len(w.Other) < others) {
		return errors.New("Wanted: this rule for ties needs labels")
	}
	return nil
}

// pinned passes lists of wanted items to C; nil for none.
func pinned(pin *runtime.Pinner, list []Wanted) *C.knn_wanted {
	if len(list) == 0 {
		return nil
	}
	c := make([]C.knn_wanted, len(list))
	for i := range list {
		w := &list[i]
		c[i].start = (*C.int64_t)(pinSlice(pin, w.Start))
		c[i].score = (*C.float)(pinSlice(pin, w.Score))
		c[i].item = (*C.int32_t)(pinSlice(pin, w.Item))
		c[i].count = (*C.int32_t)(pinSlice(pin, w.Count))
		c[i].label = (*C.int64_t)(pinSlice(pin, w.Label))
		c[i].other = (*C.int64_t)(pinSlice(pin, w.Other))
	}
	return &c[0]
}

func pinSlice[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(s))
	if p != nil && cap(s) > 0 {
		pin.Pin(p)
	}
	return p
}

// Worker holds what one goroutine needs to compare; Close frees it.
type Worker struct {
	knn *Scorer
	w   *C.knn_worker
}

// Worker returns a worker. All rows must have been made known to k before.
func (k *Scorer) Worker() (*Worker, error) {
	w := C.knn_worker_new(&k.plan)
	if w == nil {
		return nil, errors.New("no memory for a tile of scores")
	}
	return &Worker{k, w}, nil
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

// Count compares a moving side of at most TileRows rows with rows
// [from, to) of a block, from being a multiple of TileRows, and counts for
// the rows of either as queries, at every level of wanted items; nil where a side has no queries. A query's own
// row, where it is among the other side's, counts like any other.
func (w *Worker) Count(moving Side, fixed *Block, from, to int, byMoving, byFixed []Wanted) error {
	if moving.Len() > TileRows || from < 0 || from%TileRows != 0 || to > fixed.Len() {
		return fmt.Errorf("Worker.Count: %d moving rows, rows %d to %d of %d fixed ones", moving.Len(), from, to, fixed.Len())
	}
	for i := range byMoving {
		if err := byMoving[i].check(moving.Len(), fixed.Len(), w.knn.plan.ties); err != nil {
			return err
		}
	}
	for i := range byFixed {
		if err := byFixed[i].check(fixed.Len(), moving.Len(), w.knn.plan.ties); err != nil {
			return err
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	m, f := pinned(&pin, byMoving), pinned(&pin, byFixed)
	C.knn_count(w.w, &w.knn.plan, &moving.c, &fixed.c, C.int64_t(from), C.int64_t(to), m, f, C.int(max(len(byMoving), len(byFixed))))
	return nil
}

// Total turns counts, once all comparisons are done, into the number of
// gallery items that rank before each wanted one.
func Total(w Wanted) {
	rows := len(w.Start) - 1
	C.knn_total((*C.int32_t)(unsafe.SliceData(w.Count)), (*C.int64_t)(unsafe.SliceData(w.Start)), C.int64_t(rows))
}

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

// NewBest begins collections of k items for so many queries. skipOwn: query
// i is gallery item i, which is not to be found.
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

func (b *Best) c(pin *runtime.Pinner, row int) *C.knn_best {
	c := &C.knn_best{k: C.int(b.k), room: C.int(b.room), skip_own: cbool(b.skipOwn)}
	c.found = (*C.knn_found)(pinSlice(pin, b.found[row*b.room:]))
	c.worst = (*C.knn_found)(pinSlice(pin, b.worst[row:]))
	c.filled = (*C.int32_t)(pinSlice(pin, b.filled[row:]))
	return c
}

// Search offers every row of a block to the queries of a moving side, whose
// first is query row of the collections.
func (w *Worker) Search(moving Side, fixed *Block, best *Best, row int) error {
	if moving.Len() > TileRows || row < 0 || row+moving.Len() > best.rows {
		return fmt.Errorf("Worker.Search: %d moving rows at query %d of %d", moving.Len(), row, best.rows)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_search(w.w, &w.knn.plan, &moving.c, &fixed.c, best.c(&pin, row))
	return nil
}

// K is how many items are collected.
func (b *Best) K() int { return b.k }

// Worst is a score for each of n queries, from query row on, below which no item
// is among the k best: minus infinity as long as k have not been offered.
func (b *Best) Worst(row, n int) []float32 {
	scores := make([]float32, n)
	for i := range scores {
		scores[i] = b.worst[row+i].Score
	}
	return scores
}

// Offer offers single pairs of two sides, by their exact scores: places are
// i·len(items) + j for row i of queries, whose first is query row of the
// collections, and row j of items. A query is to be offered to by one goroutine
// at a time.
func (b *Best) Offer(k *Scorer, queries, items Side, row int, places []int64) error {
	if row < 0 || row+queries.Len() > b.rows {
		return fmt.Errorf("Best.Offer: %d rows at query %d of %d", queries.Len(), row, b.rows)
	}
	for _, p := range places {
		if p < 0 || p >= int64(queries.Len())*int64(items.Len()) {
			return fmt.Errorf("Best.Offer: place %d of %d x %d", p, queries.Len(), items.Len())
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_offer(&k.plan, &queries.c, &items.c, b.c(&pin, row), (*C.int64_t)(pinSlice(&pin, places)), C.int64_t(len(places)))
	return nil
}

// Sorted returns the best items of a query, best first: k of them, or as many
// as were offered. The slice is the collection's own.
func (b *Best) Sorted(query int) []Neighbour {
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_sort(b.c(&pin, query), 1)
	return b.found[query*b.room:][:min(b.k, int(b.filled[query]))]
}

// Floats is the side's rows as they are compared, [rows, width]: the embedding,
// and zeros up to a width of its own. The slice is the side's memory.
func (s Side) Floats(k *Scorer) (rows []float32, width int) {
	width = int(k.plan.width)
	return unsafe.Slice((*float32)(unsafe.Pointer(s.c.x)), s.Len()*width), width
}

// Longest is the length that no row known to k exceeds.
func (k *Scorer) Longest() float32 { return float32(k.plan.longest) }

// Pair is the exact score of a side's row i and another's row j.
func (k *Scorer) Pair(a Side, i int, b Side, j int) float32 {
	var score C.float
	x, y := k.shift(a.c, i), k.shift(b.c, j)
	C.knn_exact(&k.plan, x.x, 1, y.x, 1, &score)
	return float32(score)
}

func cbool(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
