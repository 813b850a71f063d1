package backbones

import (
	"bytes"
	"fmt"
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

func init() {
	Registry.Register("torchscript", func() Backbone {
		return &TorchScript{Channels: 3, Size: 224, Input: "imagenet", Head: Head{Pool: "avg", Normalize: true}}
	})
}

// TorchScript is a network that PyTorch saved with torch.jit.save, scripted or
// traced. It may give vectors [n, d], which are taken as they are, maps
// [n, d, h, w] or tokens [n, t, d] with a class token first. A traced network
// keeps the mode it was traced in.
type TorchScript struct {
	File         string `yaml:"file"`          // the module
	Channels     int    `yaml:"channels"`      // of the images: 1 grey, 3 colour
	Size         int    `yaml:"size"`          // of the images, pixels
	Input        string `yaml:"input"`         // what pixels become: imagenet (its mean and deviation), half (-1 to 1), or plain (0 to 1)
	ChannelsLast bool   `yaml:"channels_last"` // memory layout of the images
	Head         `yaml:",inline"`
}

// Validate asks for a file and positive sizes.
func (c *TorchScript) Validate() error {
	if c.Size < 1 {
		return config.Invalid("size", "must be at least 1, it is %d", c.Size)
	}
	if c.Channels < 1 {
		return config.Invalid("channels", "must be at least 1, it is %d", c.Channels)
	}
	if _, err := c.input(); err != nil {
		return err
	}
	return c.Head.Validate()
}

func (c *TorchScript) input() (Input, error) {
	switch {
	case c.Input == "plain":
		return plainInput(c.Channels, c.Size), nil
	case c.Channels != 3:
		return Input{}, config.Invalid("input", "is %q, which is for 3 channels, and there are %d; give plain", c.Input, c.Channels)
	case c.Input == "imagenet":
		return imagenetInput(c.Size), nil
	case c.Input == "half":
		return halfInput(c.Size), nil
	}
	return Input{}, config.Invalid("input", "is %q; give imagenet, half or plain", c.Input)
}

// Build loads the module, learns its width from one black image, and adds the
// head. The tensors keep the module's names.
func (c *TorchScript) Build(s *torch.Scope, device torch.Device, seed uint64) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.File == "" {
		return nil, fault.Inputf("file: name the TorchScript module to use")
	}
	if err := tensorio.CheckScript(c.File); err != nil {
		return nil, err
	}
	module, err := torch.LoadScript(s, c.File, device)
	if err != nil {
		return nil, err
	}
	p := nn.NewParams(s, device, seed)
	p.ChannelsLast = c.ChannelsLast
	err = module.Each(func(name string, t *torch.Tensor, parameter bool, twin string) {
		p.Adopt(nn.Named{Name: name, Tensor: t, Parameter: parameter, Twin: twin})
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	trunk := &scripted{module: module, device: device}
	for _, n := range p.State() {
		if !n.Parameter {
			trunk.buffers = append(trunk.buffers, n)
		}
	}
	l, width, err := c.probe(s, trunk)
	if err != nil {
		return nil, err
	}
	input, err := c.input()
	if err != nil {
		return nil, err
	}
	m, err := finish(p, input, trunk, width, l, naming{}, c.Head)
	if err != nil {
		return nil, err
	}
	m.given = true
	return m, nil
}

// probe runs one image through the module to see what it gives, and whether it
// changes its buffers.
func (c *TorchScript) probe(s *torch.Scope, trunk *scripted) (l layout, width int, err error) {
	inner := s.Child()
	defer inner.Close()
	before, err := trunk.buffers.Snapshot()
	if err != nil {
		return l, 0, err
	}
	var y *torch.Tensor
	torch.NoGrad(func() {
		y = trunk.Forward(inner.Zeros([]int64{1, int64(c.Channels), int64(c.Size), int64(c.Size)}, torch.Float32, trunk.device), nn.Eval)
	})
	if err := y.Err(); err != nil {
		return l, 0, fault.Inputf("%s: the module does not take an image of %d channels and %d pixels: %w", c.File, c.Channels, c.Size, err)
	}
	after, err := trunk.buffers.Snapshot()
	if err != nil {
		return l, 0, err
	}
	trunk.restless = !slices.EqualFunc(before, after, func(a, b tensorio.Named) bool { return bytes.Equal(a.Data, b.Data) })
	if trunk.restless {
		if err := trunk.buffers.Load(nn.Stored(before)); err != nil {
			return l, 0, err
		}
	}
	switch shape := y.Shape(); {
	case slices.Contains(shape, 0):
		return l, 0, fault.Inputf("%s: the module turns one image into %v, which holds no number; wanted are a vector [1, d], tokens [1, t, d] or maps [1, d, h, w]", c.File, shape)
	case len(shape) == 2 && shape[0] == 1:
		return layout{vectors: true}, int(shape[1]), nil
	case len(shape) == 3 && shape[0] == 1 && shape[1] > 1:
		return layout{classTokens: 1}, int(shape[2]), nil
	case len(shape) == 4 && shape[0] == 1:
		return layout{}, int(shape[1]), nil
	default:
		return l, 0, fault.Inputf("%s: the module turns one image into %v; wanted are a vector [1, d], tokens [1, t, d] or maps [1, d, h, w]", c.File, shape)
	}
}

// scripted is the module as a layer.
type scripted struct {
	module   *torch.Script
	device   torch.Device
	dtype    torch.DType // 16 bits: autocast to it, whatever the caller's mode
	buffers  nn.State
	restless bool // traced in training mode: it changes its buffers in every mode
}

// Forward runs the module in the mode. Its buffers change in training alone.
func (l *scripted) Forward(x *torch.Tensor, mode nn.Mode) (y *torch.Tensor) {
	if !l.restless || mode == nn.Train {
		return l.forward(x, mode)
	}
	before, err := l.buffers.Snapshot()
	if err == nil {
		y = l.forward(x, mode)
		err = l.buffers.Load(nn.Stored(before))
	}
	if err != nil {
		x.Scope().Fail(err)
		return x.Scope().Dead()
	}
	return y
}

func (l *scripted) forward(x *torch.Tensor, mode nn.Mode) (y *torch.Tensor) {
	if err := l.module.Train(mode != nn.Eval); err != nil {
		x.Scope().Fail(err)
		return x.Scope().Dead()
	}
	if l.dtype == torch.BFloat16 || l.dtype == torch.Float16 {
		torch.Autocast(l.device, l.dtype, func() { y = l.module.Forward(x.ToDType(torch.Float32)) })
		return y
	}
	return l.module.Forward(x)
}

// Inference is the module itself, under autocast for 16 bits.
func (l *scripted) Inference(f *nn.Inference) nn.Layer {
	other := *l
	other.dtype = f.DType()
	return &other
}
