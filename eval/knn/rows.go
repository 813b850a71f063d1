package knn

/*
#include <stdlib.h>
#include "kernels.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Rows is memory for rows in the form in which they are compared. It is not
// Go's: Close frees it.
type Rows struct {
	scorer   *Scorer
	side     C.knn_side
	capacity int
}

// BytesPerRow is what a row takes in Rows.
func (s *Scorer) BytesPerRow() int64 {
	n := int64(s.plan.width) * 4
	if s.Screens() {
		n += int64(s.plan.width)*2 + int64(unsafe.Sizeof(C.knn_row{}))
	}
	return n
}

// Rows returns memory for so many rows.
func (s *Scorer) Rows(capacity int) (*Rows, error) {
	r := &Rows{scorer: s, capacity: capacity}
	rows := C.int64_t((capacity + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND)
	elements := rows * C.int64_t(s.plan.width)
	ok := allocate(&r.side.x, elements)
	if s.Screens() {
		ok = ok && allocate(&r.side.q, 2*elements) && allocate(&r.side.row, rows)
	}
	if !ok {
		r.Close()
		return nil, fmt.Errorf("no memory for %d rows of %d floats (%d bytes)", capacity, s.dim, int64(rows)*s.BytesPerRow())
	}
	return r, nil
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
	n := len(rows) / r.scorer.dim
	if at < 0 || at+n > r.capacity || n*r.scorer.dim != len(rows) {
		return 0, fmt.Errorf("Rows.Fill: %d floats at row %d of %d", len(rows), at, r.capacity)
	}
	var long C.float
	var why C.int
	s := r.scorer.shift(r.side, at)
	bad := C.knn_prepare(&r.scorer.plan, floats(rows), C.int64_t(n), C.int(r.scorer.dim), s.x, s.q, s.row, &long, &why)
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

// Read copies row i, as it is compared, into row.
func (r *Rows) Read(i int, row []float32) {
	s := r.scorer.shift(r.side, i)
	copy(row, unsafe.Slice((*float32)(unsafe.Pointer(s.x)), r.scorer.dim))
}

// CopyFrom copies the floats of row from of other Rows into row to; such rows
// are for [Scorer.Scores] only.
func (r *Rows) CopyFrom(to int, other *Rows, from int) {
	width := int(r.scorer.plan.width)
	dst, src := r.scorer.shift(r.side, to), other.scorer.shift(other.side, from)
	copy(unsafe.Slice((*float32)(unsafe.Pointer(dst.x)), width), unsafe.Slice((*float32)(unsafe.Pointer(src.x)), width))
}

// Side is a run of rows, as one side of a comparison.
type Side struct{ c C.knn_side }

// Side is rows [from, to), of which the first has number first in its whole set.
func (r *Rows) Side(from, to, first int) Side {
	s := r.scorer.shift(r.side, from)
	s.first, s.rows = C.int64_t(first), C.int64_t(to-from)
	return Side{s}
}

// Len is the number of rows.
func (s Side) Len() int { return int(s.c.rows) }

// Floats is the side's rows as they are compared, [rows, width]: the embedding,
// and zeros up to a width of its own. The slice is the side's memory.
func (s Side) Floats(scorer *Scorer) (rows []float32, width int) {
	width = int(scorer.plan.width)
	return unsafe.Slice((*float32)(unsafe.Pointer(s.c.x)), s.Len()*width), width
}

// Block is a fixed side: rows laid out once to be compared with many.
type Block struct {
	scorer   *Scorer
	capacity int
	packed   *C.int8_t
	side     Side
}

// Block returns memory for a fixed side of so many rows.
func (s *Scorer) Block(capacity int) (*Block, error) {
	b := &Block{scorer: s, capacity: capacity}
	elements := C.int64_t((capacity + C.KNN_ROUND - 1) / C.KNN_ROUND * C.KNN_ROUND * int(s.plan.width))
	if s.Screens() && !allocate(&b.packed, 2*elements) {
		return nil, fmt.Errorf("no memory for a block of %d rows of %d floats", capacity, s.dim)
	}
	return b, nil
}

// Set makes rows the fixed side; they must live as long as it is used.
func (b *Block) Set(s Side) error {
	if s.Len() > b.capacity {
		return fmt.Errorf("Block.Set: %d rows in a block for %d", s.Len(), b.capacity)
	}
	b.side = s
	if b.packed != nil {
		C.knn_pack(&b.scorer.plan, s.c.q, s.c.rows, b.packed)
		b.side.c.packed = b.packed
	}
	return nil
}

// Side is the rows of the block.
func (b *Block) Side() Side { return b.side }

// Len is the number of rows.
func (b *Block) Len() int { return b.side.Len() }

// Close frees the block's memory.
func (b *Block) Close() { release(&b.packed) }

// shift is a side that begins so many rows later.
func (s *Scorer) shift(side C.knn_side, rows int) C.knn_side {
	move(&side.x, rows*int(s.plan.width))
	move(&side.q, 2*rows*int(s.plan.width))
	move(&side.row, rows)
	return side
}

func move[T any](p **T, elements int) {
	if *p != nil {
		*p = (*T)(unsafe.Add(unsafe.Pointer(*p), elements*int(unsafe.Sizeof(**p))))
	}
}

func allocate[T any](p **T, elements C.int64_t) bool {
	*p = (*T)(C.knn_allocate(elements * C.int64_t(unsafe.Sizeof(**p))))
	return *p != nil
}

func release[T any](p **T) {
	C.free(unsafe.Pointer(*p))
	*p = nil
}

func floats(s []float32) *C.float { return (*C.float)(unsafe.SliceData(s)) }

// pinned is the address of a slice that C structs may hold until pin is released.
func pinned[T any](pin *runtime.Pinner, s []T) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(s))
	if p != nil && cap(s) > 0 {
		pin.Pin(p)
	}
	return p
}
