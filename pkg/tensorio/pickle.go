package tensorio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"roadmap/pkg/fault"
)

// A pickle is a program for a small stack machine; CPython's
// Lib/pickletools.py describes its instructions, protocols 0 to 5. Python's own
// machine imports and calls what the program names. This one calls nothing:
// it knows a handful of constructors by name, builds those values itself,
// and keeps every other object as an opaque Object.

// What one pickle may build is bounded by its own length, and by pickleMemory.
// Every instruction pays for the memory it can hold on to and nothing is paid
// back, which also bounds time. The costliest instructions are a byte long (an
// empty set) and make an object; copying a value once more is paid anew, so
// that a short pickle cannot copy a long list over and over.
const (
	pickleMemory    = 256 << 20 // bytes
	pickleFactor    = 320       // bytes for each of the pickle: an object and a memo place
	pickleFloor     = 1 << 16   // bytes for a short pickle
	instructionCost = 64        // a stack or memo place, a list item or half a dict entry
	objectCost      = 192       // a tensor, object or container
	integerLimit    = 1 << 10   // bytes of one integer; random states take a few
	dimensionLimit  = 64        // of a tensor, PyTorch's own
)

// budget is the memory that is left to build values with, in bytes.
type budget struct{ left, all int }

// newBudget is that of a pickle of so many bytes.
func newBudget(pickle int) *budget {
	all := pickleFloor + pickleFactor*min(pickle, pickleMemory/pickleFactor)
	return &budget{all, all}
}

func (b *budget) charge(bytes int) error {
	if b.left -= bytes; b.left < 0 {
		return fmt.Errorf("builds more than %d bytes of values, out of all proportion to its length; refused", b.all)
	}
	return nil
}

// Values of a pickle. Plain ones are nil, bool, int64, *big.Int (beyond
// int64), float64, string and Bytes; tensors of a .pth are *Stored.
type (
	// Bytes is a Python bytes or bytearray.
	Bytes []byte
	// Tuple is a Python tuple.
	Tuple []any
	// List is a Python list.
	List struct{ Items []any }
	// Dict is a Python dict or one of its standard kin (OrderedDict), in order
	// of insertion. Of equal keys the last one's value is kept.
	Dict struct {
		Keys, Values []any
		place        map[any]int // of the keys that Go can compare
	}
	// Global is the name of a class or function, which is never looked up.
	Global struct{ Module, Name string }
	// Object is an instance of a class that this package does not know (or a
	// set): what was pickled of it, uninterpreted.
	Object struct {
		Class Global
		Args  Tuple // of its constructor
		State any   // its attributes, usually a *Dict
		Items *List // of a list's or set's kin; may be nil
		Dict  *Dict // of a dict's kin; may be nil
	}
)

func (g Global) String() string { return g.Module + "." + g.Name }

// Get looks a string, int64, bool, float64 or Global up.
func (d *Dict) Get(key any) (any, bool) {
	if !comparable(key) {
		return nil, false
	}
	i, ok := d.place[key]
	if !ok {
		return nil, false
	}
	return d.Values[i], true
}

func (d *Dict) set(key, value any) {
	if comparable(key) {
		if i, ok := d.place[key]; ok {
			d.Values[i] = value
			return
		}
		if d.place == nil {
			d.place = map[any]int{}
		}
		d.place[key] = len(d.Keys)
	}
	d.Keys, d.Values = append(d.Keys, key), append(d.Values, value)
}

// comparable reports whether a value may be a Go map's key.
func comparable(v any) bool {
	switch v.(type) {
	case nil, bool, int64, float64, string, Global:
		return true
	}
	return false
}

// Unpickle interprets a pickle without persistent references, such as
// pickle.dump writes, and returns its value. Nothing is imported or called;
// objects of unknown classes become *Object. A pickle that names something
// that acts on the system (os.system, eval, …) is refused.
func Unpickle(data []byte) (any, error) {
	value, err := (&machine{data: data}).run()
	if err != nil {
		return nil, fault.Input(err)
	}
	return value, nil
}

