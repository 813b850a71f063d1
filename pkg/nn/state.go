package nn

import (
	"fmt"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// State is tensors by name, in a fixed order: a network's parameters and
// buffers, an optimiser's moments, whatever a file is to hold.
type State []Named

// Parameters are those of s that gradients flow to, each once.
func (s State) Parameters() State {
	return slices.DeleteFunc(slices.Clone(s), func(n Named) bool { return !n.Parameter || n.Twin != "" || !n.Tensor.RequiresGrad() })
}

// Tensors are the tensors of s, in order.
func (s State) Tensors() []*torch.Tensor {
	all := make([]*torch.Tensor, len(s))
	for i, n := range s {
		all[i] = n.Tensor
	}
	return all
}

// Under is s with a prefix before every name.
func (s State) Under(prefix string) State {
	all := slices.Clone(s)
	for i := range all {
		all[i].Name = prefix + all[i].Name
	}
	return all
}

// Snapshot copies the tensors to the host, to be written to a file.
func (s State) Snapshot() ([]tensorio.Named, error) {
	all := make([]tensorio.Named, len(s))
	for i, n := range s {
		t, err := ToStored(n.Tensor)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", n.Name, err)
		}
		all[i] = tensorio.Named{Name: n.Name, Tensor: t}
	}
	return all, nil
}

// ToStored copies a tensor to the host as files hold it.
func ToStored(t *torch.Tensor) (tensorio.Tensor, error) {
	data, err := t.ReadBytes()
	if err != nil {
		return tensorio.Tensor{}, err
	}
	dtype, ok := hostDType[t.DType()]
	if !ok {
		return tensorio.Tensor{}, fmt.Errorf("no file holds elements of type %s", t.DType())
	}
	shape := make([]int, t.Dims())
	for d := range shape {
		shape[d] = int(t.Size(d))
	}
	return tensorio.Tensor{DType: dtype, Shape: shape, Data: data}, nil
}

// FromStored copies a tensor of a file into scope s, on the CPU. The wider
// unsigned integers, which few files hold, are refused.
func FromStored(s *torch.Scope, t tensorio.Tensor) *torch.Tensor {
	dtype, ok := torchDType[t.DType]
	if !ok {
		s.Fail(fault.Inputf("elements of type %v have no place in a network", t.DType))
		return s.Dead()
	}
	shape := make([]int64, len(t.Shape))
	for i, n := range t.Shape {
		shape[i] = int64(n)
	}
	return torch.FromBytes(s, t.Data, dtype, shape...)
}

// Source is where tensors are loaded from: an open *tensorio.File, a [Stored].
type Source interface {
	Names() []string
	Tensor(name string) (tensorio.Tensor, error)
}

// Stored is a Source in memory, such as a Snapshot.
type Stored []tensorio.Named

// Names lists the tensors.
func (s Stored) Names() []string {
	names := make([]string, len(s))
	for i, n := range s {
		names[i] = n.Name
	}
	return names
}

// Tensor returns the tensor of that name.
func (s Stored) Tensor(name string) (tensorio.Tensor, error) {
	for _, n := range s {
		if n.Name == name {
			return n.Tensor, nil
		}
	}
	return tensorio.Tensor{}, fault.Inputf("no tensor %q", name)
}

// MismatchError says how a source and a network differ, in full.
type MismatchError struct {
	Missing    []string // the network has it, the source does not
	Unexpected []string // the source has it, the network does not
	Misshapen  []string // both have it, in different shapes or kinds of number
}

// Error has the first names of each kind, and how many more there are.
func (e *MismatchError) Error() string {
	var parts []string
	for _, p := range []struct {
		what  string
		names []string
	}{{"missing from the file", e.Missing}, {"in the file, unknown to the network", e.Unexpected}, {"of another shape or type", e.Misshapen}} {
		if n := len(p.names); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, p.what, firstNames(p.names)))
		}
	}
	return "the weights do not fit the network: " + strings.Join(parts, "; ")
}

