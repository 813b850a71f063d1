package tensorio

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"roadmap/pkg/fault"
)

// The safetensors format: 8 bytes of header length, a JSON object, the
// elements. https://github.com/huggingface/safetensors, section "Format", and
// the checks of its reference implementation.

const (
	safetensorsHeaderLimit = 100_000_000 // bytes, as the reference has it
	safetensorsNameLimit   = 1 << 18     // tensors; the largest published files have a few thousand
	safetensorsMetadata    = "__metadata__"
)

// safetensorsTypes is ordered as the reference orders its types: files are
// laid out from the last to the first, so that wide elements stay aligned.
var safetensorsTypes = []struct {
	name  string
	dtype DType
}{
	{"BOOL", Bool}, {"U8", Uint8}, {"I8", Int8}, {"I16", Int16}, {"U16", Uint16}, {"F16", Float16}, {"BF16", BFloat16},
	{"I32", Int32}, {"U32", Uint32}, {"F32", Float32}, {"F64", Float64}, {"I64", Int64}, {"U64", Uint64},
}

// safetensorsOrder is a type's place in safetensorsTypes, -1 for others.
func safetensorsOrder(dtype string) int {
	for i, known := range safetensorsTypes {
		if known.name == dtype {
			return i
		}
	}
	return -1
}

// safetensorsBits is the width of the types that we know of and do not read.
var safetensorsBits = map[string]int{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "C64": 64,
}

// looksLikeSafetensors tells the format by its ninth byte and plausible length.
func looksLikeSafetensors(data []byte) bool {
	return len(data) > 8 && data[8] == '{' && binary.LittleEndian.Uint64(data) <= safetensorsHeaderLimit
}

// span is where a tensor's bytes lie after the header.
type span struct {
	begin, end int
	dtype      string
	entry      Entry
}

// parseSafetensors reads the header and checks that the tensors tile the file.
func parseSafetensors(data []byte) (*File, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("byte %d: ends within the header's length; the file was cut short", len(data))
	}
	length := binary.LittleEndian.Uint64(data)
	switch {
	case length > safetensorsHeaderLimit:
		return nil, fmt.Errorf("byte 0: a header of %d bytes is beyond the format's limit of %d; this is no .safetensors file", length, safetensorsHeaderLimit)
	case length > uint64(len(data)-8):
		return nil, fmt.Errorf("byte %d: ends within the header of %d bytes; the file was cut short", len(data), length)
	}
	header, body := data[8:8+length], data[8+length:]
	if !utf8.Valid(header) {
		return nil, fmt.Errorf("byte 8: the header is not UTF-8 text; the file is damaged")
	}
	if length == 0 || header[0] != '{' {
		return nil, fmt.Errorf("byte 8: the header does not begin with '{'; this is no .safetensors file")
	}
	spans, metadata, err := parseSafetensorsHeader(header)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	f := &File{Format: Safetensors, Metadata: metadata}
	var all []hashed
	next := 0
	for _, s := range spans {
		switch {
		case s.begin < next:
			return nil, fmt.Errorf("tensor %q: bytes [%d, %d) overlap the tensor before it, which ends at %d", clip(s.entry.Name), s.begin, s.end, next)
		case s.begin > next:
			return nil, fmt.Errorf("tensor %q: begins at byte %d of the elements, leaving a hole after %d", clip(s.entry.Name), s.begin, next)
		case s.end > len(body):
			return nil, fmt.Errorf("tensor %q: ends at byte %d of the elements, of which there are %d; the file was cut short", clip(s.entry.Name), s.end, len(body))
		}
		next = s.end
		if s.entry.DType != Invalid {
			if err := s.entry.place(body[s.begin:s.end], 0, rowMajor(s.entry.Shape)); err != nil {
				return nil, fmt.Errorf("tensor %q: %w", clip(s.entry.Name), err)
			}
		}
		f.entries = append(f.entries, s.entry)
		all = append(all, hashed{s.entry.Name, s.dtype, s.entry.Shape, body[s.begin:s.end]})
	}
	if next != len(body) {
		return nil, fmt.Errorf("byte %d: %d bytes follow the last tensor; the header and the elements do not belong together", 8+int(length)+next, len(body)-next)
	}
	if checks := checkDigest(metadata, all); checks != nil {
		f.whole = checks.whole
		for _, e := range f.entries {
			e.whole = checks.tensor[e.Name]
		}
	}
	f.Digest = metadata[digestKey]
	delete(metadata, digestKey)
	return f, nil
}

