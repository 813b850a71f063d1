package nn

import "roadmap/pkg/torch"

// Conv is a two-dimensional convolution with square kernels.
type Conv struct {
	weight, bias              *torch.Tensor // [out, in/groups, k, k], [out]
	stride, padding, dilation []int64
	groups                    int64
}

// ConvShape is the geometry of a convolution. Zero values of Stride and Groups
// stand for 1.
type ConvShape struct {
	In, Out, Kernel         int64
	Stride, Padding, Groups int64
	NoBias                  bool
	Init                    Init // of the weight; nil: FanIn
}

// NewConv makes a convolution with the parameters weight and, unless NoBias, bias.
func NewConv(p Path, c ConvShape) *Conv {
	c.Stride, c.Groups = max(c.Stride, 1), max(c.Groups, 1)
	in := c.In / c.Groups
	fan := FanIn(in * c.Kernel * c.Kernel)
	if c.Init == nil {
		c.Init = fan
	}
	l := &Conv{stride: []int64{c.Stride, c.Stride}, padding: []int64{c.Padding, c.Padding}, dilation: []int64{1, 1}, groups: c.Groups}
	l.weight = p.Param("weight", c.Init, c.Out, in, c.Kernel, c.Kernel)
	if !c.NoBias {
		l.bias = p.Param("bias", fan, c.Out)
	}
	return l
}

// Forward maps [n, in, h, w] to [n, out, h', w'].
func (l *Conv) Forward(x *torch.Tensor, _ Mode) *torch.Tensor {
	return x.Conv2d(l.weight, l.bias, l.stride, l.padding, l.dilation, l.groups)
}

// Linear is y = x·Wᵀ + b.
type Linear struct{ weight, bias *torch.Tensor } // [out, in], [out]

// NewLinear makes a linear layer with the parameters weight and bias; init
// nil is PyTorch's for both, and a given one leaves the bias at zero.
func NewLinear(p Path, in, out int64, bias bool, init Init) *Linear {
	weights, biases := init, Zeros
	if init == nil {
		weights, biases = FanIn(in), FanIn(in)
	}
	l := &Linear{weight: p.Param("weight", weights, out, in)}
	if bias {
		l.bias = p.Param("bias", biases, out)
	}
	return l
}

// Forward maps [..., in] to [..., out].
func (l *Linear) Forward(x *torch.Tensor, _ Mode) *torch.Tensor { return x.Linear(l.weight, l.bias) }

// LayerNorm normalises over the last dimension (Ba, Kiros and Hinton 2016).
type LayerNorm struct {
	weight, bias *torch.Tensor // [width]
	shape        []int64
	eps          float64
}

// NewLayerNorm makes a layer norm over vectors of a width; eps is added to the variance.
func NewLayerNorm(p Path, width int64, eps float64) *LayerNorm {
	return &LayerNorm{weight: p.Param("weight", Ones, width), bias: p.Param("bias", Zeros, width), shape: []int64{width}, eps: eps}
}

// Forward maps [..., width] to the same shape.
func (l *LayerNorm) Forward(x *torch.Tensor, _ Mode) *torch.Tensor {
	return x.LayerNorm(l.shape, l.weight, l.bias, l.eps)
}
