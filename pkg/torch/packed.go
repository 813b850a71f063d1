package torch

/*
#include "shim.h"
#include "packed.h"
*/
import "C"

// ConvGeometry is how a convolution's window moves, [rows, columns] each.
type ConvGeometry struct {
	Stride, Padding, Dilation [2]int64
	Groups                    int64
}

func (g ConvGeometry) c() C.rt_conv {
	var c C.rt_conv
	for i := range 2 {
		c.stride[i], c.padding[i], c.dilation[i] = C.int64_t(g.Stride[i]), C.int64_t(g.Padding[i]), C.int64_t(g.Dilation[i])
	}
	c.groups = C.int64_t(g.Groups)
	return c
}

// PackConv lays the weight t [out, in, k, k] of a convolution out as the CPU's
// kernels want it. The result is of use to PackedConv and PackedConvOnto alone;
// it has no gradient. Where the kernels do not serve t's dtype and device, the
// result is dead.
func (t *Tensor) PackConv(g ConvGeometry) *Tensor {
	s, ok := join("PackConv", t)
	if !ok {
		return s.dead()
	}
	return s.one("PackConv", C.rt_pack_conv(t.h, g.c()), t)
}

// PackedConv is the convolution of t [n, in, h, w] with a packed weight and a
// bias [out], followed by a ReLU if asked for. It has no gradient.
func (t *Tensor) PackedConv(weight, bias *Tensor, g ConvGeometry, relu bool) *Tensor {
	s, ok := join("PackedConv", t, weight, bias)
	if !ok {
		return s.dead()
	}
	return s.one("PackedConv", C.rt_packed_conv(t.h, weight.h, bias.h, g.c(), cbool(relu)), t)
}

// PackedConvOnto writes max(0, sum + the convolution of t) into sum and returns
// it. It has no gradient.
func (t *Tensor) PackedConvOnto(sum, weight, bias *Tensor, g ConvGeometry) *Tensor {
	s, ok := join("PackedConvOnto", sum, t, weight, bias)
	if !ok {
		return s.dead()
	}
	if msg := C.rt_packed_conv_onto(sum.h, t.h, weight.h, bias.h, g.c()); msg != nil {
		s.refuse("PackedConvOnto", msg, sum, t)
		return s.dead()
	}
	return sum
}
