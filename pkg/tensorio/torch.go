package tensorio

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
)

// A file of torch.save, since PyTorch 1.6, is a zip archive of uncompressed
// records in one folder: data.pkl, whose persistent ids name storages, and
// data/0, data/1, … with their bytes (torch/serialization.py, _save). That of
// torch.jit.save has code/ and constants.pkl beside them.

var zipMagic = []byte("PK\x03\x04")

const (
	directoryLimit = 16 << 20 // bytes of a zip's directory, about 200,000 storages
	depthLimit     = 64       // of nested dicts and objects
)

// archive is a torch zip file's records by their name below its folder.
type archive struct {
	records map[string]record
	folder  string
	big     bool // storages are big-endian
}

// record is one file of the archive; packed says why it has no bytes.
type record struct {
	name        string
	begin, size int
	bytes       []byte
	packed      bool
	file        *zip.File
	whole       func() error // compares the bytes with their CRC-32; nil: it has none
}

// openZip reads a zip's directory, within bounds.
func openZip(data []byte) (*zip.Reader, error) {
	if err := checkDirectory(data); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are only compared here
		return nil, damagedf("not a whole zip file (%w); copy or download it again", err)
	}
	return z, nil
}

// parseZip tells what wrote a zip file.
func parseZip(data []byte) (*File, error) {
	if z, err := openZip(data); err == nil && isNPZ(z) {
		return parseNPZ(z, data)
	}
	return parseTorch(data)
}

// openArchive reads a zip's directory. Records that are compressed, encrypted
// or overlap each other are no work of torch.save and not read, which leaves a
// zip bomb nothing to blow up.
func openArchive(data []byte) (*archive, error) {
	z, err := openZip(data)
	if err != nil {
		return nil, err
	}
	a := &archive{records: make(map[string]record, len(z.File))}
	var spans []record
	for i, f := range z.File {
		folder, name, nested := strings.Cut(f.Name, "/")
		switch {
		case !nested:
			return nil, damagedf("record %q lies in no folder; torch.save did not write this zip file", clip(f.Name))
		case i == 0:
			a.folder = folder
		case folder != a.folder:
			return nil, damagedf("records %q and %q lie in two folders; torch.save did not write this zip file", clip(a.folder), clip(f.Name))
		}
		if _, double := a.records[name]; double {
			return nil, damagedf("two records are called %q", clip(f.Name))
		}
		r := record{name: f.Name, packed: f.Method != zip.Store || f.Flags&1 != 0, file: f}
		if !r.packed {
			if r.begin, r.bytes, err = stored(f, data); err != nil {
				return nil, err
			}
			r.size = len(r.bytes)
			r.whole = checkCRC(r.name, r.bytes, f.CRC32)
			spans = append(spans, r)
		}
		a.records[name] = r
	}
	slices.SortFunc(spans, func(x, y record) int { return cmp.Compare(x.begin, y.begin) })
	for i := 1; i < len(spans); i++ {
		if before := spans[i-1]; before.begin+before.size > spans[i].begin {
			return nil, damagedf("records %q and %q overlap; the file is damaged or made to mislead", clip(before.name), clip(spans[i].name))
		}
	}
	return a, nil
}

// stored finds the bytes of a record that is not compressed.
func stored(f *zip.File, data []byte) (begin int, content []byte, err error) {
	offset, err := f.DataOffset()
	if err != nil {
		return 0, nil, damagedf("record %q: %w", clip(f.Name), err)
	}
	size := f.UncompressedSize64
	if size != f.CompressedSize64 || offset < 0 || offset > int64(len(data)) || size > uint64(int64(len(data))-offset) {
		return 0, nil, damagedf("record %q: %d bytes from %d on are not in the file", clip(f.Name), size, offset)
	}
	begin = int(offset)
	return begin, data[begin : begin+int(size) : begin+int(size)], nil
}

// checkDirectory bounds the zip's directory before it is read into memory.
func checkDirectory(data []byte) error {
	const fixed = 22 // bytes of the end record without its comment
	tail := data[max(0, len(data)-fixed-1<<16):]
	at := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if at < 0 || len(tail)-at < fixed {
		return damagedf("the zip's directory at the end is missing; the file was cut short")
	}
	size := uint64(binary.LittleEndian.Uint32(tail[at+12:]))
	if size == 0xffffffff { // zip64: the size stands in a record of its own
		end := bytes.LastIndex(tail[:at], []byte("PK\x06\x06"))
		if end < 0 || at-end < 48 {
			return damagedf("the zip64 directory at the end is missing; the file was cut short")
		}
		size = binary.LittleEndian.Uint64(tail[end+40:])
	}
	if size > directoryLimit {
		return damagedf("the zip's directory of %d bytes is beyond %d; no table of tensors has that many records", size, directoryLimit)
	}
	return nil
}

