// Package rng gives every use of chance its own stream of random numbers: one
// seed, and a path of numbers that says what the stream is for, such as
// (epoch, image). A stream depends on nothing else, so what one goroutine,
// worker or step draws never shifts what another one draws.
package rng

import "math/rand/v2"

// New returns the generator of the stream at path under seed. Equal arguments
// give equal numbers on every machine; a generator is for one goroutine.
func New(seed uint64, path ...uint64) *rand.Rand {
	first, second := mix(seed), mix(^seed)
	for _, p := range path {
		first = mix(first ^ p)
		second = mix(second + p)
	}
	return rand.New(rand.NewPCG(first, second))
}

// mix is the output function of splitmix64 (Steele, Lea and Flood 2014) one
// step from x: a bijection in which every input bit reaches every output bit.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
