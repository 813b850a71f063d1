package tensorio

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A file of torch.save before PyTorch 1.6, and since with
// _use_new_zipfile_serialization=False, is a row of pickles: a magic number, a
// protocol number, a dict about the machine, the object, and the list of its
// storages' keys; then, in that order, each storage's number of elements, 8
// bytes, and the elements (torch/serialization.py, _legacy_save). It carries no
// checksum.

// legacyMagic is the first pickle without its protocol: 0x1950a86a20f9469cfc6c.
const legacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."

// legacyProtocol is the second pickle's value.
const legacyProtocol = 1001

func isLegacyTorch(data []byte) bool {
	return len(data) > 2 && data[0] == 0x80 && bytes.HasPrefix(data[2:], []byte(legacyMagic))
}

// foreignSizes is the bytes of an element of the types that are not read, which
// have to be passed over.
var foreignSizes = map[string]int{
	"ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "QInt8": 1, "QUInt8": 1, "QInt32": 4, "QUInt4x2": 1, "QUInt2x4": 1,
}

// legacy reads the file from front to back.
type legacy struct {
	data []byte
	pos  int
	big  bool
}

// pickle runs the next pickle.
func (l *legacy) pickle(persistent func(id any) (any, error)) (any, error) {
	m := &machine{data: l.data[l.pos:], persistent: persistent}
	v, err := m.run()
	if err != nil {
		return nil, fmt.Errorf("from byte %d on: %w", l.pos, err)
	}
	l.pos += m.pos
	return v, nil
}

// parseLegacy runs the object's pickle twice: where the storages lie is known
// only after it.
func parseLegacy(data []byte) (*File, error) {
	l := &legacy{data: data, pos: 2 + len(legacyMagic)}
	protocol, err := l.pickle(nil)
	if err == nil && protocol != int64(legacyProtocol) {
		err = fmt.Errorf("protocol %v of torch.save is unknown; save it again with a newer PyTorch", kindOf(protocol))
	}
	if err != nil {
		return nil, err
	}
	machine, err := l.pickle(nil)
	if err != nil {
		return nil, err
	}
	if d, ok := machine.(*Dict); ok {
		little, said := d.Get("little_endian")
		l.big = said && little == false
	}
	begin, first := l.pos, map[string]*storage{}
	if _, err := l.pickle(func(id any) (any, error) { return l.storage(id, first, nil) }); err != nil {
		return nil, err
	}
	end := l.pos
	records, err := l.records(first)
	if err != nil {
		return nil, err
	}
	l.pos = begin
	object, err := l.pickle(func(id any) (any, error) { return l.storage(id, nil, records) })
	if err != nil {
		return nil, err
	}
	f := &File{Format: Torch, Object: object, pickled: end - begin}
	f.entries, err = tensorsIn(object, f.pickled)
	return f, err
}

// storage resolves a persistent id. The first time, without records, it notes
// the storage under its key, for a tensor that is never looked at.
func (l *legacy) storage(id any, seen map[string]*storage, records map[string][]byte) (any, error) {
	if fields, ok := id.(Tuple); ok && len(fields) > 1 && fields[0] == "module" { // the class of a whole module, with its source
		return fields[1], nil
	}
	key, s, count, err := describe(id)
	if err != nil {
		return nil, err
	}
	if fields := id.(Tuple); len(fields) > 5 && fields[5] != nil {
		return nil, fmt.Errorf("storage %q is a part of another, as PyTorch before 0.4 had it; save the file again with a newer one", clip(key))
	}
	s.big = l.big
	if seen != nil {
		seen[key] = s
		s.unseen = true
		return s, nil
	}
	return s, s.fill(key, records[key], count)
}

// records finds the storages' bytes, which follow the list of their keys.
func (l *legacy) records(seen map[string]*storage) (map[string][]byte, error) {
	v, err := l.pickle(nil)
	if err != nil {
		return nil, err
	}
	keys, ok := v.(*List)
	if !ok {
		return nil, damagedf("byte %d: %s stands where the list of storages belongs", l.pos, kindOf(v))
	}
	records := make(map[string][]byte, len(seen))
	for _, k := range keys.Items {
		key, _ := k.(string)
		s := seen[key]
		if s == nil || records[key] != nil {
			return nil, damagedf("byte %d: storage %q is listed, and nothing uses it, or twice", l.pos, clip(key))
		}
		size := s.dtype.Size()
		if s.dtype == Invalid {
			if size = foreignSizes[s.other]; size == 0 {
				return nil, fmt.Errorf("storage %q has elements of the type %s, whose size is not known; convert the tensor to float32 where the file is made", clip(key), clip(s.other))
			}
		}
		rest := l.data[l.pos:]
		if len(rest) < 8 || binary.LittleEndian.Uint64(rest) > uint64((len(rest)-8)/size) {
			return nil, damagedf("byte %d: ends within storage %q; the file was cut short", l.pos, clip(key))
		}
		n := 8 + size*int(binary.LittleEndian.Uint64(rest))
		records[key] = rest[8:n:n]
		l.pos += n
	}
	return records, nil
}
