// Package nn is the layers of networks, with the names, the arithmetic and the
// initial values of PyTorch's, so that weights of one load into the other.
//
// [Params] holds the tensors of one network under dotted names. A layer's
// constructor asks a [Path] of it for the tensors the layer needs; the layer's
// Forward computes with them. What a layer does differently in training is
// told by the [Mode] passed to Forward: nothing remembers a mode.
//
// Initial values are drawn from a seed and the tensor's own name. So they are
// the same on every device and for every number of threads, and adding a layer
// changes no other.
package nn

import (
	"fmt"
	"hash/fnv"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/rng"
	"roadmap/pkg/torch"
)

// Mode says what a forward pass is for.
type Mode int

// Eval uses running statistics. Train uses those of the batch and updates the
// running ones. Replay computes what Train computed once more, to give
// gradients to values that were not stored: it updates nothing.
const (
	Eval Mode = iota
	Train
	Replay
)

// Layer is a function of one tensor with parameters of its own.
type Layer interface {
	Forward(x *torch.Tensor, mode Mode) *torch.Tensor
}

// Sequential is layers one after the other. What lies between and within them
// is let go of at once; autograd keeps what it needs.
type Sequential []Layer

// Forward applies the layers in order.
func (s Sequential) Forward(x *torch.Tensor, mode Mode) *torch.Tensor {
	for i, layer := range s {
		y := Apart(x, func(x *torch.Tensor) *torch.Tensor { return layer.Forward(x, mode) })
		if i > 0 {
			x.Free()
		}
		x = y
	}
	return x
}

// Apart computes f(x) in a scope of its own and keeps nothing but the result,
// in x's scope.
func Apart(x *torch.Tensor, f func(x *torch.Tensor) *torch.Tensor) *torch.Tensor {
	scope := x.Scope()
	inner := scope.Child()
	defer inner.Close()
	y, err := f(x.Alias(inner)).KeepIn(scope)
	if err != nil {
		scope.Fail(err)
		return scope.Dead()
	}
	return y
}

// Func makes a layer of a function without parameters.
type Func func(x *torch.Tensor) *torch.Tensor

// Forward applies the function.
func (f Func) Forward(x *torch.Tensor, _ Mode) *torch.Tensor { return f(x) }

// ReLU is max(0, x), written over x.
type ReLU struct{}

// Forward applies it. x is gone afterwards: give it what nothing else needs.
func (ReLU) Forward(x *torch.Tensor, _ Mode) *torch.Tensor { return x.ReLUInPlace() }

// Named is one tensor of a network. Parameters are trained; the rest, running
// statistics and the like, are buffers.
type Named struct {
	Name      string
	Tensor    *torch.Tensor
	Parameter bool
	Twin      string // earlier name of the same tensor, which is saved under both and trained once
}

// Params collects the tensors of one network, in the order in which its layers
// ask for them, which is the order of PyTorch's state_dict.
type Params struct {
	// ChannelsLast lays the weights of convolutions out with channels last, as
	// images laid out that way want them. Set it before the first layer.
	ChannelsLast bool

	scope  *torch.Scope
	device torch.Device
	seed   uint64
	all    State
	names  map[string]bool
	bytes  float64 // of the tensors that were drawn
}

// NewParams returns an empty collection whose tensors live in scope s, on a
// device, with initial values from seed.
func NewParams(s *torch.Scope, device torch.Device, seed uint64) *Params {
	return &Params{scope: s, device: device, seed: seed, names: map[string]bool{}}
}

// Scope is where the tensors live.
func (p *Params) Scope() *torch.Scope { return p.scope }

// Device is where the tensors' elements are.
func (p *Params) Device() torch.Device { return p.device }

// State lists parameters and buffers. The slice is the caller's.
func (p *Params) State() State { return append(State(nil), p.all...) }

// Adopt enters a tensor that was made elsewhere, under its full name.
func (p *Params) Adopt(n Named) {
	if p.names[n.Name] {
		p.scope.Fail(fmt.Errorf("nn: %q cannot name two tensors", n.Name))
		return
	}
	p.names[n.Name] = true
	p.all = append(p.all, n)
}