// firstNames names the first few.
func firstNames(names []string) string {
	const few = 5
	if n := len(names) - few; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), n)
	}
	return strings.Join(names, ", ")
}

// Load copies the source's tensors into those of s. It is strict: names and
// shapes must agree exactly, or nothing is changed and the error, an input
// error, is a [MismatchError]. Floating-point types convert to one another.
func (s State) Load(from Source) error {
	mine := make(map[string]*torch.Tensor, len(s))
	for _, n := range s {
		mine[n.Name] = n.Tensor
	}
	var miss MismatchError
	found := make(map[string]tensorio.Tensor, len(s))
	for _, name := range from.Names() {
		if mine[name] == nil {
			miss.Unexpected = append(miss.Unexpected, name)
			continue
		}
		t, err := from.Tensor(name)
		if err != nil {
			return err
		}
		if why := unlike(mine[name], t); why != "" {
			miss.Misshapen = append(miss.Misshapen, name+": "+why)
		}
		found[name] = t
	}
	for _, n := range s {
		if _, ok := found[n.Name]; !ok {
			miss.Missing = append(miss.Missing, n.Name)
		}
	}
	if len(miss.Missing)+len(miss.Unexpected)+len(miss.Misshapen) > 0 {
		return fault.Input(&miss)
	}
	var err error
	torch.NoGrad(func() {
		for _, n := range s {
			if err = fill(n.Tensor, found[n.Name]); err != nil {
				err = fmt.Errorf("tensor %q: %w", n.Name, err)
				return
			}
		}
	})
	return err
}

// unlike says how a stored tensor cannot be copied into t; "" if it can.
func unlike(t *torch.Tensor, from tensorio.Tensor) string {
	shape := t.Shape()
	same := len(shape) == len(from.Shape)
	for i := range shape {
		same = same && shape[i] == int64(from.Shape[i])
	}
	if !same {
		return fmt.Sprintf("%v in the file, %v in the network", from.Shape, shape)
	}
	if dtype, ok := torchDType[from.DType]; !ok || dtype.IsFloat() != t.DType().IsFloat() {
		return fmt.Sprintf("%v in the file, %v in the network", from.DType, t.DType())
	}
	return ""
}

// fill copies a stored tensor into t.
func fill(t *torch.Tensor, from tensorio.Tensor) error {
	s := torch.NewScope()
	defer s.Close()
	src := FromStored(s, from)
	if err := src.Err(); err != nil {
		return err
	}
	return t.CopyInPlace(src).Err()
}

var torchDType = map[tensorio.DType]torch.DType{
	tensorio.Bool: torch.Bool, tensorio.Uint8: torch.Uint8, tensorio.Int8: torch.Int8, tensorio.Int16: torch.Int16,
	tensorio.Int32: torch.Int32, tensorio.Int64: torch.Int64, tensorio.Float16: torch.Float16,
	tensorio.BFloat16: torch.BFloat16, tensorio.Float32: torch.Float32, tensorio.Float64: torch.Float64,
}

var hostDType = func() map[torch.DType]tensorio.DType {
	host := make(map[torch.DType]tensorio.DType, len(torchDType))
	for file, t := range torchDType {
		host[t] = file
	}
	return host
}()

// To converts the floating-point tensors of s to a dtype, in place, and lays
// those of four dimensions out with channels last if asked to. Do it before an
// optimiser is made.
func (s State) To(dtype torch.DType, channelsLast bool) error {
	for _, n := range s {
		if !n.Tensor.DType().IsFloat() {
			continue
		}
		if err := convert(n.Tensor, dtype, channelsLast && n.Tensor.Dims() == 4); err != nil {
			return fmt.Errorf("tensor %q: %w", n.Name, err)
		}
	}
	return nil
}

func convert(t *torch.Tensor, dtype torch.DType, channelsLast bool) (err error) {
	inner := torch.NewScope()
	defer inner.Close()
	torch.NoGrad(func() {
		to := t.Alias(inner).ToDType(dtype)
		if channelsLast {
			to = to.ChannelsLast()
		}
		err = t.SetData(to)
	})
	return err
}