// parseSafetensorsHeader reads the JSON object token by token, which
// finds what decoding into a map would drop: names that stand there twice.
func parseSafetensorsHeader(header []byte) (spans []span, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(header))
	d.UseNumber()
	fail := func(format string, args ...any) ([]span, map[string]string, error) {
		return nil, nil, fmt.Errorf("byte %d: header: %w", 8+d.InputOffset(), fmt.Errorf(format, args...))
	}
	seen := map[string]bool{}
	if _, err := token(d); err != nil { // the opening brace, seen already
		return fail("%w", err)
	}
	for d.More() {
		name, err := key(d)
		switch {
		case err != nil:
			return fail("%w", err)
		case seen[name]:
			return fail("the name %q stands there twice", clip(name))
		case len(seen) >= safetensorsNameLimit:
			return fail("more than %d tensors", safetensorsNameLimit)
		}
		seen[name] = true
		if name == safetensorsMetadata {
			if metadata, err = parseMetadata(d); err != nil {
				return fail("%s: %w", name, err)
			}
			continue
		}
		s, err := parseTensorInfo(d)
		if err != nil {
			return fail("tensor %q: %w", clip(name), err)
		}
		s.entry.Name = name
		spans = append(spans, s)
	}
	if _, err := token(d); err != nil { // the closing brace
		return fail("%w", err)
	}
	if rest := bytes.TrimRight(header[d.InputOffset():], " \n\r\t"); len(rest) > 0 {
		return fail("text after the closing brace")
	}
	return spans, metadata, nil
}

// token reads the next token of a header that must go on.
func token(d *json.Decoder) (json.Token, error) {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("ends too early")
	}
	return t, err
}

// key reads an object's next key, or a value that must be a string.
func key(d *json.Decoder) (string, error) {
	t, err := token(d)
	s, _ := t.(string)
	return s, err
}

// open reads the delimiter that begins an object or array.
func open(d *json.Decoder, delim json.Delim) error {
	t, err := token(d)
	if err != nil {
		return err
	}
	if t != delim {
		return fmt.Errorf("%v stands where %v belongs", t, delim)
	}
	return nil
}

func parseMetadata(d *json.Decoder) (map[string]string, error) {
	if err := open(d, '{'); err != nil {
		return nil, err
	}
	metadata := map[string]string{}
	for d.More() {
		name, err := key(d)
		if err != nil {
			return nil, err
		}
		value, err := token(d)
		if err != nil {
			return nil, err
		}
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("the value of %q is not a string", clip(name))
		}
		if _, double := metadata[name]; double {
			return nil, fmt.Errorf("the name %q stands there twice", clip(name))
		}
		if len(metadata) >= safetensorsNameLimit {
			return nil, fmt.Errorf("more than %d names", safetensorsNameLimit)
		}
		metadata[name] = text
	}
	_, err := token(d)
	return metadata, err
}

// parseTensorInfo reads {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}.
func parseTensorInfo(d *json.Decoder) (s span, err error) {
	if err := open(d, '{'); err != nil {
		return s, err
	}
	var offsets []int
	s.entry.Stored = &Stored{}
	seen := map[string]bool{}
	for d.More() {
		name, err := key(d)
		if err != nil {
			return s, err
		}
		if seen[name] {
			return s, fmt.Errorf("%q stands there twice", clip(name))
		}
		seen[name] = true
		switch name {
		case "dtype":
			s.dtype, err = key(d)
		case "shape":
			s.entry.Shape, err = sizes(d, 64)
		case "data_offsets":
			offsets, err = sizes(d, 2)
		default:
			var ignored json.RawMessage // as the reference does
			err = d.Decode(&ignored)
		}
		if err != nil {
			return s, fmt.Errorf("%s: %w", clip(name), err)
		}
	}
	if _, err := token(d); err != nil {
		return s, err
	}
	if !seen["dtype"] || !seen["shape"] || len(offsets) != 2 {
		return s, fmt.Errorf("needs dtype, shape and two data_offsets")
	}
	s.begin, s.end = offsets[0], offsets[1]
	bits, err := s.entry.setSafetensorsType(s.dtype)
	if err != nil {
		return s, err
	}
	n, ok := elements(s.entry.Shape)
	if !ok || n > maxBytes/bits {
		return s, fmt.Errorf("the shape %s is beyond any memory", shapeText(s.entry.Shape))
	}
	if s.end < s.begin || (n*bits+7)/8 != s.end-s.begin {
		return s, fmt.Errorf("data_offsets [%d, %d] do not hold %s%s, which takes %d bytes", s.begin, s.end, s.dtype, shapeText(s.entry.Shape), (n*bits+7)/8)
	}
	return s, nil
}

// setSafetensorsType sets the type of that name and returns its width.
func (s *Stored) setSafetensorsType(name string) (bits int, err error) {
	for _, known := range safetensorsTypes {
		if known.name == name {
			s.DType = known.dtype
			return 8 * s.DType.Size(), nil
		}
	}
	if bits, known := safetensorsBits[name]; known {
		s.other = name
		return bits, nil
	}
	return 0, fmt.Errorf("the dtype %q is not one of the format's", clip(name))
}