// UnpickleFile is Unpickle of a file's content; it names the file in errors.
func UnpickleFile(path string) (any, error) {
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	defer m.close()
	value, err := Unpickle(m.data)
	if err != nil {
		return nil, fault.Inputf("%s: %w", path, err)
	}
	return value, nil
}

// machine is the interpreter's state.
type machine struct {
	data  []byte
	pos   int
	stack []any
	marks []int // heights of the stack, innermost last
	memo  map[uint64]any
	steps uint64 // instructions done
	// budget is filled in by run where it is not given.
	*budget
	// made, where it is not nil, is told of every value that is pushed: the
	// pickle is libtorch's to read, too.
	made func(v any)
	// persistent resolves a persistent id (a storage); nil refuses them.
	persistent func(id any) (any, error)
}

var errStop = errors.New("stop")

// run executes instructions up to STOP.
func (m *machine) run() (any, error) {
	m.memo = map[uint64]any{}
	if m.budget == nil {
		m.budget = newBudget(len(m.data))
	}
	for ; ; m.steps++ {
		at := m.pos
		op, err := m.byte()
		if err == nil {
			err = m.charge(instructionCost)
		}
		if err == nil {
			err = m.step(op)
		}
		var value any
		if err == errStop {
			if value, err = m.pop(); err == nil {
				return value, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("pickle byte %d: %w", at, err)
		}
	}
}

// Reading the program.

func (m *machine) byte() (byte, error) {
	b, err := m.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (m *machine) take(n int) ([]byte, error) {
	if n < 0 || n > len(m.data)-m.pos {
		return nil, errors.New("ends too early; the file was cut short")
	}
	b := m.data[m.pos : m.pos+n : m.pos+n]
	m.pos += n
	return b, nil
}

// uint reads a little-endian number of 1 to 8 bytes.
func (m *machine) uint(size int) (uint64, error) {
	b, err := m.take(size)
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:]), nil
}

// counted reads a length of the given size and that many bytes.
func (m *machine) counted(size int) ([]byte, error) {
	n, err := m.uint(size)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(m.data)) {
		return nil, fmt.Errorf("claims %d bytes, more than there are", n)
	}
	b, err := m.take(int(n))
	if err != nil {
		return nil, err
	}
	return b, m.charge(len(b))
}

// line reads up to a newline, which it drops.
func (m *machine) line() (string, error) {
	end := bytes.IndexByte(m.data[m.pos:], '\n')
	if end < 0 {
		return "", errors.New("a line does not end; the file was cut short")
	}
	b, _ := m.take(end + 1)
	return string(b[:end]), m.charge(end)
}

// The stack.

func (m *machine) push(v any) error {
	m.stack = append(m.stack, v)
	if m.made != nil {
		m.made(v)
	}
	return nil
}

// floor is the height below which the innermost MARK protects the stack.
func (m *machine) floor() int {
	if len(m.marks) == 0 {
		return 0
	}
	return m.marks[len(m.marks)-1]
}

func (m *machine) top() (any, error) {
	if len(m.stack) <= m.floor() {
		return nil, errors.New("the stack is empty; the pickle is damaged")
	}
	return m.stack[len(m.stack)-1], nil
}

