package tensorio

import (
	"cmp"
	"encoding/binary"
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
// digestKey, what it hashes to: XXH3 (Y. Collet), 64 bits each, of the metadata
// and all names, types and shapes together, and of each tensor's elements. A
// tensor is compared when it is read, while its bytes are in the processor's
// cache. It is a checksum against accidents, not against people. How the header
// spells things does not count, so that a program which copies tensors and
// metadata copies a digest that holds.
const (
	digestKey    = "roadmap.digest"
	digestPrefix = "xxh3:"
	digestDigits = 16 // hexadecimal, of one hash
)

// hashed is a tensor as the digest sees it.
type hashed struct {
	name, dtype string // dtype as .safetensors has it
	shape       []int
	data        []byte
}

// digestOrder is the order of the tensors in the digest: that of the elements
// in the file.
func digestOrder(a, b hashed) int {
	return cmp.Or(cmp.Compare(safetensorsOrder(b.dtype), safetensorsOrder(a.dtype)), strings.Compare(a.name, b.name))
}

// digest is the text under digestKey: the hash of the header and those of the
// tensors, in digestOrder.
func digest(metadata map[string]string, tensors []hashed) string {
	tensors = slices.SortedFunc(slices.Values(tensors), digestOrder)
	text := fmt.Appendf([]byte(digestPrefix), "%016x", headerHash(metadata, tensors))
	for _, t := range tensors {
		text = fmt.Appendf(text, "%016x", xxh3.Hash(t.data))
	}
	return string(text)
}

// headerHash hashes metadata, but for the digest, and what the header says of
// tensors, which are in digestOrder.
func headerHash(metadata map[string]string, tensors []hashed) uint64 {
	h := xxh3.New() // which takes whatever is written
	number := func(n int) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
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
	return h.Sum64()
}

// checks are functions that compare parts of a file with its digest, once each.
type checks struct {
	header func() error
	tensor map[string]func() error // by name; each asks header first
}

// checkDigest makes the checks of a file; nil for one of another program.
func checkDigest(metadata map[string]string, tensors []hashed) *checks {
	said, ours := metadata[digestKey]
	if !ours {
		return nil
	}
	tensors = slices.SortedFunc(slices.Values(tensors), digestOrder)
	hashes, known := strings.CutPrefix(said, digestPrefix)
	if !known || len(hashes) != digestDigits*(1+len(tensors)) {
		bad := damagedf("its digest, %s in the metadata, is none of %d tensors: %q; copy the file again or make it again", digestKey, len(tensors), clip(said))
		hashes = strings.Repeat("?", digestDigits*(1+len(tensors)))
		return newChecks(tensors, func() error { return bad }, hashes)
	}
	header := sync.OnceValue(func() error {
		return compare("names, shapes and metadata", headerHash(metadata, tensors), hashes[:digestDigits])
	})
	return newChecks(tensors, header, hashes)
}

func newChecks(tensors []hashed, header func() error, hashes string) *checks {
	c := &checks{header: header, tensor: make(map[string]func() error, len(tensors))}
	for i, t := range tensors {
		c.tensor[t.name] = sync.OnceValue(func() error {
			if err := header(); err != nil {
				return err
			}
			return compare("elements", xxh3.Hash(t.data), hashes[digestDigits*(1+i):][:digestDigits])
		})
	}
	return c
}

// whole does all the checks.
func (c *checks) whole() error {
	if err := c.header(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.tensor)) {
		if err := c.tensor[name](); err != nil {
			return fmt.Errorf("tensor %q: %w", clip(name), err)
		}
	}
	return nil
}

func compare(what string, hash uint64, said string) error {
	if got := fmt.Sprintf("%016x", hash); got != said {
		return damagedf("the %s are not those that were written: they hash to %s, the file says %s; copy the file again or make it again "+
			"(if another program changed it on purpose, have it leave %s out of the metadata)", what, got, said, digestKey)
	}
	return nil
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
