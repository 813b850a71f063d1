package torch

/*
#include <stdlib.h>
#include "knn_kernels.h"
#include "knn_product.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"
)

// KNN compares rows of embeddings with each other on the CPU, tile by tile, and
// keeps of a tile only what was asked for: how many items rank before wanted
// ones ([KNNWorker.Count]) or the best k ([KNNWorker.Search]).
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
type KNN struct {
	plan C.knn_plan
	dim  int
}

// KNNLevel is a set of instructions, each with those before it.
type KNNLevel int

// The levels; KNNAny is the best that the machine has.
const (
	KNNAny KNNLevel = iota - 1
	KNNBaseline
	KNNAVX2
	KNNAVX512
	KNNAMX // tiles of integers
)

func (l KNNLevel) String() string {
	if l < KNNBaseline || l > KNNAMX {
		return "any"
	}
	return [...]string{"baseline", "avx2", "avx512", "amx_int8"}[l]
}

// KNNProcessor is the best level of this machine.
func KNNProcessor() KNNLevel { return KNNLevel(C.knn_processor()) }

// KNNTies says how an irrelevant item stands to a wanted one of the same score.
type KNNTies int

// The rules for ties. Relevant items go by index under every rule.
const (
	KNNByIndex     KNNTies = C.KNN_BY_INDEX
	KNNPessimistic KNNTies = C.KNN_PESSIMISTIC
	KNNOptimistic  KNNTies = C.KNN_OPTIMISTIC
)

// KNNOptions say what the score is and how it may be computed.
type KNNOptions struct {
	Dim   int      // floats a row
	L2    bool     // minus the squared distance instead of the cosine
	Ties  KNNTies  //
	Level KNNLevel // at most; KNNBaseline when not set
	Exact bool     // float32 alone, no integers
}

// KNNMovingRows is the most rows of a moving side.
const KNNMovingRows = C.KNN_MOVING_ROWS

// NewKNN prepares comparisons.
func NewKNN(o KNNOptions) *KNN {
	level := min(o.Level, KNNProcessor())
	if o.Level == KNNAny {
		level = KNNProcessor()
	}
	k := &KNN{dim: o.Dim}
	k.plan.width = C.int((o.Dim + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND)
	k.plan.l2 = cbool(o.L2)
	k.plan.level = C.int(level)
	k.plan.ties = C.int(o.Ties)
	k.plan.screen = cbool(!o.Exact && level >= KNNAMX)
	return k
}

// Level is the set of instructions in use.
func (k *KNN) Level() KNNLevel { return KNNLevel(k.plan.level) }

// Screens says whether tiles are computed in integers first.
func (k *KNN) Screens() bool { return k.plan.screen != 0 }

// Extend makes it known that there are rows of a length (see [KNNRows.Fill]).
// All rows that are compared must have been made known before.
func (k *KNN) Extend(longest float32) { k.plan.longest = max(k.plan.longest, C.float(longest)) }

// KNNRows is memory for rows in the form in which they are compared. It is not
// Go's: Close frees it.
type KNNRows struct {
	knn      *KNN
	side     C.knn_side
	capacity int
}

// BytesPerRow is what a row takes in a KNNRows.
func (k *KNN) BytesPerRow() int64 {
	n := int64(k.plan.width) * 4
	if k.Screens() {
		n += int64(k.plan.width)*2 + int64(unsafe.Sizeof(C.knn_row{}))
	}
	return n
}

// Rows returns memory for so many rows.
func (k *KNN) Rows(capacity int) (*KNNRows, error) {
	r := &KNNRows{knn: k, capacity: capacity}
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
func (r *KNNRows) Close() {
	release(&r.side.x)
	release(&r.side.q)
	release(&r.side.row)
}

// KNNBadRow is the error about a row that has no score.
type KNNBadRow struct {
	Row    int // of those given to Fill
	Reason string
}

func (e *KNNBadRow) Error() string { return fmt.Sprintf("row %d %s", e.Row, e.Reason) }

// Fill puts whole rows, [n, dim], at row at and on, and returns the length of
// the longest. A row with NaN or infinity, of length 0 (cosine) or too long
// to square (L2) is a *KNNBadRow.
func (r *KNNRows) Fill(at int, rows []float32) (longest float32, err error) {
	n := len(rows) / r.knn.dim
	if at < 0 || at+n > r.capacity || n*r.knn.dim != len(rows) {
		return 0, fmt.Errorf("KNNRows.Fill: %d floats at row %d of %d", len(rows), at, r.capacity)
	}
	var long C.float
	var why C.int
	s := r.knn.shift(r.side, at)
	bad := C.knn_prepare(&r.knn.plan, (*C.float)(unsafe.SliceData(rows)), C.int64_t(n), C.int(r.knn.dim), s.x, s.q, s.row, &long, &why)
	switch why {
	case C.KNN_NOT_FINITE:
		return 0, &KNNBadRow{int(bad), "has a NaN, an infinity or a number that float32 cannot hold"}
	case C.KNN_ZERO_ROW:
		return 0, &KNNBadRow{int(bad), "is all zeros, so it has no direction and no cosine"}
	case C.KNN_TOO_LONG:
		return 0, &KNNBadRow{int(bad), "is longer than 2^60: its squared distances overflow float32"}
	}
	return float32(long), nil
}

func (k *KNN) shift(s C.knn_side, rows int) C.knn_side {
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
func (r *KNNRows) Read(i int, row []float32) {
	s := r.knn.shift(r.side, i)
	copy(row, unsafe.Slice((*float32)(unsafe.Pointer(s.x)), r.knn.dim))
}

// CopyFrom copies the floats of row from of another KNNRows into row to; such
// rows are for [KNN.Scores] only.
func (r *KNNRows) CopyFrom(to int, other *KNNRows, from int) {
	width := int(r.knn.plan.width)
	dst, src := r.knn.shift(r.side, to), other.knn.shift(other.side, from)
	copy(unsafe.Slice((*float32)(unsafe.Pointer(dst.x)), width), unsafe.Slice((*float32)(unsafe.Pointer(src.x)), width))
}

// KNNSide is a run of rows, as one side of a comparison.
type KNNSide struct{ c C.knn_side }

// Len is the number of rows.
func (s KNNSide) Len() int { return int(s.c.rows) }

// Side is rows [from, to), of which the first has a number in its whole set.
func (r *KNNRows) Side(from, to, first int) KNNSide {
	s := r.knn.shift(r.side, from)
	s.first, s.rows = C.int64_t(first), C.int64_t(to-from)
	return KNNSide{s}
}

// Scores writes the exact scores of one side's rows with another's, [a, b].
func (k *KNN) Scores(a, b KNNSide, scores []float32) error {
	if a.Len()*b.Len() > len(scores) {
		return fmt.Errorf("KNN.Scores: room for %d of %d x %d scores", len(scores), a.Len(), b.Len())
	}
	C.knn_exact(&k.plan, a.c.x, a.c.rows, b.c.x, b.c.rows, (*C.float)(unsafe.SliceData(scores)))
	return nil
}

// KNNBlock is a fixed side: rows laid out once to be compared with many.
type KNNBlock struct {
	knn      *KNN
	capacity int
	packed   *C.int8_t
	KNNSide
}

// Block returns memory for a fixed side of so many rows.
func (k *KNN) Block(capacity int) (*KNNBlock, error) {
	b := &KNNBlock{knn: k, capacity: capacity}
	elements := C.int64_t((capacity + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND * int(k.plan.width))
	if k.Screens() && !allocate(&b.packed, 2*elements) {
		return nil, fmt.Errorf("no memory for a block of %d rows of %d floats", capacity, k.dim)
	}
	return b, nil
}

// Set makes rows the fixed side; they must live as long as it is used.
func (b *KNNBlock) Set(s KNNSide) error {
	if s.Len() > b.capacity {
		return fmt.Errorf("KNNBlock.Set: %d rows in a block for %d", s.Len(), b.capacity)
	}
	b.KNNSide = s
	if b.packed != nil {
		C.knn_pack(&b.knn.plan, s.c.q, s.c.rows, b.packed)
		b.c.packed = b.packed
	}
	return nil
}

// Close frees the block's memory.
func (b *KNNBlock) Close() { release(&b.packed) }

// KNNWanted are items whose ranks are wanted, of a side's rows as queries.
// Those of row i are entries Start[i]-Start[0] … Start[i+1]-Start[0] of Score
// and Item, in descending order of score, then ascending of item.
type KNNWanted struct {
	Start []int64   // [rows + 1]
	Score []float32 // their exact scores
	Item  []int32   // their numbers in the gallery
	Count []int32   // raised by what ranks before them; see KNNTotal
	// Label of the side's rows and Other of the opposite side's say which items
	// are relevant; both nil where ties go by index.
	Label, Other []int64
}

func (w *KNNWanted) check(rows, others int, ties C.int) error {
	if len(w.Start) < rows+1 {
		return errors.New("KNNWanted: Start has too few entries")
	}
	n := w.Start[rows] - w.Start[0]
	if n > int64(min(len(w.Score), len(w.Item), len(w.Count))) {
		return errors.New("KNNWanted: Start points past the lists")
	}
	if ties != C.KNN_BY_INDEX && (len(w.Label) < rows || len(w.Other) < others) {
		return errors.New("KNNWanted: this rule for ties needs labels")
	}
	return nil
}

// pinned passes lists of wanted items to C; nil for none.
func pinned(pin *runtime.Pinner, list []KNNWanted) *C.knn_wanted {
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

// KNNWorker holds what one goroutine needs to compare; Close frees it.
type KNNWorker struct {
	knn *KNN
	w   *C.knn_worker
}

// Worker returns a worker. All rows must have been made known to k before.
func (k *KNN) Worker() (*KNNWorker, error) {
	w := C.knn_worker_new(&k.plan)
	if w == nil {
		return nil, errors.New("no memory for a tile of scores")
	}
	return &KNNWorker{k, w}, nil
}

// Close frees the worker's memory.
func (w *KNNWorker) Close() {
	C.knn_worker_free(w.w)
	w.w = nil
}

// KNNPairs counts pairs of rows by how their scores were computed, and the
// comparisons of screened scores that the exact one had to decide.
type KNNPairs struct{ Screened, Exact, Settled int64 }

// Add adds what the worker has done to p.
func (w *KNNWorker) Add(p *KNNPairs) {
	c := C.knn_worker_pairs(w.w)
	p.Screened += int64(c.screened)
	p.Exact += int64(c.exact)
	p.Settled += int64(c.settled)
}

// Count compares a moving side of at most KNNMovingRows rows with rows
// [from, to) of a block, from being a multiple of KNNMovingRows, and counts for
// the rows of either as queries, at every level of wanted items; nil where a side has no queries. A query's own
// row, where it is among the other side's, counts like any other.
func (w *KNNWorker) Count(moving KNNSide, fixed *KNNBlock, from, to int, byMoving, byFixed []KNNWanted) error {
	if moving.Len() > KNNMovingRows || from < 0 || from%KNNMovingRows != 0 || to > fixed.Len() {
		return fmt.Errorf("KNNWorker.Count: %d moving rows, rows %d to %d of %d fixed ones", moving.Len(), from, to, fixed.Len())
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

// KNNTotal turns counts, once all comparisons are done, into the number of
// gallery items that rank before each wanted one.
func KNNTotal(w KNNWanted) {
	rows := len(w.Start) - 1
	C.knn_total((*C.int32_t)(unsafe.SliceData(w.Count)), (*C.int64_t)(unsafe.SliceData(w.Start)), C.int64_t(rows))
}

// KNNFound is one item of a search's result.
type KNNFound struct {
	Score float32
	Item  int32 // its number in the gallery
}

// KNNBest collects the k best items of each of some queries.
type KNNBest struct {
	k, room, rows int
	skipOwn       bool
	found, worst  []KNNFound
	filled        []int32
}

// KNNRoom is how many items a query's collection holds on the way to its k best.
func KNNRoom(k int) int { return k + max(k, 64) }

// NewKNNBest begins collections of k items for so many queries. skipOwn: query
// i is gallery item i, which is not to be found.
func NewKNNBest(k, queries int, skipOwn bool) *KNNBest {
	b := &KNNBest{k: k, room: KNNRoom(k), rows: queries, skipOwn: skipOwn}
	b.found = make([]KNNFound, queries*b.room)
	b.worst = make([]KNNFound, queries)
	b.filled = make([]int32, queries)
	b.Reset()
	return b
}

// Reset empties all collections.
func (b *KNNBest) Reset() {
	clear(b.filled)
	for i := range b.worst {
		b.worst[i] = KNNFound{float32(math.Inf(-1)), math.MaxInt32}
	}
}

func (b *KNNBest) c(pin *runtime.Pinner, row int) *C.knn_best {
	c := &C.knn_best{k: C.int(b.k), room: C.int(b.room), skip_own: cbool(b.skipOwn)}
	c.found = (*C.knn_found)(pinSlice(pin, b.found[row*b.room:]))
	c.worst = (*C.knn_found)(pinSlice(pin, b.worst[row:]))
	c.filled = (*C.int32_t)(pinSlice(pin, b.filled[row:]))
	return c
}

// Search offers every row of a block to the queries of a moving side, whose
// first is query row of the collections.
func (w *KNNWorker) Search(moving KNNSide, fixed *KNNBlock, best *KNNBest, row int) error {
	if moving.Len() > KNNMovingRows || row < 0 || row+moving.Len() > best.rows {
		return fmt.Errorf("KNNWorker.Search: %d moving rows at query %d of %d", moving.Len(), row, best.rows)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_search(w.w, &w.knn.plan, &moving.c, &fixed.c, best.c(&pin, row))
	return nil
}

// K is how many items are collected.
func (b *KNNBest) K() int { return b.k }

// Worst is a score for each of n queries, from query row on, below which no item
// is among the k best: minus infinity as long as k have not been offered.
func (b *KNNBest) Worst(row, n int) []float32 {
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
func (b *KNNBest) Offer(k *KNN, queries, items KNNSide, row int, places []int64) error {
	if row < 0 || row+queries.Len() > b.rows {
		return fmt.Errorf("KNNBest.Offer: %d rows at query %d of %d", queries.Len(), row, b.rows)
	}
	for _, p := range places {
		if p < 0 || p >= int64(queries.Len())*int64(items.Len()) {
			return fmt.Errorf("KNNBest.Offer: place %d of %d x %d", p, queries.Len(), items.Len())
		}
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_offer(&k.plan, &queries.c, &items.c, b.c(&pin, row), (*C.int64_t)(pinSlice(&pin, places)), C.int64_t(len(places)))
	return nil
}

// Sorted returns the best items of a query, best first: k of them, or as many
// as were offered. The slice is the collection's own.
func (b *KNNBest) Sorted(query int) []KNNFound {
	var pin runtime.Pinner
	defer pin.Unpin()
	C.knn_sort(b.c(&pin, query), 1)
	return b.found[query*b.room:][:min(b.k, int(b.filled[query]))]
}

// Floats is the side's rows as they are compared, [rows, width]: the embedding,
// and zeros up to a width of its own. The slice is the side's memory.
func (s KNNSide) Floats(k *KNN) (rows []float32, width int) {
	width = int(k.plan.width)
	return unsafe.Slice((*float32)(unsafe.Pointer(s.c.x)), s.Len()*width), width
}

// Longest is the length that no row known to k exceeds.
func (k *KNN) Longest() float32 { return float32(k.plan.longest) }

// Pair is the exact score of a side's row i and another's row j.
func (k *KNN) Pair(a KNNSide, i int, b KNNSide, j int) float32 {
	var score C.float
	x, y := k.shift(a.c, i), k.shift(b.c, j)
	C.knn_exact(&k.plan, x.x, 1, y.x, 1, &score)
	return float32(score)
}

// ProductFloat32 returns t · otherᵀ in full float32 on t's device, also where
// AllowTF32 permits less.
func (t *Tensor) ProductFloat32(other *Tensor) *Tensor {
	s, ok := join("ProductFloat32", t, other)
	if !ok {
		return s.dead()
	}
	return s.one("ProductFloat32", C.knn_product(t.h, other.h), t, other)
}
