package config

import (
	"testing"

	"roadmap/pkg/fault"
)

func TestBytesReadWhatTheyWrite(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "0B": 0, "1B": 1, "1023B": 1023, "1KiB": 1 << 10, "512MiB": 512 << 20, " 1.5 GiB ": 3 << 29, "2TiB": 2 << 40, "1e3KiB": 1000 << 10,
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q is %d, %v; want %d", text, int64(b), err, int64(want))
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%d is written %s, which reads as %d, %v", int64(b), b, int64(again), err)
		}
	}
}

func TestBytesRefused(t *testing.T) {
	for _, text := range []string{"", "512", "MiB", "-1MiB", "1MB", "NaNMiB", "InfB", "4611686018427387904B", "9e99GiB", "many"} {
		b := Bytes(7)
		if err := b.UnmarshalText([]byte(text)); !fault.IsInput(err) || b != 7 {
			t.Errorf("%q became %d, %v", text, int64(b), err)
		}
	}
}

func TestBytesForPeople(t *testing.T) {
	for b, want := range map[Bytes]string{0: "0B", 1000: "1000B", 1 << 30: "1GiB", 1500 << 20: "1.5GiB", 1<<62 + 1: "4194304TiB", -5: "-5B"} {
		if got := b.About(); got != want {
			t.Errorf("%d is about %s, want %s", int64(b), got, want)
		}
	}
}
