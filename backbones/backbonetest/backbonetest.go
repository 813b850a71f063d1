// Package backbonetest draws the weights and images of the reference cases:
// testdata/reference.py draws the same ones in Python.
package backbonetest

import (
	"hash/fnv"
	"math"
	"strings"

	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Draw returns n numbers uniform in [-1, 1), each with 24 bits so that float32
// holds it: splitmix64 (Steele, Lea and Flood 2014) from the name's FNV-1a hash.
func Draw(name string, n int64) []float64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	state := h.Sum64()
	values := make([]float64, n)
	for i := range values {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		values[i] = float64(z>>40)/(1<<23) - 1
	}
	return values
}

// Tensor is drawn numbers as a float32 tensor on a device.
func Tensor(s *torch.Scope, device torch.Device, name string, shape ...int64) *torch.Tensor {
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return torch.From(s, narrow(Draw(name, n)), shape...).ToDevice(device)
}

// Fill gives every tensor of a network a value drawn from its name, such that
// variances stay near 1 through the network.
func Fill(state nn.State) error {
	for _, t := range state {
		if !t.Tensor.DType().IsFloat() {
			continue
		}
		if err := fill(t); err != nil {
			return err
		}
	}
	return nil
}

func fill(t nn.Named) (err error) {
	s := torch.NewScope()
	defer s.Close()
	shape := t.Tensor.Shape()
	values := Draw(t.Name, t.Tensor.Numel())
	offset, scale := 0.0, 0.0
	switch {
	case strings.HasSuffix(t.Name, "running_mean"), strings.HasSuffix(t.Name, "bias"):
		scale = 0.1
	case strings.HasSuffix(t.Name, "running_var"):
		offset, scale = 1, 0.5
	case len(shape) == 1:
		offset, scale = 0.5, 0.1
	case len(shape) == 3:
		scale = 0.5
	default:
		scale = math.Sqrt(3 / (float64(t.Tensor.Numel()) / float64(shape[0])))
	}
	for i, u := range values {
		values[i] = offset + scale*u
	}
	torch.NoGrad(func() { err = t.Tensor.CopyInPlace(torch.From(s, narrow(values), shape...)).Err() })
	return err
}

// Check is what a case keeps of a tensor: its dot product with a vector drawn
// from its name, and its Euclidean norm.
func Check(name string, values []float64) (dot, norm float64) {
	for i, u := range Draw("check."+name, int64(len(values))) {
		dot += values[i] * u
		norm += values[i] * values[i]
	}
	return dot, math.Sqrt(norm)
}

func narrow(values []float64) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}
