package backbones

import (
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

func init() {
	Registry.Register("convnet", func() Backbone {
		return &ConvNet{Blocks: 4, Width: 64, Channels: 1, Size: 28, ChannelsLast: true, Head: Head{Dim: 64, Pool: "avg", Normalize: true}}
	})
}

// ConvNet is the small network of few-shot learning (Vinyals et al. 2016,
// section 4.1): blocks of a 3x3 convolution, batch norm, ReLU and 2x2 max
// pooling. Four blocks bring 28x28 pixels down to one place.
type ConvNet struct {
	Blocks   int `yaml:"blocks"`   // each halves the sides of the image
	Width    int `yaml:"width"`    // channels of every block
	Channels int `yaml:"channels"` // of the images: 1 grey, 3 colour
	Size     int `yaml:"size"`     // of the images, pixels

	ChannelsLast bool `yaml:"channels_last"` // memory layout; faster on most machines

	Head `yaml:",inline"`
}

// Validate asks for positive sizes, and at least one place after the pooling.
func (c *ConvNet) Validate() error {
	for _, v := range []struct {
		name  string
		value int
	}{{"blocks", c.Blocks}, {"width", c.Width}, {"channels", c.Channels}, {"size", c.Size}} {
		if v.value < 1 {
			return config.Invalid(v.name, "must be at least 1, it is %d", v.value)
		}
	}
	if c.Blocks > 30 || c.Size>>c.Blocks < 1 {
		return config.Invalid("size", "is %d; images of so many pixels vanish in %d blocks that each halve them; use fewer blocks or at least %d pixels", c.Size, c.Blocks, 1<<min(c.Blocks, 30))
	}
	return c.Head.Validate()
}

// takes refuses images of which the blocks leave nothing.
func (c *ConvNet) takes(side int) error {
	if least := 1 << c.Blocks; side < least {
		return fault.Inputf("the network's %d blocks need images of at least %d pixels, these have %d; raise transform.resize (or crop) or lower model.blocks", c.Blocks, least, side)
	}
	return nil
}

// Build makes the network: blocks.N.conv, blocks.N.norm and the head.
func (c *ConvNet) Build(s *torch.Scope, device torch.Device, seed uint64) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := nn.NewParams(s, device, seed)
	p.ChannelsLast = c.ChannelsLast
	var trunk nn.Sequential
	in, width := int64(c.Channels), int64(c.Width)
	for i := range c.Blocks {
		block := p.Root().At("blocks", i)
		trunk = append(trunk,
			nn.NewConv(block.At("conv"), nn.ConvShape{In: in, Out: width, Kernel: 3, Padding: 1}),
			nn.NewBatchNorm(block.At("norm"), width, 1, nn.FrozenNone),
			nn.Func(halve), // before the ReLU: the same values and gradients, a quarter of the ReLU's work
			nn.ReLU{})
		in = width
	}
	input := plainInput(c.Channels, c.Size)
	input.Takes = c.takes
	return finish(p, input, trunk, c.Width, layout{}, naming{}, c.Head)
}

// halve is 2x2 max pooling; an odd last row or column is dropped.
func halve(x *torch.Tensor) *torch.Tensor {
	return x.MaxPool2d([]int64{2, 2}, []int64{2, 2}, []int64{0, 0}, []int64{1, 1}, false)
}

// plainInput takes pixels in [0, 1] as they are.
func plainInput(channels, size int) Input {
	in := Input{Channels: channels, Size: size}
	for range channels {
		in.Mean, in.Std = append(in.Mean, 0), append(in.Std, 1)
	}
	return in
}