// Root is the path without a name.
func (p *Params) Root() Path { return Path{params: p} }

// Path is a place in the tree of names, such as "layer1.0.conv2".
type Path struct {
	params *Params
	name   string
}

// At goes down one level, or several: At("blocks", 0).
func (p Path) At(names ...any) Path {
	for _, name := range names {
		p.name = p.full(fmt.Sprint(name))
	}
	return p
}

// Params is the collection that the path leads into.
func (p Path) Params() *Params { return p.params }

func (p Path) full(name string) string {
	if p.name == "" {
		return name
	}
	return p.name + "." + name
}

// Param returns a new float32 parameter of the given shape.
func (p Path) Param(name string, init Init, shape ...int64) *torch.Tensor {
	return p.add(name, true, func(s *torch.Scope) *torch.Tensor { return p.draw(s, name, init, shape) })
}

// Buffer returns a new float32 tensor that is saved but not trained.
func (p Path) Buffer(name string, init Init, shape ...int64) *torch.Tensor {
	return p.add(name, false, func(s *torch.Scope) *torch.Tensor { return p.draw(s, name, init, shape) })
}

// Counter returns a new int64 scalar, 0, that is saved but not trained.
func (p Path) Counter(name string) *torch.Tensor {
	return p.add(name, false, func(s *torch.Scope) *torch.Tensor {
		return s.Zeros([]int64{}, torch.Int64, p.params.device)
	})
}

// maxElements bounds one tensor of a network: 4 GiB of float32.
const maxElements = 1 << 30

// fits refuses a tensor that would not fit into memory beside those before it.
// Its elements are drawn on the host, and copied.
func (p *Params) fits(name string, shape []int64) error {
	bytes := 4.0
	for _, size := range shape {
		bytes *= float64(size)
	}
	if err := memory.Check(fmt.Sprintf("%s of shape %v", name, shape), p.bytes+2*bytes); err != nil {
		return fmt.Errorf("%w; lower the network's dim or width", err)
	}
	p.bytes += bytes
	return nil
}

// draw makes the initial values on the host, from a stream of their own.
func (p Path) draw(s *torch.Scope, name string, init Init, shape []int64) *torch.Tensor {
	if err := p.params.fits(p.full(name), shape); err != nil {
		s.Fail(err)
		return s.Dead()
	}
	n := int64(1)
	for _, size := range shape {
		if size <= 0 {
			s.Fail(fmt.Errorf("nn: %s: a size in shape %v is not positive", p.full(name), shape))
			return s.Dead()
		}
		if n *= size; size > maxElements || n > maxElements {
			s.Fail(fault.Inputf("%s would be of shape %v, more than %d elements; lower the network's dim or width", p.full(name), shape, maxElements))
			return s.Dead()
		}
	}
	h := fnv.New64a()
	h.Write([]byte(p.full(name)))
	values := make([]float32, n)
	init(rng.New(p.params.seed, h.Sum64()), values)
	t := torch.From(s, values, shape...).ToDevice(p.params.device)
	if p.params.ChannelsLast && len(shape) == 4 {
		t = t.ChannelsLast()
	}
	return t
}

func (p Path) add(name string, parameter bool, make func(s *torch.Scope) *torch.Tensor) *torch.Tensor {
	c, full := p.params, p.full(name)
	if c.names[full] || strings.Contains(name, ".") {
		c.scope.Fail(fmt.Errorf("nn: %q cannot name a new tensor: it is taken, or has a dot in its last part", full))
		return c.scope.Dead()
	}
	if c.scope.Err() != nil { // nothing that is asked for after an error is allocated
		return c.scope.Dead()
	}
	child := c.scope.Child()
	defer child.Close()
	t, err := make(child).KeepIn(c.scope)
	if err != nil {
		c.scope.Fail(err)
		return c.scope.Dead()
	}
	if parameter {
		t.RequireGrad(true)
	}
	c.Adopt(Named{Name: full, Tensor: t, Parameter: parameter})
	return t
}
