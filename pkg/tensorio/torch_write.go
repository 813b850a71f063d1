package tensorio

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"

	"roadmap/pkg/fault"
)

// storageClasses names torch's storage class of each type; PyTorch has none
// for the unsigned types beyond uint8.
var storageClasses = map[DType]string{
	Bool: "BoolStorage", Uint8: "ByteStorage", Int8: "CharStorage", Int16: "ShortStorage", Int32: "IntStorage", Int64: "LongStorage",
	Float16: "HalfStorage", BFloat16: "BFloat16Storage", Float32: "FloatStorage", Float64: "DoubleStorage",
}

// storageAlignment is the multiple at which torch.save begins each storage.
const storageAlignment = 64

// WriteTorch writes tensors as torch.save writes an OrderedDict of them, in
// the order given: torch.load reads the file with weights_only=True. The same
// tensors give the same bytes.
func WriteTorch(w io.Writer, tensors []Named) error {
	if err := checkNames(tensors); err != nil {
		return err
	}
	for _, t := range tensors {
		if storageClasses[t.DType] == "" {
			return fault.Inputf("tensor %q: torch.save has no storage of %v; write .safetensors or convert to int64", clip(t.Name), t.DType)
		}
	}
	z := newZipWriter(w)
	z.record("data.pkl", pickleStateDict(tensors))
	z.record(".format_version", []byte("1"))
	z.record(".storage_alignment", []byte(strconv.Itoa(storageAlignment)))
	z.record("byteorder", []byte("little"))
	for i, t := range tensors {
		z.record("data/"+strconv.Itoa(i), t.Data)
	}
	z.record("version", []byte("3\n"))
	return z.close()
}

// zipWriter writes uncompressed records at aligned offsets; the first error stays.
type zipWriter struct {
	zip     *zip.Writer
	written *counter
	err     error
}

func newZipWriter(w io.Writer) *zipWriter {
	written := &counter{w: w}
	return &zipWriter{zip: zip.NewWriter(written), written: written}
}

// counter counts the bytes that pass through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(data []byte) (int, error) {
	n, err := c.w.Write(data)
	c.n += int64(n)
	return n, err
}

// record adds one file to the archive's folder, undated. Its local header is stretched
// by an extra field, marked FB as torch.save marks it.
func (z *zipWriter) record(name string, data []byte) {
	if z.err == nil {
		z.err = z.zip.Flush()
	}
	if z.err != nil {
		return
	}
	header := &zip.FileHeader{
		Name:               "archive/" + name,
		Method:             zip.Store,
		CRC32:              crc32.ChecksumIEEE(data),
		CompressedSize64:   uint64(len(data)),
		UncompressedSize64: uint64(len(data)),
	}
	const localHeader, extraHeader = 30, 4
	start := int(z.written.n) + localHeader + len(header.Name) + extraHeader
	padding := (storageAlignment - start%storageAlignment) % storageAlignment
	header.Extra = append([]byte{'F', 'B', byte(padding), 0}, make([]byte, padding)...)
	entry, err := z.zip.CreateRaw(header)
	if err == nil {
		_, err = entry.Write(data)
	}
	z.err = err
}

func (z *zipWriter) close() error {
	if z.err != nil {
		return z.err
	}
	return z.zip.Close()
}

// pickleStateDict writes, in protocol 2, what Python's pickler makes of an
// OrderedDict of tensors, its memo included.
func pickleStateDict(tensors []Named) []byte {
	p := &pickler{memo: map[string]int{}}
	p.out = append(p.out, 0x80, 2)
	p.emptyOrderedDict()
	const batch = 1000 // items between two marks, as Python has it
	for start := 0; start < len(tensors); start += batch {
		items := tensors[start:min(start+batch, len(tensors))]
		if len(items) > 1 {
			p.out = append(p.out, '(')
		}
		for i, t := range items {
			p.text(t.Name)
			p.put()
			p.tensor(t.Tensor, start+i)
		}
		if len(items) > 1 {
			p.out = append(p.out, 'u') // SETITEMS
		} else {
			p.out = append(p.out, 's') // SETITEM
		}
	}
	return append(p.out, '.')
}

// pickler emits instructions and numbers what it emits, as Python does.
type pickler struct {
	out  []byte
	next int
	memo map[string]int // of classes, functions and recurring words
}

// put remembers the top of the stack (BINPUT, LONG_BINPUT).
func (p *pickler) put() {
	if p.next < 256 {
		p.out = append(p.out, 'q', byte(p.next))
	} else {
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'r'), uint32(p.next))
	}
	p.next++
}

// once emits make's instructions the first time and a reference afterwards.
func (p *pickler) once(what string, make func()) {
	place, known := p.memo[what]
	switch {
	case !known:
		make()
		p.memo[what] = p.next
		p.put()
	case place < 256:
		p.out = append(p.out, 'h', byte(place))
	default:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'j'), uint32(place))
	}
}

func (p *pickler) global(module, name string) {
	p.once(module+" "+name, func() { p.out = fmt.Appendf(p.out, "c%s\n%s\n", module, name) })
}

func (p *pickler) word(s string) {
	p.once("'"+s, func() { p.text(s) })
}

func (p *pickler) text(s string) {
	p.out = binary.LittleEndian.AppendUint32(append(p.out, 'X'), uint32(len(s)))
	p.out = append(p.out, s...)
}

func (p *pickler) integer(n int) {
	switch {
	case n < 1<<8:
		p.out = append(p.out, 'K', byte(n))
	case n < 1<<16:
		p.out = append(p.out, 'M', byte(n), byte(n>>8))
	case n <= math.MaxInt32:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, 'J'), uint32(n))
	default: // LONG1: no more bytes than the number and its sign need
		var digits []byte
		for rest := n; rest > 0; rest >>= 8 {
			digits = append(digits, byte(rest))
		}
		if digits[len(digits)-1]&0x80 != 0 {
			digits = append(digits, 0)
		}
		p.out = append(append(p.out, 0x8a, byte(len(digits))), digits...)
	}
}

// integers emits a tuple of numbers; the empty one is not remembered.
func (p *pickler) integers(numbers []int) {
	switch len(numbers) {
	case 0:
		p.out = append(p.out, ')')
		return
	case 1, 2, 3:
	default:
		p.out = append(p.out, '(')
	}
	for _, n := range numbers {
		p.integer(n)
	}
	if len(numbers) <= 3 {
		p.out = append(p.out, 0x84+byte(len(numbers)))
	} else {
		p.out = append(p.out, 't')
	}
	p.put()
}

func (p *pickler) emptyOrderedDict() {
	p.global("collections", "OrderedDict")
	p.out = append(p.out, ')', 'R')
	p.put()
}

// tensor emits _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()).
func (p *pickler) tensor(t Tensor, storage int) {
	p.global("torch._utils", "_rebuild_tensor_v2")
	p.out = append(p.out, '(', '(')
	p.word("storage")
	p.global("torch", storageClasses[t.DType])
	p.text(strconv.Itoa(storage))
	p.put()
	p.word("cpu")
	p.integer(t.Len())
	p.out = append(p.out, 't')
	p.put()
	p.out = append(p.out, 'Q') // BINPERSID
	p.integer(0)
	p.integers(t.Shape)
	p.integers(rowMajor(t.Shape))
	p.out = append(p.out, 0x89) // NEWFALSE: requires no gradient
	p.emptyOrderedDict()
	p.out = append(p.out, 't')
	p.put()
	p.out = append(p.out, 'R')
	p.put()
}
