// Package house holds no code: its test reads the source of the whole project
// and checks its architecture. Each rule stands in house_test.go beside its
// reason: which package may import which, what may end the process or print,
// where time, randomness and C may appear.
package house
