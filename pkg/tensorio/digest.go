package tensorio

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
)

// ErrDamaged marks the error of a file whose content is not what its format
// allows or its checksum says: cut short, or changed on its way.
var ErrDamaged = errors.New("the file is damaged")

// damage is the mark: it adds nothing to the text of the error it carries.
type damage struct{ error }

func (d damage) Unwrap() error        { return d.error }
func (d damage) Is(target error) bool { return target == ErrDamaged }

// damaged marks err; nil stays nil.
func damaged(err error) error {
	if err == nil {
		return nil
	}
	return damage{err}
}

func damagedf(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// Every .safetensors that this package writes says in its metadata, under
// digestKey, what its tensors hash to: XXH3 (Y. Collet), 128 bits, a checksum
// against accidents, not against people. It covers the metadata and each
// tensor's name, type, shape and elements, and not how the header spells them,
// so that a program which copies tensors and metadata copies a digest that
// holds.
const (
	digestKey    = "roadmap.digest"
	digestPrefix = "xxh3-128:"
)

// hashed is a tensor as the digest sees it.
type hashed struct {
	name, dtype string // dtype as .safetensors has it
	shape       []int
	data        []byte
}

// digest hashes metadata, but for the digest, and tensors, in whatever order
// they come.
func digest(metadata map[string]string, tensors []hashed) string {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b hashed) int {
		return cmp.Or(cmp.Compare(safetensorsOrder(b.dtype), safetensorsOrder(a.dtype)), strings.Compare(a.name, b.name))
	})
	h := xxh3.New()
	number := func(n int) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) } // a hash takes every byte
	text := func(s string) { number(len(s)); _, _ = h.WriteString(s) }
	number(len(tensors))
	for _, t := range tensors {
		text(t.name)
		text(t.dtype)
		number(len(t.shape))
		for _, size := range t.shape {
			number(size)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		if name != digestKey {
			text(name)
			text(metadata[name])
		}
	}
	number(-1)                  // no text is that long
	for _, t := range tensors { // last and together, in the order of the file
		_, _ = h.Write(t.data)
	}
	sum := h.Sum128().Bytes()
	return digestPrefix + hex.EncodeToString(sum[:])
}

// checkDigest returns a function that compares, once, the digest that the
// metadata names. It is nil for a file of another program.
func checkDigest(metadata map[string]string, tensors []hashed) func() error {
	want, ours := metadata[digestKey]
	if !ours {
		return nil
	}
	return sync.OnceValue(func() error {
		if got := digest(metadata, tensors); got != want {
			return damagedf("the tensors are not those that were written: their digest is %s, the file says %s; copy the file again or make it again "+
				"(if another program changed it on purpose, have it leave %s out of the metadata)", got, clip(want), digestKey)
		}
		return nil
	})
}

// checkCRC returns a function that compares, once, a zip record's bytes with
// its CRC-32. 0 is what torch.save writes when told not to compute it.
func checkCRC(name string, data []byte, want uint32) func() error {
	if want == 0 {
		return nil
	}
	return sync.OnceValue(func() error {
		if got := crc32.ChecksumIEEE(data); got != want {
			return damagedf("record %q is not what was written: its CRC-32 is %08x, the file says %08x; copy or download the file again", clip(name), got, want)
		}
		return nil
	})
}
