package data

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Reading of MATLAB's level 5 files (MathWorks, "MAT-File Format"), as far as
// annotations of datasets need it: structures, cells, text and real numbers.

// matValue is a value of a file: string, []float64, []matValue (a cell array)
// or []map[string]matValue (a structure array).
type matValue any

// Bounds of what is read.
const (
	matMemory = 64 << 20 // bytes that a file may inflate to
	matDepth  = 16       // of values in values
)

// Types of data elements, and classes of arrays.
const (
	miInt8       = 1
	miUint8      = 2
	miInt16      = 3
	miUint16     = 4
	miInt32      = 5
	miUint32     = 6
	miSingle     = 7
	miDouble     = 9
	miInt64      = 12
	miUint64     = 13
	miMatrix     = 14
	miCompressed = 15
	miUTF8       = 16

	mxCell   = 1
	mxStruct = 2
	mxChar   = 4
	mxDouble = 6
	mxUint64 = 15
)

var errMatCut = errors.New("the file is cut off or damaged")

// readMat reads the variables of a file.
func readMat(content []byte) (map[string]matValue, error) {
	if len(content) < 128 || !bytes.Equal(content[124:128], []byte{0, 1, 'I', 'M'}) {
		return nil, errors.New("no MATLAB level 5 file of a little-endian machine; save it with -v7 or earlier")
	}
	variables := map[string]matValue{}
	left := matMemory
	for r := (&matReader{data: content[128:]}); len(r.data) > 0; {
		kind, body, err := r.element()
		if err != nil {
			return nil, err
		}
		if kind == miCompressed {
			if body, err = inflate(body, &left); err != nil {
				return nil, err
			}
			if kind, body, err = (&matReader{data: body}).element(); err != nil {
				return nil, err
			}
		}
		if kind != miMatrix {
			continue
		}
		name, value, err := matArray(body, 0)
		if err != nil {
			return nil, err
		}
		variables[name] = value
	}
	return variables, nil
}

// inflate decompresses an element, at most left bytes of it.
func inflate(body []byte, left *int) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errMatCut, err)
	}
	content, err := io.ReadAll(io.LimitReader(z, int64(*left)+1))
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", errMatCut, err)
	}
	if *left -= len(content); *left < 0 {
		return nil, fmt.Errorf("the file inflates to more than %d bytes", matMemory)
	}
	return content, nil
}

// matReader walks over data elements.
type matReader struct{ data []byte }

// element takes one element: its type and its data.
func (r *matReader) element() (kind uint32, body []byte, err error) {
	if len(r.data) < 8 {
		return 0, nil, errMatCut
	}
	first := binary.LittleEndian.Uint32(r.data)
	if size := first >> 16; size > 0 { // a small element: up to 4 bytes beside its tag
		if size > 4 {
			return 0, nil, errMatCut
		}
		kind, body, r.data = first&0xffff, r.data[4:4+size], r.data[8:]
		return kind, body, nil
	}
	size := uint64(binary.LittleEndian.Uint32(r.data[4:]))
	rest := r.data[8:]
	if size > uint64(len(rest)) {
		return 0, nil, errMatCut
	}
	body, rest = rest[:size], rest[size:]
	if pad := (8 - size%8) % 8; first != miCompressed {
		rest = rest[min(pad, uint64(len(rest))):]
	}
	r.data = rest
	return first, body, nil
}

// matArray reads the body of a matrix.
func matArray(body []byte, depth int) (name string, value matValue, err error) {
	if len(body) == 0 { // an empty matrix may have no header
		return "", []float64{}, nil
	}
	if depth > matDepth {
		return "", nil, errors.New("values are nested too deeply")
	}
	r := &matReader{data: body}
	_, flags, e1 := r.element()
	kind, dims, e2 := r.element()
	_, title, e3 := r.element()
	if err := errors.Join(e1, e2, e3); err != nil || len(flags) < 4 || kind != miInt32 {
		return "", nil, errMatCut
	}
	count := 1
	for i := 0; i+4 <= len(dims); i += 4 {
		n := int(int32(binary.LittleEndian.Uint32(dims[i:])))
		if n < 0 || n > 1<<30 || count > 1<<31 {
			return "", nil, errMatCut
		}
		count *= n
	}
	switch class := flags[0]; {
	case class == mxChar:
		value, err = r.text()
	case class == mxCell:
		value, err = r.cells(count, depth)
	case class == mxStruct:
		value, err = r.structs(count, depth)
	case class >= mxDouble && class <= mxUint64:
		value, err = r.numbers()
	default:
		err = fmt.Errorf("an array of class %d, which is not read", class)
	}
	return string(title), value, err
}

func (r *matReader) text() (string, error) {
	kind, body, err := r.element()
	if err != nil {
		return "", err
	}
	if kind != miUint16 {
		return string(body), nil
	}
	runes := make([]rune, len(body)/2)
	for i := range runes {
		runes[i] = rune(binary.LittleEndian.Uint16(body[2*i:]))
	}
	return string(runes), nil
}

func (r *matReader) numbers() ([]float64, error) {
	kind, body, err := r.element()
	if err != nil {
		return nil, err
	}
	width := map[uint32]int{miInt8: 1, miUint8: 1, miInt16: 2, miUint16: 2, miInt32: 4, miUint32: 4, miSingle: 4, miDouble: 8, miInt64: 8, miUint64: 8}[kind]
	if width == 0 || len(body)%width != 0 {
		return nil, errMatCut
	}
	out := make([]float64, len(body)/width)
	for i := range out {
		at := body[i*width:]
		switch kind {
		case miInt8:
			out[i] = float64(int8(at[0]))
		case miUint8:
			out[i] = float64(at[0])
		case miInt16:
			out[i] = float64(int16(binary.LittleEndian.Uint16(at)))
		case miUint16:
			out[i] = float64(binary.LittleEndian.Uint16(at))
		case miInt32:
			out[i] = float64(int32(binary.LittleEndian.Uint32(at)))
		case miUint32:
			out[i] = float64(binary.LittleEndian.Uint32(at))
		case miSingle:
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(at)))
		case miDouble:
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(at))
		case miInt64:
			out[i] = float64(int64(binary.LittleEndian.Uint64(at)))
		case miUint64:
			out[i] = float64(binary.LittleEndian.Uint64(at))
		}
	}
	return out, nil
}

// matrix takes one matrix element.
func (r *matReader) matrix(depth int) (matValue, error) {
	kind, body, err := r.element()
	if err != nil || kind != miMatrix {
		return nil, errMatCut
	}
	_, value, err := matArray(body, depth+1)
	return value, err
}

func (r *matReader) cells(count, depth int) ([]matValue, error) {
	var out []matValue
	for range count {
		v, err := r.matrix(depth)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *matReader) structs(count, depth int) ([]map[string]matValue, error) {
	_, length, e1 := r.element()
	_, names, e2 := r.element()
	if e1 != nil || e2 != nil || len(length) < 4 {
		return nil, errMatCut
	}
	width := int(binary.LittleEndian.Uint32(length))
	if width < 1 || len(names)%width != 0 {
		return nil, errMatCut
	}
	var fields []string
	for i := 0; i < len(names); i += width {
		name, _, _ := bytes.Cut(names[i:i+width], []byte{0})
		fields = append(fields, string(name))
	}
	if len(fields) == 0 {
		count = 0
	}
	var out []map[string]matValue
	for range count {
		one := map[string]matValue{}
		for _, field := range fields {
			v, err := r.matrix(depth)
			if err != nil {
				return nil, err
			}
			one[field] = v
		}
		out = append(out, one)
	}
	return out, nil
}
