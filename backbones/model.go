// Package backbones holds the networks that turn images into embeddings, one
// family a file, each registered under the names its users know, and the head
// they share.
package backbones

import (
	"fmt"
	"slices"

	"roadmap/pkg/nn"
	"roadmap/pkg/registry"
	"roadmap/pkg/torch"
)

// Backbone is a network's section of a recipe.
type Backbone interface {
	// Build makes the network in scope s on a device. Its initial values come
	// from seed and are the same on every device.
	Build(s *torch.Scope, device torch.Device, seed uint64) (*Model, error)
}

// Registry holds the networks by name.
var Registry = registry.New[Backbone]("backbone")

// Input is what images a network wants: Channels x Size x Size, values in
// [0, 1] from which Mean is subtracted and which are divided by Std, channel
// by channel.
type Input struct {
	Channels, Size int
	Mean, Std      []float32

	// Takes refuses images of so many pixels each way, in the words of a
	// recipe's keys; nil: of any number.
	Takes func(side int) error
}

// Model is a network with its head.
type Model struct {
	params *nn.Params
	input  Input
	trunk  nn.Layer
	head   head
	names  naming
	headed map[string]bool // names of the head's tensors
	given  bool            // the backbone came with its weights
}

// Forward maps images [n, c, h, w] to embeddings [n, Dim()], float32. With
// train, statistics are those of the batch and the running ones are updated.
// It records a history for gradients unless it runs in torch.NoGrad.
func (m *Model) Forward(x *torch.Tensor, train bool) *torch.Tensor {
	if m.params.ChannelsLast {
		x = x.ChannelsLast()
	}
	mode := nn.Eval
	if train {
		mode = nn.Train
	}
	return m.head.Forward(m.trunk.Forward(x, mode), mode)
}

// Dim is the width of the embeddings.
func (m *Model) Dim() int { return m.head.dim }

// Input is what images the network wants.
func (m *Model) Input() Input { return m.input }

// State is all parameters and buffers, in the order of PyTorch's state_dict.
func (m *Model) State() nn.State { return m.params.State() }

// Parameters are the tensors to train: those that gradients flow to.
func (m *Model) Parameters() nn.State { return m.params.State().Parameters() }

// headPath is where the head's tensors are. A TorchScript module may have a
// "head" of its own.
const headPath = "head"

// IsHead says whether a tensor belongs to the head rather than the backbone.
func (m *Model) IsHead(name string) bool { return m.headed[name] }

// Untrained lists the parameters that begin at values of their own: all of a
// network that was built, only the head's of one that came with its weights.
func (m *Model) Untrained() nn.State {
	return slices.DeleteFunc(m.State(), func(n nn.Named) bool { return !n.Parameter || m.given && !m.headed[n.Name] })
}

// finish puts a head onto a trunk of the given width and takes the errors of
// all the tensors made on the way.
func finish(p *nn.Params, input Input, trunk nn.Layer, width int, l layout, names naming, h Head) (*Model, error) {
	trunks := len(p.State())
	made, err := newHead(p.Root().At(headPath), h, width, l)
	if err != nil {
		return nil, err
	}
	if err := p.Scope().Err(); err != nil {
		return nil, fmt.Errorf("building the network: %w", err)
	}
	m := &Model{params: p, input: input, trunk: trunk, head: made, names: names, headed: map[string]bool{}}
	for _, n := range p.State()[trunks:] {
		m.headed[n.Name] = true
	}
	return m, nil
}
