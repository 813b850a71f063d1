package rng

import "testing"

func TestStreamIsAFunctionOfSeedAndPath(t *testing.T) {
	a, b := New(7, 1, 2), New(7, 1, 2)
	New(7, 1, 3).Uint64() // another stream in use changes nothing
	for i := range 100 {
		if x, y := a.Uint64(), b.Uint64(); x != y {
			t.Fatalf("draw %d: %x and %x from one stream", i, x, y)
		}
	}
}

// Neighbouring seeds, epochs and items are what the program uses; none of
// their streams may begin alike, and order and length of the path count.
func TestStreamsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	check := func(name string, seed uint64, path ...uint64) {
		t.Helper()
		x := New(seed, path...).Uint64()
		if other, ok := seen[x]; ok {
			t.Errorf("streams %s and %s begin with the same number", name, other)
		}
		seen[x] = name
	}
	check("seed 0", 0)
	check("seed max", ^uint64(0))
	for seed := range uint64(10) {
		for epoch := range uint64(10) {
			check("one number", seed+1, epoch+1000)
			for item := range uint64(50) {
				check("two numbers", seed, epoch, item)
			}
		}
	}
}

// The generator is part of what a seed means: if these numbers change, runs
// can no longer be repeated. mix(0) is the first output of splitmix64 with
// state 0 in its authors' reference program.
func TestNumbersAreFixed(t *testing.T) {
	if got := mix(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("mix(0) = %#x", got)
	}
	for bit := range 64 {
		changed := mix(12345) ^ mix(12345^1<<bit)
		ones := 0
		for ; changed != 0; changed &= changed - 1 {
			ones++
		}
		if ones < 16 || ones > 48 { // 32 expected, 4 standard deviations of 4
			t.Errorf("input bit %d changes %d of 64 output bits", bit, ones)
		}
	}
}
