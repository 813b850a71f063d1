package tensorio

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"roadmap/pkg/fault"
)

// What libtorch does with a TorchScript module is written for modules that
// PyTorch made: it unpacks whatever the records say, and walks values and
// programs by recursion, so that deep ones overflow its stack, which ends the
// process. A stack of 8 MiB holds several times these depths; modules of
// PyTorch's need a few dozen.
const (
	scriptLimit     = 64 << 20 // bytes that the program may unpack to; the largest take a few MiB
	scriptMemory    = 1 << 30  // bytes to build one pickle's values with; those of the debug information are long
	valueDepth      = 500      // of values inside values
	expressionDepth = 500      // of expressions inside expressions
	statementDepth  = 100      // of blocks inside blocks
	scriptSource    = ".py"
	scriptDebug     = ".debug_pkl"
	scriptCode      = "code/"
)

// CheckScript looks at a file of torch.jit.save before libtorch does: it must
// be a whole zip file; its compressed records, if any, must hold no more than a
// program; the objects in it must be those of a module; and neither values nor
// program may be nested deeper than libtorch can bear.
func CheckScript(path string) error {
	m, err := openMapping(path)
	if err != nil {
		return err
	}
	defer m.close()
	if err := checkScript(m.data); err != nil {
		return fault.Inputf("%s: not a TorchScript module (%w); make one with torch.jit.save(torch.jit.script(network), path)", path, err)
	}
	return nil
}

func checkScript(data []byte) error {
	if !bytes.HasPrefix(data, zipMagic) {
		return fmt.Errorf("it begins with %q, a module with %q", clip(string(data[:min(4, len(data))])), zipMagic)
	}
	a, err := openArchive(data)
	if err != nil {
		return err
	}
	if err := a.whole(); err != nil {
		return err
	}
	for _, name := range []string{"data", "constants"} {
		r, err := a.need(name + ".pkl")
		if err != nil {
			return err
		}
		if err := a.shallow(r, func(id any) (any, error) { return a.storage(name, id) }); err != nil {
			return err
		}
	}
	return a.checkCode()
}

// shallow runs a pickle and measures the depth of every value that is made on
// the way, also of those that the result does not have.
func (a *archive) shallow(r record, persistent func(id any) (any, error)) error {
	all := pickleFloor + pickleFactor*min(len(r.bytes), scriptMemory/pickleFactor)
	n := &nesting{height: map[any]int{}, onPath: map[any]bool{}}
	m := &machine{data: r.bytes, persistent: persistent, made: n.note, budget: &budget{all, all}}
	if _, err := a.run(m, r); err != nil {
		return err
	}
	for _, v := range n.made {
		if _, err := n.measure(v, 0); err != nil {
			return fmt.Errorf("%s: %w", clip(r.name), err)
		}
	}
	return nil
}

// nesting measures how deep values lie inside values.
type nesting struct {
	made   []any
	height map[any]int // of containers, by their identity
	onPath map[any]bool
}

func (n *nesting) note(v any) {
	if identity(v) != nil {
		n.made = append(n.made, v)
	}
}

// identity is what two handles of one container share; nil for what holds no
// values.
func identity(v any) any {
	switch v := v.(type) {
	case Tuple:
		if len(v) > 0 {
			return &v[0]
		}
	case *List, *Dict, *Object:
		return v
	}
	return nil
}

// measure returns the height of a value, which lies at a depth: 0 for a plain
// one, else one more than its highest item's.
func (n *nesting) measure(v any, depth int) (int, error) {
	id := identity(v)
	if id == nil {
		return 0, nil
	}
	if h, known := n.height[id]; known {
		return h, nil
	}
	if n.onPath[id] {
		return 0, fmt.Errorf("a value lies inside itself, which no module has")
	}
	if depth >= valueDepth {
		return 0, fmt.Errorf("values are nested more than %d deep", valueDepth)
	}
	n.onPath[id] = true
	defer delete(n.onPath, id)
	highest := 0
	for _, items := range contents(v) {
		for _, item := range items {
			h, err := n.measure(item, depth+1)
			if err != nil {
				return 0, err
			}
			highest = max(highest, h)
		}
	}
	if highest+1 > valueDepth {
		return 0, fmt.Errorf("values are nested more than %d deep", valueDepth)
	}
	n.height[id] = highest + 1
	return highest + 1, nil
}

// contents is what lies directly in a value.
func contents(v any) [][]any {
	switch v := v.(type) {
	case Tuple:
		return [][]any{v}
	case *List:
		return [][]any{v.Items}
	case *Dict:
		return [][]any{v.Keys, v.Values}
	case *Object:
		inner := []any{v.State}
		if v.Items != nil {
			inner = append(inner, v.Items)
		}
		if v.Dict != nil {
			inner = append(inner, v.Dict)
		}
		return [][]any{v.Args, inner}
	}
	return nil
}

