package backbones

import (
	"slices"

	"roadmap/pkg/config"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

func init() {
	for name, plan := range map[string]resnetPlan{
		"resnet18":  {[]int{2, 2, 2, 2}, basicBlock, 1},
		"resnet34":  {[]int{3, 4, 6, 3}, basicBlock, 1},
		"resnet50":  {[]int{3, 4, 6, 3}, bottleneck, 4},
		"resnet101": {[]int{3, 4, 23, 3}, bottleneck, 4},
		"resnet152": {[]int{3, 8, 36, 3}, bottleneck, 4},
	} {
		Registry.Register(name, func() Backbone {
			return &ResNet{Size: 224, FrozenNorm: frozenNorms[nn.FrozenNone], ChannelsLast: true, Head: Head{Pool: "avg", Normalize: true}, plan: plan}
		})
	}
}

// ResNet is the residual network of He et al. (2016), table 1, as torchvision
// has it: a bottleneck strides in its 3x3 convolution.
type ResNet struct {
	Size         int    `yaml:"size"`          // of the images, pixels; any other works too
	FrozenNorm   string `yaml:"frozen_norm"`   // batch norms as loaded: none, statistics, or affine (statistics, scale and shift)
	ChannelsLast bool   `yaml:"channels_last"` // memory layout; faster on most machines
	Checkpoint   bool   `yaml:"checkpoint"`    // keep the values between stages only and compute the rest twice: less memory, slower
	Head         `yaml:",inline"`

	plan resnetPlan
}

// resnetNaming: torchvision's classifier, and its children in an nn.Sequential.
var resnetNaming = naming{
	classifier: []string{"fc.weight", "fc.bias"},
	children:   map[string]string{"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"},
}

type resnetPlan struct {
	blocks    []int // in each of the four stages
	block     func(p nn.Path, in, width, stride int64, frozen nn.Frozen) nn.Layer
	expansion int64 // a block's output channels over its inner ones
}

// frozenNorms are the names of the ways to freeze a batch norm.
var frozenNorms = []string{nn.FrozenNone: "none", nn.FrozenStatistics: "statistics", nn.FrozenAffine: "affine"}

// Validate refuses sizes the stem cannot halve and unknown words.
func (c *ResNet) Validate() error {
	if c.Size < 32 {
		return config.Invalid("size", "is %d; a ResNet divides images by 32, so give at least 32", c.Size)
	}
	if !slices.Contains(frozenNorms, c.FrozenNorm) {
		return config.Invalid("frozen_norm", "is %q; give none, statistics or affine", c.FrozenNorm)
	}
	return c.Head.Validate()
}

// Build makes the network with torchvision's names and the head.
func (c *ResNet) Build(s *torch.Scope, device torch.Device, seed uint64) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := nn.NewParams(s, device, seed)
	p.ChannelsLast = c.ChannelsLast
	root, frozen := p.Root(), nn.Frozen(slices.Index(frozenNorms, c.FrozenNorm))

	in := int64(64)
	trunk := stages{checkpoint: c.Checkpoint, layers: []nn.Layer{nn.Sequential{
		conv(root.At("conv1"), 3, in, 7, 2),
		nn.NewBatchNorm(root.At("bn1"), in, 1, frozen),
		nn.ReLU{},
		nn.Func(func(x *torch.Tensor) *torch.Tensor {
			return x.MaxPool2d([]int64{3, 3}, []int64{2, 2}, []int64{1, 1}, []int64{1, 1}, false)
		}),
	}}}
	for i, blocks := range c.plan.blocks {
		width, stride := int64(64)<<i, int64(min(i, 1)+1)
		var stage nn.Sequential
		for j := range blocks {
			stage = append(stage, c.plan.block(root.At("layer"+string(rune('1'+i)), j), in, width, stride, frozen))
			in, stride = width*c.plan.expansion, 1
		}
		trunk.layers = append(trunk.layers, stage)
	}
	return finish(p, imagenetInput(c.Size), trunk, int(in), layout{}, resnetNaming, c.Head)
}

