package torch

/*
#include "shim.h"
*/
import "C"

// Seed starts a device's random numbers at a point given by seed. The same seed
// gives the same numbers on the same kind of device.
func Seed(d Device, seed uint64) error {
	if err := d.use(); err != nil {
		return err
	}
	return failure("Seed", C.rt_seed(d.c(), C.uint64_t(seed)))
}

// GeneratorState returns the state of a device's random numbers, to be stored.
func GeneratorState(d Device) ([]byte, error) {
	if err := d.use(); err != nil {
		return nil, err
	}
	s := NewScope()
	defer s.Close()
	return s.one("GeneratorState", C.rt_generator_state(d.c())).ReadBytes()
}

// SetGeneratorState goes on from a state that GeneratorState returned.
func SetGeneratorState(d Device, state []byte) error {
	if err := d.use(); err != nil {
		return err
	}
	s := NewScope()
	defer s.Close()
	t := From(s, state)
	if err := t.Err(); err != nil {
		return err
	}
	return failure("SetGeneratorState", C.rt_set_generator_state(d.c(), t.h))
}
