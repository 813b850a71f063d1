package config

import (
	"fmt"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
)

// Bytes is an amount of memory, in recipes, options and messages written with
// a binary unit: 512MiB.
type Bytes int64

// Binary units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = []struct {
	name string
	size Bytes
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// UnmarshalText reads a number with one of the units B, KiB, MiB, GiB and TiB,
// below 2^62 bytes, or 0.
func (b *Bytes) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "0" {
		*b = 0
		return nil
	}
	for _, u := range byteUnits {
		number, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0 && n*float64(u.size) < 1<<62) {
			break
		}
		*b = Bytes(n * float64(u.size))
		return nil
	}
	return fault.Inputf("want an amount of memory such as 512MiB, got %q", text)
}

// MarshalText writes what UnmarshalText reads.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// String is the amount in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if b >= u.size && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(b))
}

// About is the amount to one decimal in the largest unit that it fills, for
// people: 1.4GiB.
func (b Bytes) About() string {
	for _, u := range byteUnits {
		if b >= u.size && u.size > 1 {
			return strings.TrimSuffix(strconv.FormatFloat(float64(b)/float64(u.size), 'f', 1, 64), ".0") + u.name
		}
	}
	return b.String()
}