// sizes reads an array of at most most non-negative integers.
func sizes(d *json.Decoder, most int) ([]int, error) {
	if err := open(d, '['); err != nil {
		return nil, err
	}
	out := []int{}
	for d.More() {
		t, err := token(d)
		if err != nil {
			return nil, err
		}
		number, _ := t.(json.Number)
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%v is not a whole number from 0 on", t)
		}
		if len(out) == most {
			return nil, fmt.Errorf("more than %d numbers", most)
		}
		out = append(out, int(n))
	}
	_, err := token(d)
	return out, err
}

// Named is a tensor to be written under a name.
type Named struct {
	Name string
	Tensor
}

// WriteSafetensors writes tensors as the reference implementation lays them
// out: by type, widest first, then by name; the header filled up with blanks
// so that the elements begin at a multiple of 8. The same tensors give the
// same bytes in whatever order they come. metadata may be nil. The file's
// digest is added to it.
func WriteSafetensors(w io.Writer, tensors []Named, metadata map[string]string) error {
	return writeSafetensors(w, tensors, metadata, true)
}

func writeSafetensors(w io.Writer, tensors []Named, metadata map[string]string, digested bool) error {
	names := map[DType]string{}
	for _, known := range safetensorsTypes {
		names[known.dtype] = known.name
	}
	if err := checkNames(tensors); err != nil {
		return err
	}
	for _, t := range tensors {
		if t.Name == safetensorsMetadata {
			return fault.Inputf("%q is reserved by .safetensors; rename the tensor", t.Name)
		}
	}
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Named) int {
		return cmp.Or(cmp.Compare(safetensorsOrder(names[b.DType]), safetensorsOrder(names[a.DType])), strings.Compare(a.Name, b.Name))
	})
	all := make([]hashed, len(sorted))
	for i, t := range sorted {
		all[i] = hashed{t.Name, names[t.DType], t.Shape, t.Data}
	}
	var items, pairs []string
	for name, value := range metadata {
		if name != digestKey { // it would be another file's
			pairs = append(pairs, jsonString(name)+":"+jsonString(value))
		}
	}
	if digested {
		pairs = append(pairs, jsonString(digestKey)+":"+jsonString(digest(metadata, all)))
	}
	if len(pairs) > 0 {
		slices.Sort(pairs)
		items = append(items, jsonString(safetensorsMetadata)+":{"+strings.Join(pairs, ",")+"}")
	}
	offset := 0
	for _, t := range all {
		shape := strings.ReplaceAll(fmt.Sprint(t.shape), " ", ",")
		items = append(items, fmt.Sprintf(`%s:{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`,
			jsonString(t.name), t.dtype, shape, offset, offset+len(t.data)))
		offset += len(t.data)
	}
	header := "{" + strings.Join(items, ",") + "}"
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	if len(header) > safetensorsHeaderLimit {
		return fault.Inputf("a header of %d bytes is beyond the limit of .safetensors, %d; write fewer tensors to one file", len(header), safetensorsHeaderLimit)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))); err != nil {
		return err
	}
	if _, err := io.WriteString(w, header); err != nil {
		return err
	}
	for _, t := range all {
		if _, err := w.Write(t.data); err != nil {
			return err
		}
	}
	return nil
}

// checkNames refuses what no file of named tensors can hold.
func checkNames(tensors []Named) error {
	seen := make(map[string]bool, len(tensors))
	for _, t := range tensors {
		switch {
		case !utf8.ValidString(t.Name):
			return fault.Inputf("the tensor name %q is not UTF-8", clip(t.Name))
		case seen[t.Name]:
			return fault.Inputf("two tensors are called %q; a file needs distinct names", clip(t.Name))
		case t.DType == Invalid || t.DType >= dtypes:
			return fault.Inputf("tensor %q has no type", clip(t.Name))
		case len(t.Data) != t.Len()*t.DType.Size():
			return fault.Inputf("tensor %q: %d bytes do not fill %v%v", clip(t.Name), len(t.Data), t.DType, t.Shape)
		}
		seen[t.Name] = true
	}
	return nil
}

// jsonString quotes as serde_json does: only what JSON requires is escaped.
func jsonString(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case '\b':
			out.WriteString(`\b`)
		case '\f':
			out.WriteString(`\f`)
		case '\n':
			out.WriteString(`\n`)
		case '\r':
			out.WriteString(`\r`)
		case '\t':
			out.WriteString(`\t`)
		default:
			if r < 0x20 {
				fmt.Fprintf(&out, `\u%04x`, r)
			} else {
				out.WriteRune(r)
			}
		}
	}
	out.WriteByte('"')
	return out.String()
}
