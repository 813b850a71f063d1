package tensorio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
)

// The .npy format, versions 1.0 to 3.0, is numpy.lib.format's: the magic, two
// bytes of version, the length of the header (2 bytes in version 1, else 4),
// the header, and the elements.
var npyMagic = []byte("\x93NUMPY")

// npyHeaderLimit bounds a header, which holds 100 bytes for what we read.
const npyHeaderLimit = 1 << 16

// npyTypes maps a type's kind and size in bytes, as in '<f4', to ours.
var npyTypes = map[string]DType{
	"b1": Bool, "u1": Uint8, "i1": Int8, "u2": Uint16, "i2": Int16, "u4": Uint32, "i4": Int32,
	"u8": Uint64, "i8": Int64, "f2": Float16, "f4": Float32, "f8": Float64,
}

// parseNPY reads the header and checks that the elements are all there.
func parseNPY(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("byte %d: ends within the version; the file was cut short", len(data))
	}
	lengthSize := 4
	switch major := data[6]; major {
	case 1:
		lengthSize = 2
	case 2, 3:
	default:
		return nil, fmt.Errorf("byte 6: format version %d is unknown; save again with numpy.save", major)
	}
	start := 8 + lengthSize
	if len(data) < start {
		return nil, fmt.Errorf("byte %d: ends within the header's length; the file was cut short", len(data))
	}
	length := int(binary.LittleEndian.Uint16(data[8:]))
	if lengthSize == 4 {
		length = int(binary.LittleEndian.Uint32(data[8:]))
	}
	switch {
	case length > npyHeaderLimit:
		return nil, fmt.Errorf("byte 8: a header of %d bytes; a plain array has about 100 (records and objects are not read)", length)
	case len(data)-start < length:
		return nil, fmt.Errorf("byte %d: ends within the header of %d bytes; the file was cut short", len(data), length)
	}
	header, err := parseNPYHeader(string(data[start:start+length]), start)
	if err != nil {
		return nil, err
	}
	stored := &Stored{DType: header.dtype, Shape: header.shape, swap: header.swap}
	body := data[start+length:]
	n, ok := elements(header.shape)
	if !ok || n > maxBytes/header.dtype.Size() {
		return nil, fmt.Errorf("byte %d: the shape %s is beyond any memory", start, shapeText(header.shape))
	}
	switch need := n * header.dtype.Size(); {
	case len(body) < need:
		return nil, fmt.Errorf("byte %d: %d bytes of elements where %v%s needs %d; the file was cut short",
			start+length, len(body), header.dtype, shapeText(header.shape), need)
	case len(body) > need:
		return nil, fmt.Errorf("byte %d: %d bytes follow the array %v%s; a file must hold one array",
			start+length+need, len(body)-need, header.dtype, shapeText(header.shape))
	}
	strides := rowMajor(header.shape)
	if header.fortran {
		strides = columnMajor(header.shape)
	}
	if err := stored.place(body, 0, strides); err != nil {
		return nil, fmt.Errorf("byte %d: %w", start, err)
	}
	return &File{Format: NPY, entries: []Entry{{Single, stored}}}, nil
}

// npyHeader is the header's content.
type npyHeader struct {
	dtype   DType
	swap    bool // big-endian
	fortran bool // first index fastest
	shape   []int
}

// parseNPYHeader reads the Python literal {'descr': '<f4', 'fortran_order':
// False, 'shape': (3, 4), }; base is its place in the file, for errors.
func parseNPYHeader(text string, base int) (npyHeader, error) {
	var header npyHeader
	p := &literal{text: text, base: base}
	seen := map[string]bool{}
	p.expect('{')
	for p.err == nil && !p.accept('}') {
		key := p.quoted()
		if seen[key] {
			p.fail("key %q stands there twice", key)
		}
		seen[key] = true
		p.expect(':')
		switch key {
		case "descr":
			header.dtype, header.swap = p.npyType()
		case "fortran_order":
			header.fortran = p.boolean()
		case "shape":
			header.shape = p.tuple()
		default:
			p.fail("unknown key %q (expected descr, fortran_order, shape)", clip(key))
		}
		if !p.accept(',') {
			p.expect('}')
			break
		}
	}
	if p.err == nil && strings.Trim(p.text[p.pos:], " \n") != "" {
		p.fail("text after the closing brace")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if p.err == nil && !seen[key] {
			p.fail("the header lacks %q", key)
		}
	}
	return header, p.err
}

// literal reads the few Python literals of a header; the first error stays.
type literal struct {
	text      string
	pos, base int
	err       error
}

func (p *literal) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("byte %d: header: %s", p.base+p.pos, fmt.Sprintf(format, args...))
	}
}

// blank skips what may stand between two words.
func (p *literal) blank() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\n') {
		p.pos++
	}
}

func (p *literal) accept(c byte) bool {
	p.blank()
	if p.err != nil || p.pos >= len(p.text) || p.text[p.pos] != c {
		return false
	}
	p.pos++
	return true
}

func (p *literal) expect(c byte) {
	if !p.accept(c) {
		p.fail("%q is missing", c)
	}
}

// quoted reads 'text' or "text"; no key or type of the format needs an escape.
func (p *literal) quoted() string {
	quote := byte('\'')
	if p.accept('"') {
		quote = '"'
	} else {
		p.expect('\'')
	}
	end := strings.IndexByte(p.text[min(p.pos, len(p.text)):], quote)
	if p.err != nil || end < 0 {
		p.fail("a string does not end")
		return ""
	}
	s := p.text[p.pos : p.pos+end]
	p.pos += end + 1
	return s
}