func (m *machine) pop() (any, error) {
	v, err := m.top()
	if err == nil {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return v, err
}

// popN pops n values, returned in the order they were pushed.
func (m *machine) popN(n int) (Tuple, error) {
	if len(m.stack)-m.floor() < n {
		return nil, errors.New("the stack is empty; the pickle is damaged")
	}
	values := slices.Clone(m.stack[len(m.stack)-n:])
	m.stack = m.stack[:len(m.stack)-n]
	return values, nil
}

// popMark pops everything down to the innermost mark, and the mark.
func (m *machine) popMark() (Tuple, error) {
	if len(m.marks) == 0 {
		return nil, errors.New("no mark on the stack; the pickle is damaged")
	}
	values, err := m.popN(len(m.stack) - m.floor())
	m.marks = m.marks[:len(m.marks)-1]
	return values, err
}

// popAs pops a value of one type.
func popAs[T any](m *machine, what string) (T, error) {
	var none T
	v, err := m.pop()
	if err != nil {
		return none, err
	}
	typed, ok := v.(T)
	if !ok {
		return none, fmt.Errorf("%s stands where %s belongs", kindOf(v), what)
	}
	return typed, nil
}

// kindOf names a value's type for an error, never its content, which may be
// huge or contain itself.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, *big.Int:
		return "an integer"
	case float64:
		return "a float"
	case string:
		return "a string"
	case Bytes:
		return "bytes"
	case Tuple:
		return "a tuple"
	case *List:
		return "a list"
	case *Dict:
		return "a dict"
	case Global:
		return clip(v.String())
	case *Object:
		return "an object of " + clip(v.Class.String())
	case *Stored:
		return "a tensor"
	case *storage:
		return "a storage"
	}
	return fmt.Sprintf("%T", v)
}

// step executes one instruction.
func (m *machine) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		version, err := m.byte()
		if err == nil && version > 5 {
			err = fmt.Errorf("pickle protocol %d is unknown (up to 5 are known)", version)
		}
		return err
	case 0x95: // FRAME
		_, err := m.take(8)
		return err
	case '.': // STOP
		return errStop
	case 'N':
		return m.push(nil)
	case 0x88:
		return m.push(true)
	case 0x89:
		return m.push(false)
	case 'I', 'L', 'J', 'K', 'M', 0x8a, 0x8b:
		return m.integer(op)
	case 'F', 'G':
		return m.float(op)
	case 'S', 'T', 'U', 'V', 'X', 0x8c, 0x8d:
		return m.text(op)
	case 'B':
		return m.bytesOf(4)
	case 'C':
		return m.bytesOf(1)
	case 0x8e, 0x96: // BINBYTES8, BYTEARRAY8
		return m.bytesOf(8)
	case '(', '0', '1', '2':
		return m.shuffle(op)
	case 'p', 'q', 'r', 0x94, 'g', 'h', 'j':
		return m.remember(op)
	case ')', 't', 0x85, 0x86, 0x87, ']', 'l', '}', 'd', 0x8f, 0x91:
		return m.container(op)
	case 'a', 'e', 's', 'u', 0x90:
		return m.fill(op)
	case 'c', 0x93, 'R', 'i', 'o', 0x81, 0x92, 'b':
		return m.object(op)
	case 'P', 'Q':
		return m.reference(op)
	}
	return fmt.Errorf("instruction 0x%02x is not one that tables of tensors use; save the file again with torch.save", op)
}

// integer pushes INT, LONG, BININT, BININT1, BININT2, LONG1 or LONG4.
func (m *machine) integer(op byte) error {
	switch op {
	case 'J':
		n, err := m.uint(4)
		if err != nil {
			return err
		}
		return m.push(int64(int32(n)))
	case 'K', 'M':
		n, err := m.uint(map[byte]int{'K': 1, 'M': 2}[op])
		if err != nil {
			return err
		}
		return m.push(int64(n))
	case 0x8a, 0x8b:
		b, err := m.counted(map[byte]int{0x8a: 1, 0x8b: 4}[op])
		if err != nil {
			return err
		}
		if len(b) > integerLimit {
			return fmt.Errorf("an integer of %d bytes", len(b))
		}
		return m.push(twosComplement(b))
	}
	line, err := m.line()
	if err != nil {
		return err
	}
	if op == 'I' && (line == "00" || line == "01") { // protocol 0 writes bools so
		return m.push(line == "01")
	}
	n, ok := new(big.Int), len(line) <= integerLimit
	if ok {
		n, ok = n.SetString(strings.TrimSuffix(line, "L"), 10)
	}
	if !ok {
		return fmt.Errorf("%q is not an integer", clip(line))
	}
	return m.push(shrink(n))
}