// checkCode unpacks the program, record by record, and looks at it and at its
// debug information.
func (a *archive) checkCode() error {
	left := int64(scriptLimit)
	for _, r := range a.sorted() {
		if r.packed {
			text, err := r.unpack(left)
			if err != nil {
				return fmt.Errorf("record %q: %w", clip(r.name), err)
			}
			left -= int64(len(text))
			r.bytes = text
		}
		_, name, _ := strings.Cut(r.name, "/")
		switch {
		case !strings.HasPrefix(name, scriptCode):
		case path.Ext(name) == scriptSource:
			if err := checkSource(r.bytes); err != nil {
				return fmt.Errorf("%s:%w", clip(r.name), err)
			}
		case path.Ext(name) == scriptDebug:
			if err := a.shallow(r, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// sorted is the records by name, so that which bad one is told of does not
// depend on chance.
func (a *archive) sorted() []record {
	var all []record
	for _, r := range a.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(x, y record) int { return strings.Compare(x.name, y.name) })
	return all
}

// unpack inflates a compressed record of at most most bytes and compares its
// CRC-32.
func (r record) unpack(most int64) ([]byte, error) {
	tooLong := fmt.Errorf("the compressed records unpack to more than %d bytes: no program is that long", scriptLimit)
	if r.file.UncompressedSize64 > uint64(most) {
		return nil, tooLong
	}
	from, err := r.file.Open()
	if err != nil {
		return nil, damagedf("%w", err)
	}
	defer from.Close() // only read
	text, err := io.ReadAll(io.LimitReader(from, most+1))
	switch {
	case err != nil:
		return nil, damagedf("%w", err)
	case int64(len(text)) > most:
		return nil, tooLong
	}
	return text, nil
}

// checkSource bounds how deep statements and expressions of a TorchScript
// program are nested, from its characters alone: an expression is no deeper
// than the brackets around it and the operators beside them, back to the last
// comma, put together. The error begins with the line.
func checkSource(text []byte) error {
	s := newSource(text)
	for s.at < len(s.text) {
		if err := s.next(); err != nil {
			return fmt.Errorf("%d: %w", s.line, err)
		}
	}
	return nil
}

// source is a reader of a program.
type source struct {
	text    []byte
	at      int
	line    int
	pending []int // operators since the last comma, for each open bracket
	depth   int   // their sum
	blocks  []block
	begun   bool // the line has more than its indentation
}

func newSource(text []byte) *source { return &source{text: text, line: 1, pending: []int{0}} }

// block is a run of statements of one indentation.
type block struct{ indent, chained int } // chained: elif after elif

// operators are the words that join expressions.
var operators = []string{"and", "or", "not", "if", "else", "in", "is", "lambda", "for"}

// next reads a token.
func (s *source) next() error {
	c := s.text[s.at]
	switch {
	case c == '\n':
		s.at++
		s.line++
		if len(s.pending) == 1 && !(s.at > 1 && s.text[s.at-2] == '\\') {
			s.depth, s.pending[0], s.begun = 0, 0, false
		}
		return nil
	case c == ' ' || c == '\t' || c == '\r' || c == '\\' || c == '\f':
		s.at++
		return nil
	case c == '#':
		s.skip(bytes.IndexByte(s.text[s.at:], '\n'))
		return nil
	}
	if !s.begun && len(s.pending) == 1 {
		s.begun = true
		if err := s.statement(); err != nil {
			return err
		}
	}
	switch {
	case c == '\'' || c == '"':
		s.quoted(c)
		return nil
	case isWord(c):
		if slices.Contains(operators, s.word()) {
			return s.operator()
		}
		return nil
	}
	s.at++
	last := len(s.pending) - 1
	switch c {
	case ',', ';':
		s.depth -= s.pending[last]
		s.pending[last] = 0
		return nil
	case ')', ']', '}':
		if last > 0 {
			s.depth -= s.pending[last]
			s.pending = s.pending[:last]
		}
		return nil
	case '(', '[', '{':
		err := s.operator()
		s.pending = append(s.pending, 0)
		return err
	}
	return s.operator()
}

// operator counts one.
func (s *source) operator() error {
	s.pending[len(s.pending)-1]++
	if s.depth++; s.depth > expressionDepth {
		return fmt.Errorf("an expression of more than %d operators and brackets inside each other", expressionDepth)
	}
	return nil
}

// statement looks at the indentation of the line that begins here.
func (s *source) statement() error {
	indent := s.at - 1 - bytes.LastIndexByte(s.text[:s.at], '\n')
	for len(s.blocks) > 0 && s.blocks[len(s.blocks)-1].indent > indent {
		s.blocks = s.blocks[:len(s.blocks)-1]
	}
	if len(s.blocks) == 0 || s.blocks[len(s.blocks)-1].indent < indent {
		s.blocks = append(s.blocks, block{indent: indent})
	}
	b := &s.blocks[len(s.blocks)-1]
	switch {
	case bytes.HasPrefix(s.text[s.at:], []byte("elif")):
		b.chained++
	case !bytes.HasPrefix(s.text[s.at:], []byte("else")):
		b.chained = 0
	}
	deep := 0
	for _, b := range s.blocks {
		deep += 1 + b.chained
	}
	if deep > statementDepth {
		return fmt.Errorf("more than %d statements inside each other", statementDepth)
	}
	return nil
}

// skip goes on by n bytes, or to the end where n is negative.
func (s *source) skip(n int) {
	if n < 0 {
		n = len(s.text) - s.at
	}
	s.line += bytes.Count(s.text[s.at:s.at+n], []byte("\n"))
	s.at += n
}

// quoted skips a string, of one line or between three quotes.
func (s *source) quoted(quote byte) {
	three := bytes.Repeat([]byte{quote}, 3)
	if bytes.HasPrefix(s.text[s.at:], three) {
		end := bytes.Index(s.text[s.at+3:], three)
		if end >= 0 {
			end += 6
		}
		s.skip(end)
		return
	}
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\n':
			return // not a string: libtorch says so
		case '\\':
			s.at++
		case quote:
			s.at++
			return
		}
	}
	s.at = min(s.at, len(s.text))
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// word reads a name, a keyword or the beginning of a number.
func (s *source) word() string {
	start := s.at
	for s.at < len(s.text) && isWord(s.text[s.at]) {
		s.at++
	}
	return string(s.text[start:s.at])
}