// word reads letters and digits.
func (p *literal) word() string {
	p.blank()
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte(" ,:()[]{}\n", p.text[p.pos]) < 0 {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *literal) boolean() bool {
	switch word := p.word(); word {
	case "True":
		return true
	case "False":
	default:
		p.fail("%q is neither True nor False", clip(word))
	}
	return false
}

// tuple reads a shape. Python 2 wrote long integers as 3L.
func (p *literal) tuple() []int {
	p.expect('(')
	var shape []int
	for p.err == nil && !p.accept(')') {
		word := p.word()
		n, err := strconv.ParseInt(strings.TrimSuffix(word, "L"), 10, 64)
		if err != nil || n < 0 {
			p.fail("%q is not a size", clip(word))
			break
		}
		shape = append(shape, int(n))
		if !p.accept(',') {
			p.expect(')')
			break
		}
	}
	if len(shape) > 64 { // NumPy's own limit
		p.fail("%d dimensions; an array has at most 64", len(shape))
	}
	return shape
}

// npyType reads the element type; records are lists and thus refused here.
func (p *literal) npyType() (d DType, swap bool) {
	if p.accept('[') {
		p.fail("the array holds records; save one plain field of it")
		return Invalid, false
	}
	name := p.quoted()
	kind := strings.TrimLeft(name, "<>|=")
	d, known := npyTypes[kind]
	if p.err == nil && (!known || len(name)-len(kind) > 1) {
		p.fail("elements of type %q cannot be read; convert with .astype(\"float32\") or .astype(\"int64\")", clip(name))
	}
	return d, name != kind && name[0] == '>' && d.Size() > 1
}

// npyDescr is the inverse of npyType, as this machine writes.
func npyDescr(d DType) (string, bool) {
	for kind, have := range npyTypes {
		if have == d {
			if d.Size() == 1 {
				return "|" + kind, true
			}
			return "<" + kind, true
		}
	}
	return "", false
}

// npyPreamble is everything before the elements, byte for byte what
// numpy.save writes: NumPy leaves room for the first size to grow to 21
// digits and then fills up to a multiple of 64 bytes.
func npyPreamble(d DType, shape []int) ([]byte, error) {
	descr, ok := npyDescr(d)
	if !ok {
		return nil, fault.Inputf(".npy has no %v; write .safetensors or convert to float32", d)
	}
	sizes := make([]string, len(shape))
	for i, size := range shape {
		sizes[i] = strconv.Itoa(size)
	}
	tuple := "(" + strings.Join(sizes, ", ") + ")"
	if len(shape) == 1 {
		tuple = "(" + sizes[0] + ",)"
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, tuple)
	if len(shape) > 0 {
		header += strings.Repeat(" ", 21-len(sizes[0]))
	}
	const fixed = 10 // magic, version 1.0 and length
	total := (fixed + len(header) + 1 + 63) / 64 * 64
	header += strings.Repeat(" ", total-fixed-len(header)-1) + "\n"
	var out bytes.Buffer
	out.Write(npyMagic)
	out.Write([]byte{1, 0})
	out.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(header))))
	out.WriteString(header)
	return out.Bytes(), nil
}

// WriteNPY writes t to w as numpy.save does, byte for byte, in C order.
// bfloat16, which NumPy does not have, is an error.
func WriteNPY(w io.Writer, t Tensor) error {
	preamble, err := npyPreamble(t.DType, t.Shape)
	if err != nil {
		return err
	}
	if _, err := w.Write(preamble); err != nil {
		return err
	}
	_, err = w.Write(t.Data)
	return err
}

// NPYWriter writes an .npy of rows that arrive over time and whose number is
// known only at the end.
type NPYWriter struct {
	pending *Pending
	dtype   DType
	row     []int // the shape of one row
	rows    int
}

// CreateNPY begins an .npy at path whose rows have the given type and shape
// ([d] for embeddings). See Create for overwrite.
func CreateNPY(path string, d DType, row []int, overwrite bool) (*NPYWriter, error) {
	preamble, err := npyPreamble(d, append([]int{0}, row...))
	if err != nil {
		return nil, err
	}
	pending, err := Create(path, overwrite)
	if err != nil {
		return nil, err
	}
	w := &NPYWriter{pending: pending, dtype: d, row: slices.Clone(row)}
	if _, err := pending.Write(preamble); err != nil {
		pending.Discard()
		return nil, err
	}
	return w, nil
}

// Append writes rows, [n, row...] of the writer's type.
func (w *NPYWriter) Append(rows Tensor) error {
	if rows.DType != w.dtype || len(rows.Shape) != len(w.row)+1 || !slices.Equal(rows.Shape[1:], w.row) {
		return fmt.Errorf("tensorio: %s: rows %v%v cannot join %v%v", w.pending.Path(), rows.DType, rows.Shape, w.dtype, w.row)
	}
	if _, err := w.pending.Write(rows.Data); err != nil {
		return err
	}
	w.rows += rows.Shape[0]
	return nil
}

// Commit puts the number of rows into the header and the file in its place.
func (w *NPYWriter) Commit() error {
	pending, err := w.Finish()
	if err != nil {
		return err
	}
	return pending.Commit()
}

// Finish puts the number of rows into the header, and leaves the file to be
// committed with others: see CommitAll.
func (w *NPYWriter) Finish() (*Pending, error) {
	preamble, err := npyPreamble(w.dtype, append([]int{w.rows}, w.row...))
	if err != nil {
		return nil, err
	}
	if err := w.pending.patch(0, preamble); err != nil {
		w.pending.Discard()
		return nil, err
	}
	return w.pending, nil
}

// Discard removes what was written; after Commit it does nothing.
func (w *NPYWriter) Discard() { w.pending.Discard() }