// twosComplement reads a little-endian signed number of any length.
func twosComplement(b []byte) any {
	digits := slices.Clone(b)
	slices.Reverse(digits)
	n := new(big.Int).SetBytes(digits)
	if len(b) > 0 && b[len(b)-1]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return shrink(n)
}

// shrink returns n as int64 where it fits.
func shrink(n *big.Int) any {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// float pushes FLOAT or BINFLOAT.
func (m *machine) float(op byte) error {
	if op == 'G' {
		b, err := m.take(8)
		if err != nil {
			return err
		}
		return m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
	}
	line, err := m.line()
	if err != nil {
		return err
	}
	x, err := strconv.ParseFloat(line, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number", clip(line))
	}
	return m.push(x)
}

// text pushes a string. Those of Python 2 (STRING, BINSTRING) are bytes that
// it meant as text; they are taken as such.
func (m *machine) text(op byte) error {
	if op == 'S' || op == 'V' {
		line, err := m.line()
		if err != nil {
			return err
		}
		if op == 'S' {
			if len(line) < 2 || line[0] != line[len(line)-1] || (line[0] != '\'' && line[0] != '"') {
				return fmt.Errorf("%q is not a quoted string", clip(line))
			}
			line = line[1 : len(line)-1]
		}
		if strings.ContainsRune(line, '\\') {
			return errors.New("a string with escapes, as protocol 0 writes; pickle it again with protocol 2 or later")
		}
		return m.push(line)
	}
	b, err := m.counted(map[byte]int{'T': 4, 'U': 1, 'X': 4, 0x8c: 1, 0x8d: 8}[op])
	if err != nil {
		return err
	}
	if op != 'T' && op != 'U' && !utf8.Valid(b) {
		return errors.New("a string is not UTF-8; the pickle is damaged")
	}
	return m.push(string(b))
}

func (m *machine) bytesOf(size int) error {
	b, err := m.counted(size)
	if err != nil {
		return err
	}
	return m.push(Bytes(slices.Clone(b)))
}

// shuffle does MARK, POP, POP_MARK and DUP.
func (m *machine) shuffle(op byte) error {
	switch op {
	case '(':
		m.marks = append(m.marks, len(m.stack))
		return nil
	case '1':
		_, err := m.popMark()
		return err
	case '2':
		v, err := m.top()
		if err != nil {
			return err
		}
		return m.push(v)
	}
	if len(m.marks) > 0 && len(m.stack) == m.floor() { // POP also pops a mark
		m.marks = m.marks[:len(m.marks)-1]
		return nil
	}
	_, err := m.pop()
	return err
}

// remember does PUT, BINPUT, LONG_BINPUT, MEMOIZE, GET, BINGET and LONG_BINGET.
func (m *machine) remember(op byte) error {
	var place uint64
	var err error
	switch op {
	case 'p', 'g':
		var line string
		if line, err = m.line(); err == nil {
			if place, err = strconv.ParseUint(line, 10, 32); err != nil {
				err = fmt.Errorf("%q is not a memo's number", clip(line))
			}
		}
	case 'q', 'h':
		place, err = m.uint(1)
	case 'r', 'j':
		place, err = m.uint(4)
	case 0x94:
		place = uint64(len(m.memo))
	}
	if err != nil {
		return err
	}
	if op == 'g' || op == 'h' || op == 'j' {
		v, ok := m.memo[place]
		if !ok {
			return fmt.Errorf("nothing was remembered as %d; the pickle is damaged", place)
		}
		return m.push(v)
	}
	if m.made != nil && place > m.steps { // libtorch, which is to read it next, makes room for all places below
		return fmt.Errorf("something is to be remembered as %d, after %d instructions; the pickle is damaged or made to mislead", place, m.steps)
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	m.memo[place] = v
	return m.charge(instructionCost)
}

// container pushes a tuple, list, dict or set.
func (m *machine) container(op byte) error {
	if err := m.charge(objectCost); err != nil {
		return err
	}
	switch op {
	case ')':
		return m.push(Tuple{})
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		items, err := m.popN(int(op - 0x84))
		if err != nil {
			return err
		}
		return m.push(items)
	case ']':
		return m.push(&List{})
	case '}':
		return m.push(&Dict{})
	case 0x8f:
		return m.push(&Object{Class: Global{"builtins", "set"}, Items: &List{}})
	}
	items, err := m.popMark()
	if err != nil {
		return err
	}
	switch op {
	case 't':
		return m.push(items)
	case 'l':
		return m.push(&List{Items: items})
	case 0x91:
		return m.push(&Object{Class: Global{"builtins", "frozenset"}, Items: &List{Items: items}})
	}
	d := &Dict{} // DICT
	if err := m.setItems(d, items); err != nil {
		return err
	}
	return m.push(d)
}

// setItems puts key, value, key, value, … into d. A long key is paid for, in
// time, each time it is looked up.
func (m *machine) setItems(d *Dict, items []any) error {
	if len(items)%2 != 0 {
		return errors.New("a dict's key lacks its value; the pickle is damaged")
	}
	for i := 0; i < len(items); i += 2 {
		if key, ok := items[i].(string); ok {
			if err := m.charge(len(key)); err != nil {
				return err
			}
		}
		d.set(items[i], items[i+1])
	}
	return nil
}

// fill does APPEND, APPENDS, ADDITEMS, SETITEM and SETITEMS.
func (m *machine) fill(op byte) error {
	var items Tuple
	var err error
	switch op {
	case 'a':
		items, err = m.popN(1)
	case 's':
		items, err = m.popN(2)
	default:
		items, err = m.popMark()
	}
	if err != nil {
		return err
	}
	target, err := m.top()
	if err != nil {
		return err
	}
	pairs := op == 's' || op == 'u'
	switch target := target.(type) {
	case *List:
		if !pairs {
			target.Items = append(target.Items, items...)
			return nil
		}
	case *Dict:
		if pairs {
			return m.setItems(target, items)
		}
	case *Object:
		if pairs {
			if target.Dict == nil {
				target.Dict = &Dict{}
			}
			return m.setItems(target.Dict, items)
		}
		if target.Items == nil {
			target.Items = &List{}
		}
		target.Items.Items = append(target.Items.Items, items...)
		return nil
	}
	return fmt.Errorf("items for %s, which holds none; the pickle is damaged", kindOf(target))
}

// object names a class or function, makes an object, or gives it its state.
func (m *machine) object(op byte) error {
	switch op {
	case 'c': // GLOBAL
		g, err := m.globalLines()
		if err != nil {
			return err
		}
		return m.push(g)
	case 0x93: // STACK_GLOBAL
		name, err := popAs[string](m, "a name")
		if err != nil {
			return err
		}
		module, err := popAs[string](m, "a module's name")
		if err != nil {
			return err
		}
		g := Global{module, name}
		if err := harmless(g); err != nil {
			return err
		}
		return m.push(g)
	case 'b': // BUILD
		state, err := m.pop()
		if err != nil {
			return err
		}
		target, err := m.top()
		if err != nil {
			return err
		}
		return setState(target, state)
	}
	class, args, err := m.call(op)
	if err != nil {
		return err
	}
	if err := m.charge(objectCost + 2*instructionCost*itemsIn(args)); err != nil {
		return err
	}
	v, err := construct(class, args)
	if err != nil {
		return fmt.Errorf("%s: %w", clip(class.String()), err)
	}
	return m.push(v)
}

// itemsIn counts what the arguments of a class or function hold, which may be
// copied: set([…]), OrderedDict([(key, value), …]), a tensor's shape.
func itemsIn(args Tuple) int {
	n := 0
	for _, arg := range args {
		n += length(arg)
		if inner, ok := arg.(Tuple); ok {
			for _, item := range inner {
				n += length(item)
			}
		}
	}
	return n
}

// length is the number of items of a tuple or list.
func length(v any) int {
	switch v := v.(type) {
	case Tuple:
		return len(v)
	case *List:
		return len(v.Items)
	}
	return 0
}

// globalLines reads the two lines that name a class or function.
func (m *machine) globalLines() (Global, error) {
	module, err := m.line()
	if err != nil {
		return Global{}, err
	}
	name, err := m.line()
	if err != nil {
		return Global{}, err
	}
	g := Global{module, name}
	return g, harmless(g)
}

// call takes the class or function, and its arguments, of REDUCE, NEWOBJ,
// NEWOBJ_EX, INST or OBJ.
func (m *machine) call(op byte) (class Global, args Tuple, err error) {
	switch op {
	case 'i':
		if class, err = m.globalLines(); err != nil {
			return class, nil, err
		}
		args, err = m.popMark()
		return class, args, err
	case 'o':
		items, err := m.popMark()
		if err != nil {
			return class, nil, err
		}
		if len(items) > 0 {
			if class, ok := items[0].(Global); ok {
				return class, items[1:], nil
			}
		}
		return class, nil, errors.New("an object without a class; the pickle is damaged")
	case 0x92: // NEWOBJ_EX
		if _, err := popAs[*Dict](m, "keyword arguments"); err != nil {
			return class, nil, err
		}
	}
	if args, err = popAs[Tuple](m, "a tuple of arguments"); err != nil {
		return class, nil, err
	}
	class, err = popAs[Global](m, "a class or function")
	return class, args, err
}

// setState is BUILD: the attributes of an object. Those of dicts and tensors
// (a state_dict's _metadata, say) have no bearing on their content.
func setState(target, state any) error {
	switch target := target.(type) {
	case *Object:
		target.State = state
	case *Dict, *Stored:
	default:
		return fmt.Errorf("attributes for %s, which has none; the pickle is damaged", kindOf(target))
	}
	return nil
}

// reference resolves PERSID or BINPERSID.
func (m *machine) reference(op byte) error {
	var id any
	var err error
	if op == 'P' {
		id, err = m.line()
	} else {
		id, err = m.pop()
	}
	if err != nil {
		return err
	}
	if m.persistent == nil {
		return errors.New("a reference to data outside the pickle; only torch.save's zip files have those")
	}
	if err := m.charge(objectCost); err != nil {
		return err
	}
	v, err := m.persistent(id)
	if err != nil {
		return err
	}
	return m.push(v)
}

// active are modules, and names of builtins, that no table of tensors needs
// and that attacks are made of. Nothing would be run without this list either:
// it is there because such a file is dangerous wherever else it is loaded.
var (
	activeModules = []string{
		"os", "posix", "nt", "sys", "subprocess", "socket", "shutil", "runpy", "importlib", "pty", "ctypes", "code", "codeop", "commands",
		"webbrowser", "marshal", "pickle", "_pickle", "asyncio", "multiprocessing", "threading", "signal", "timeit", "pdb", "bdb",
		"cProfile", "profile", "trace", "pip", "http.server", "urllib.request", "ftplib", "smtplib", "tempfile", "imp",
	}
	activeBuiltins = []string{
		"eval", "exec", "execfile", "compile", "open", "file", "input", "raw_input", "setattr", "delattr", "globals", "locals", "vars",
		"__import__", "breakpoint", "apply",
	}
)

// harmless refuses names that act on the system.
func harmless(g Global) error {
	builtin := g.Module == "builtins" || g.Module == "__builtin__"
	if slices.Contains(activeModules, g.Module) || builtin && slices.Contains(activeBuiltins, g.Name) {
		return fmt.Errorf("the file wants %s called, which no table of tensors needs and which can do harm; nothing was run. "+
			"Do not load it in Python; get the file from a source you trust", clip(g.String()))
	}
	return nil
}