// whole compares every record with its CRC-32.
func (a *archive) whole() error {
	for _, r := range a.records {
		if r.whole != nil {
			if err := r.whole(); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns a record that has bytes.
func (a *archive) need(name string) (record, error) {
	r, ok := a.records[name]
	switch {
	case !ok:
		return r, fmt.Errorf("record %q is missing", clip(a.folder+"/"+name))
	case r.packed:
		return r, fmt.Errorf("record %q is compressed or encrypted, which torch.save never does; unpack the zip and store it without compression", clip(r.name))
	}
	return r, nil
}

// parseTorch reads data.pkl and finds the tensors in it.
func parseTorch(data []byte) (*File, error) {
	a, err := openArchive(data)
	if err != nil {
		return nil, err
	}
	f := &File{Format: Torch, whole: a.whole}
	if _, script := a.records["constants.pkl"]; script {
		f.Format = TorchScript
	}
	if order, ok := a.records["byteorder"]; ok && string(order.bytes) == "big" {
		a.big = true
	}
	if f.Object, err = a.unpickle("data"); err != nil {
		return nil, err
	}
	f.pickled = len(a.records["data.pkl"].bytes)
	f.entries, err = tensorsIn(f.Object, f.pickled)
	return f, err
}

// unpickle reads the record name.pkl, whose storages lie in the folder name.
func (a *archive) unpickle(name string) (any, error) {
	program, err := a.need(name + ".pkl")
	if err != nil {
		return nil, fmt.Errorf("%w: neither torch.save nor torch.jit.save wrote this zip file", err)
	}
	return a.run(&machine{data: program.bytes, persistent: func(id any) (any, error) { return a.storage(name, id) }}, program)
}

// run interprets the pickle in a record, whose CRC-32 is compared first.
func (a *archive) run(m *machine, program record) (any, error) {
	if program.whole != nil {
		if err := program.whole(); err != nil {
			return nil, err
		}
	}
	value, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", clip(program.name), err)
	}
	return value, nil
}

// storage is a persistent id resolved: bytes, and the type of their elements.
type storage struct {
	bytes []byte
	dtype DType
	other string // where the type cannot be read
	big   bool
	whole func() error // see Stored

	unseen bool // its bytes are not known yet
}

// storageTypes maps the names of torch's storage classes and of its dtypes.
var storageTypes = map[string]DType{
	"BoolStorage": Bool, "ByteStorage": Uint8, "CharStorage": Int8, "ShortStorage": Int16, "IntStorage": Int32, "LongStorage": Int64,
	"HalfStorage": Float16, "BFloat16Storage": BFloat16, "FloatStorage": Float32, "DoubleStorage": Float64, "UntypedStorage": Uint8,
	"bool": Bool, "uint8": Uint8, "int8": Int8, "uint16": Uint16, "int16": Int16, "uint32": Uint32, "int32": Int32, "uint64": Uint64,
	"int64": Int64, "float16": Float16, "bfloat16": BFloat16, "float32": Float32, "float64": Float64,
}

// storage resolves ("storage", torch.FloatStorage, "0", "cpu", 24).
func (a *archive) storage(folder string, id any) (any, error) {
	name, s, count, err := describe(id)
	if err != nil {
		return nil, err
	}
	data, err := a.need(folder + "/" + name)
	if err != nil {
		return nil, err
	}
	s.big, s.whole = a.big, data.whole
	return s, s.fill(name, data.bytes, count)
}

// describe reads a persistent id: the class, the record, the device (of no
// interest here) and the number of elements.
func describe(id any) (name string, s *storage, count int, err error) {
	damaged := errors.New("a storage is named in an unknown way; the file is damaged or of a newer PyTorch")
	fields, ok := id.(Tuple)
	if !ok || len(fields) < 5 || fields[0] != "storage" {
		return "", nil, 0, damaged
	}
	class, isClass := fields[1].(Global)
	name, isName := fields[2].(string)
	n, isCount := fields[4].(int64)
	if !isClass || !isName || !isCount || n < 0 {
		return "", nil, 0, damaged
	}
	s = &storage{dtype: storageTypes[class.Name]}
	if s.dtype == Invalid {
		s.other = strings.TrimSuffix(class.Name, "Storage")
	}
	return name, s, int(n), nil
}

// fill gives a storage the first count elements of data.
func (s *storage) fill(name string, data []byte, count int) error {
	if s.dtype == Invalid {
		s.bytes = data
		return nil
	}
	if count > len(data)/s.dtype.Size() {
		return fmt.Errorf("storage %q claims %d elements of %v, its record holds %d bytes", clip(name), count, s.dtype, len(data))
	}
	s.bytes = data[:count*s.dtype.Size()]
	return nil
}

// construct makes the value of a class or function called with args.
func construct(g Global, args Tuple) (any, error) {
	if build, known := constructors[g]; known {
		return build(args)
	}
	return &Object{Class: g, Args: args}, nil
}

// constructors are the classes and functions whose values this package makes
// itself; those of other names are opaque.
var constructors map[Global]func(Tuple) (any, error)

func init() { // a literal would refer to itself through construct
	constructors = map[Global]func(Tuple) (any, error){
		{"collections", "OrderedDict"}:                    makeDict,
		{"collections", "defaultdict"}:                    func(Tuple) (any, error) { return &Dict{}, nil },
		{"builtins", "dict"}:                              makeDict,
		{"__builtin__", "dict"}:                           makeDict,
		{"builtins", "set"}:                               makeSet,
		{"__builtin__", "set"}:                            makeSet,
		{"builtins", "frozenset"}:                         makeSet,
		{"__builtin__", "frozenset"}:                      makeSet,
		{"copyreg", "_reconstructor"}:                     reconstruct,
		{"copy_reg", "_reconstructor"}:                    reconstruct,
		{"torch", "Size"}:                                 makeSize,
		{"torch._utils", "_rebuild_tensor"}:               rebuildTensor,
		{"torch._utils", "_rebuild_tensor_v2"}:            rebuildTensor,
		{"torch._utils", "_rebuild_tensor_v3"}:            rebuildTensor3,
		{"torch._utils", "_rebuild_parameter"}:            rebuildParameter,
		{"torch._tensor", "_rebuild_from_type_v2"}:        rebuildFromType,
		{"torch.jit._pickle", "build_intlist"}:            makeSize,
		{"torch.jit._pickle", "build_doublelist"}:         makeSize,
		{"torch.jit._pickle", "build_boollist"}:           makeSize,
		{"torch.jit._pickle", "build_tensorlist"}:         makeSize,
		{"torch.jit._pickle", "restore_type_tag"}:         first,
		{"torch._utils", "_rebuild_parameter_with_state"}: rebuildParameter,
	}
}

var errArguments = errors.New("called with arguments it does not take; the file is damaged or of a newer PyTorch")

// first returns the first argument.
func first(args Tuple) (any, error) {
	if len(args) == 0 {
		return nil, errArguments
	}
	return args[0], nil
}

// makeSize is a class that holds one sequence, as torch.Size does.
func makeSize(args Tuple) (any, error) {
	if len(args) != 1 {
		return nil, errArguments
	}
	switch items := args[0].(type) {
	case Tuple:
		return items, nil
	case *List:
		return items, nil
	}
	return nil, errArguments
}

// makeDict is dict() or OrderedDict([(key, value), …]).
func makeDict(args Tuple) (any, error) {
	d := &Dict{}
	if len(args) == 0 {
		return d, nil
	}
	pairs, ok := args[0].(*List)
	if !ok {
		return nil, errArguments
	}
	for _, item := range pairs.Items {
		switch pair := item.(type) {
		case Tuple:
			if len(pair) == 2 {
				d.set(pair[0], pair[1])
				continue
			}
		case *List: // Python 2 pickled pairs as lists
			if len(pair.Items) == 2 {
				d.set(pair.Items[0], pair.Items[1])
				continue
			}
		}
		return nil, errArguments
	}
	return d, nil
}

// makeSet is set([…]) or frozenset([…]).
func makeSet(args Tuple) (any, error) {
	items := &List{}
	if len(args) > 0 {
		list, ok := args[0].(*List)
		if !ok {
			return nil, errArguments
		}
		items.Items = slices.Clone(list.Items)
	}
	return &Object{Class: Global{"builtins", "set"}, Items: items}, nil
}

// reconstruct is copyreg._reconstructor(class, base, state): an instance of a
// plain Python class.
func reconstruct(args Tuple) (any, error) {
	if len(args) == 3 {
		if class, ok := args[0].(Global); ok {
			return &Object{Class: class, Args: args[1:]}, nil
		}
	}
	return nil, errArguments
}

// rebuildTensor is torch._utils._rebuild_tensor_v2(storage, offset, size,
// stride, requires_grad, backward_hooks); the first version ends after stride.
func rebuildTensor(args Tuple) (any, error) {
	if len(args) < 4 {
		return nil, errArguments
	}
	from, ok := args[0].(*storage)
	if !ok {
		return nil, errArguments
	}
	return viewStorage(from, args)
}

// rebuildTensor3 is _rebuild_tensor_v3, whose storage is untyped and whose
// seventh argument is the dtype: for types without a storage class of their own.
func rebuildTensor3(args Tuple) (any, error) {
	if len(args) < 7 {
		return nil, errArguments
	}
	from, isStorage := args[0].(*storage)
	class, isDType := args[6].(Global)
	if !isStorage || !isDType {
		return nil, errArguments
	}
	typed := *from
	if typed.dtype = storageTypes[class.Name]; typed.dtype == Invalid {
		typed.other = class.Name
	}
	return viewStorage(&typed, args)
}

// viewStorage checks that the view lies inside the storage.
func viewStorage(from *storage, args Tuple) (any, error) {
	offset, isOffset := args[1].(int64)
	shape, isShape := wholes(args[2])
	strides, isStrides := wholes(args[3])
	if !isOffset || !isShape || !isStrides {
		return nil, errArguments
	}
	if len(shape) != len(strides) {
		return nil, fmt.Errorf("%d sizes with %d strides; the file is damaged", len(shape), len(strides))
	}
	s := &Stored{DType: from.dtype, Shape: shape, other: from.other, swap: from.big && from.dtype.Size() > 1, whole: from.whole}
	if s.DType == Invalid || from.unseen {
		return s, nil
	}
	if offset < 0 {
		return nil, fmt.Errorf("begins at element %d of its storage", offset)
	}
	return s, s.place(from.bytes, int(offset), strides)
}

// wholes reads a tuple of integers, a shape or strides.
func wholes(v any) ([]int, bool) {
	items, ok := v.(Tuple)
	if !ok || len(items) > dimensionLimit {
		return nil, false
	}
	out := make([]int, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, false
		}
		out[i] = int(n)
	}
	return out, true
}

// rebuildParameter is _rebuild_parameter(tensor, requires_grad, hooks).
func rebuildParameter(args Tuple) (any, error) {
	if len(args) > 0 {
		if s, ok := args[0].(*Stored); ok {
			return s, nil
		}
	}
	return nil, errArguments
}

// rebuildFromType is _rebuild_from_type_v2(function, class, args, state): a
// subclass of Tensor, or a Parameter with attributes, made by another function.
func rebuildFromType(args Tuple) (any, error) {
	if len(args) < 3 {
		return nil, errArguments
	}
	function, isFunction := args[0].(Global)
	inner, isArgs := args[2].(Tuple)
	if !isFunction || !isArgs || function.Name == "_rebuild_from_type_v2" {
		return nil, errArguments
	}
	return construct(function, inner)
}

// tensorsIn finds the tensors of a value that a pickle of so many bytes built.
func tensorsIn(v any, pickle int) ([]Entry, error) {
	w := &walk{budget: newBudget(pickle), onPath: map[any]bool{}}
	if err := w.visit("", v); err != nil {
		return nil, err
	}
	return w.found, nil
}

// walk finds the tensors of a pickled value and names them by their path.
// Values that are shared are found once for each way that leads to them, which
// is paid for.
type walk struct {
	*budget
	found  []Entry
	depth  int
	onPath map[any]bool // containers that hold the value in hand
}

// moduleParts are where torch.nn.Module keeps what state_dict() names without them.
var moduleParts = []string{"_parameters", "_buffers", "_modules"}

func (w *walk) visit(name string, v any) error {
	switch v := v.(type) {
	case *Stored:
		if err := w.charge(objectCost + len(name)); err != nil {
			return err
		}
		w.found = append(w.found, Entry{cmp.Or(name, Single), v})
		return nil
	case *Dict, *List, *Object:
		if w.onPath[v] {
			return nil // a value inside itself has no more tensors there
		}
		w.onPath[v] = true
		defer delete(w.onPath, v)
	case Tuple:
	default:
		return nil
	}
	if w.depth++; w.depth > depthLimit {
		return fmt.Errorf("values nested more than %d deep at %q", depthLimit, clip(name))
	}
	defer func() { w.depth-- }()
	switch v := v.(type) {
	case *Dict:
		return w.dict(name, v)
	case *List:
		return w.items(name, v.Items)
	case Tuple:
		return w.items(name, v)
	case *Object:
		return w.object(name, v)
	}
	return nil
}

// below visits a value inside the one called name. Every one is paid for; a
// name is made only for those that may hold tensors.
func (w *walk) below(name, part string, v any) error {
	if err := w.charge(instructionCost); err != nil {
		return err
	}
	switch v.(type) {
	case *Stored, *Dict, *List, *Object, Tuple:
		if err := w.charge(len(name) + len(part)); err != nil {
			return err
		}
		return w.visit(join(name, part), v)
	}
	return nil
}

func (w *walk) dict(name string, d *Dict) error {
	for i, k := range d.Keys {
		part, ok := keyText(k)
		if !ok {
			continue
		}
		if err := w.below(name, part, d.Values[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) items(name string, items []any) error {
	for i, item := range items {
		if err := w.below(name, strconv.Itoa(i), item); err != nil {
			return err
		}
	}
	return nil
}

// object visits attributes and items; a module's attributes are named as its
// state_dict names them.
func (w *walk) object(name string, o *Object) error {
	state, ok := o.State.(*Dict)
	if ok && isModule(state) {
		for _, part := range moduleParts {
			inner, _ := state.Get(part)
			if err := w.visit(name, inner); err != nil {
				return err
			}
		}
		return nil
	}
	if ok {
		if err := w.visit(name, state); err != nil {
			return err
		}
	}
	if o.Items != nil {
		if err := w.visit(name, o.Items); err != nil {
			return err
		}
	}
	if o.Dict != nil {
		return w.visit(name, o.Dict)
	}
	return nil
}

func isModule(state *Dict) bool {
	for _, part := range moduleParts {
		if _, ok := state.Get(part); !ok {
			return false
		}
	}
	return true
}

func keyText(k any) (string, bool) {
	switch k := k.(type) {
	case string:
		return k, true
	case int64:
		return strconv.FormatInt(k, 10), true
	}
	return "", false
}

func join(name, part string) string {
	if name == "" {
		return part
	}
	return name + "." + part
}

// stateKeys are where training programs customarily keep a network's weights.
var stateKeys = []string{"state_dict", "model_state_dict", "model_state", "model", "net", "network", "net_state", "weights", "params", "module"}

// StateDict returns the entries that are a network's weights, named as in its
// state_dict. For a .pth, key names the part of a checkpoint that holds them
// ("state_dict", "model_ema"); when it is empty, the first customary key that
// holds tensors is taken (state_dict, model, net, …), else the whole if tensors
// lie in it directly. Other formats have one table and take no key.
func (f *File) StateDict(key string) ([]Entry, error) {
	root, isDict := f.Object.(*Dict)
	if !isDict {
		if key != "" {
			return nil, fault.Inputf("%s: has no parts, so none called %q; leave the key out", f.Path, clip(key))
		}
		return f.Entries(), nil
	}
	if key == "" {
		for _, usual := range stateKeys {
			if part, ok := root.Get(usual); ok {
				if entries, err := f.below(part); err == nil && len(entries) > 0 {
					return entries, nil
				}
			}
		}
		for _, v := range root.Values {
			if _, direct := v.(*Stored); direct {
				return f.below(root)
			}
		}
		return nil, fault.Inputf("%s: no weights at the top nor under any of %s; name the key that holds them (the file has %s)",
			f.Path, strings.Join(stateKeys, ", "), keysText(root))
	}
	part, ok := root.Get(key)
	if !ok {
		return nil, fault.Inputf("%s: no key %q (the file has %s)", f.Path, clip(key), keysText(root))
	}
	entries, err := f.below(part)
	if err == nil && len(entries) == 0 {
		err = fault.Inputf("%s: no tensors under the key %q", f.Path, clip(key))
	}
	return entries, err
}

// below finds the tensors of one part of the pickled object.
func (f *File) below(part any) ([]Entry, error) {
	entries, err := tensorsIn(part, f.pickled)
	if err != nil {
		return nil, fault.Inputf("%s: %w", f.Path, err)
	}
	return entries, nil
}

// keysText lists a dict's first keys for an error.
func keysText(d *Dict) string {
	var names []string
	for _, k := range d.Keys {
		if part, ok := keyText(k); ok {
			names = append(names, clip(part))
		}
		if len(names) == 8 {
			names = append(names, "…")
			break
		}
	}
	if len(names) == 0 {
		return "no named keys"
	}
	return strings.Join(names, ", ")
}
