// Package house holds no code: its test reads the source of the whole project
// and keeps the rules of the house. Each rule stands in house_test.go beside
// its reason: who may import whom, who may end the process or print, where
// time, randomness and C may appear.
package house