// conv is a convolution as ResNets have it: no bias, padded to keep the size
// before the stride, and started by the outputs (torchvision's choice).
func conv(p nn.Path, in, out, kernel, stride int64) *nn.Conv {
	return nn.NewConv(p, nn.ConvShape{In: in, Out: out, Kernel: kernel, Stride: stride, Padding: kernel / 2,
		NoBias: true, Init: nn.KaimingNormal(out * kernel * kernel)})
}

// residual is y = ReLU(branch(x) + shortcut(x)).
type residual struct{ branch, shortcut nn.Sequential } // shortcut nil: x itself

// Forward maps [n, in, h, w] to [n, out, h/stride, w/stride].
func (r residual) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	return r.branch.Forward(x, mode).AddInPlace(r.shortcut.Forward(x, mode)).ReLUInPlace()
}

// Inference folds the batch norms in, and the sum and its ReLU into the
// branch's last convolution.
func (r residual) Inference(f *nn.Inference) nn.Layer {
	last := len(r.branch) - 2
	made := foldedResidual{
		first: r.branch[:last].Inference(f),
		last:  f.Fold(r.branch[last].(*nn.Conv), r.branch[last+1].(*nn.BatchNorm), false),
	}
	if r.shortcut != nil {
		made.shortcut = r.shortcut.Inference(f)
	}
	return made
}

// foldedResidual is a residual for inference. It writes over its input.
type foldedResidual struct {
	first    nn.Layer
	last     *nn.Folded
	shortcut nn.Layer // nil: x itself
}

// Forward maps [n, in, h, w] to [n, out, h/stride, w/stride].
func (r foldedResidual) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	y, sum := r.first.Forward(x, mode), x
	if r.shortcut != nil {
		sum = r.shortcut.Forward(x, mode)
	}
	return r.last.Onto(sum, y)
}

// basicBlock is two 3x3 convolutions, for the networks of 18 and 34 layers.
func basicBlock(p nn.Path, in, width, stride int64, frozen nn.Frozen) nn.Layer {
	return residual{
		branch: nn.Sequential{
			conv(p.At("conv1"), in, width, 3, stride), nn.NewBatchNorm(p.At("bn1"), width, 1, frozen), nn.ReLU{},
			conv(p.At("conv2"), width, width, 3, 1), nn.NewBatchNorm(p.At("bn2"), width, 1, frozen),
		},
		shortcut: shortcut(p.At("downsample"), in, width, stride, frozen),
	}
}

// bottleneck is 1x1, 3x3 and 1x1 convolutions, the last four times as wide.
func bottleneck(p nn.Path, in, width, stride int64, frozen nn.Frozen) nn.Layer {
	return residual{
		branch: nn.Sequential{
			conv(p.At("conv1"), in, width, 1, 1), nn.NewBatchNorm(p.At("bn1"), width, 1, frozen), nn.ReLU{},
			conv(p.At("conv2"), width, width, 3, stride), nn.NewBatchNorm(p.At("bn2"), width, 1, frozen), nn.ReLU{},
			conv(p.At("conv3"), width, 4*width, 1, 1), nn.NewBatchNorm(p.At("bn3"), 4*width, 1, frozen),
		},
		shortcut: shortcut(p.At("downsample"), in, 4*width, stride, frozen),
	}
}

// shortcut is a strided 1x1 convolution where the block changes the shape.
func shortcut(p nn.Path, in, out, stride int64, frozen nn.Frozen) nn.Sequential {
	if in == out && stride == 1 {
		return nil
	}
	return nn.Sequential{conv(p.At(0), in, out, 1, stride), nn.NewBatchNorm(p.At(1), out, 1, frozen)}
}

// imagenetInput is what networks trained on ImageNet want.
func imagenetInput(size int) Input {
	return Input{Channels: 3, Size: size, Mean: []float32{0.485, 0.456, 0.406}, Std: []float32{0.229, 0.224, 0.225}}
}
