package nn

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Inference turns layers into ones that give the same values in evaluation,
// faster: batch norms folded into their convolutions, weights in another dtype
// and laid out for the machine's kernels. What it makes has no gradient. The
// first error is kept for Err.
type Inference struct {
	scope *torch.Scope
	dtype torch.DType
	err   error
}

// NewInference makes layers whose weights live in scope s and have a dtype.
func NewInference(s *torch.Scope, dtype torch.DType) *Inference {
	return &Inference{scope: s, dtype: dtype}
}

// Err returns the first error.
func (f *Inference) Err() error { return f.err }

// DType is what the layers compute in.
func (f *Inference) DType() torch.DType { return f.dtype }

// Inferrer is a layer that knows its form for inference.
type Inferrer interface {
	Inference(f *Inference) Layer
}

// Layer returns l's form for inference; l itself if it has no other.
func (f *Inference) Layer(l Layer) Layer {
	if other, ok := l.(Inferrer); ok {
		return other.Inference(f)
	}
	return l
}

// Tensor copies a weight, computed by make, into the scope.
func (f *Inference) Tensor(t *torch.Tensor, make func(t *torch.Tensor) *torch.Tensor) *torch.Tensor {
	if t == nil || f.err != nil {
		return nil
	}
	inner := f.scope.Child()
	defer inner.Close()
	var kept *torch.Tensor
	torch.NoGrad(func() {
		made := make(t.Alias(inner))
		if made.DType() == torch.Float16 {
			if f.err = representable(made); f.err != nil {
				return
			}
		}
		kept, f.err = made.KeepIn(f.scope)
	})
	return kept
}

// representable refuses weights that float16 has made infinite.
func representable(t *torch.Tensor) error {
	all, err := t.IsFinite().All().Item()
	if err == nil && all == 0 {
		err = fault.Inputf("a weight is too large for float16; use bfloat16 or float32")
	}
	return err
}

// weight copies a weight in the dtype.
func (f *Inference) weight(t *torch.Tensor) *torch.Tensor {
	return f.Tensor(t, func(t *torch.Tensor) *torch.Tensor { return t.ToDType(f.dtype).Clone() })
}

// Inference folds each batch norm, and the ReLU behind it, into the
// convolution before it.
func (s Sequential) Inference(f *Inference) Layer {
	var out Sequential
	for i := 0; i < len(s); i++ {
		conv, isConv := s[i].(*Conv)
		if !isConv || i+1 == len(s) {
			out = append(out, f.Layer(s[i]))
			continue
		}
		norm, isNorm := s[i+1].(*BatchNorm)
		if !isNorm {
			out = append(out, f.Layer(s[i]))
			continue
		}
		i++
		relu := i+1 < len(s) && s[i+1] == Layer(ReLU{})
		if relu {
			i++
		}
		out = append(out, f.Fold(conv, norm, relu))
	}
	return out
}

// Inference copies the weights.
func (l *Conv) Inference(f *Inference) Layer {
	c := *l
	c.weight, c.bias = f.weight(l.weight), f.weight(l.bias)
	return &c
}

// Inference copies the weights.
func (l *Linear) Inference(f *Inference) Layer {
	return &Linear{weight: f.weight(l.weight), bias: f.weight(l.bias)}
}

// Inference copies the weights.
func (l *LayerNorm) Inference(f *Inference) Layer {
	c := *l
	c.weight, c.bias = f.weight(l.weight), f.weight(l.bias)
	return &c
}

// Folded is a convolution and the batch norm behind it in one, for inference.
type Folded struct {
	conv   Conv // with the folded weight and bias
	packed *torch.Tensor
	shape  torch.ConvGeometry
	relu   bool
}

// Fold computes W' = W·γ/√(v + ε) and b' = β + (b - m)·γ/√(v + ε), for each
// output channel, with the running mean m and variance v.
func (f *Inference) Fold(conv *Conv, norm *BatchNorm, relu bool) *Folded {
	factor := func(s *torch.Scope) *torch.Tensor {
		return norm.weight.Alias(s).ToDType(torch.Float64).Div(norm.vari.Alias(s).ToDType(torch.Float64).AddScalar(batchNormEps).Sqrt())
	}
	l := &Folded{conv: *conv, relu: relu}
	l.conv.weight = f.Tensor(conv.weight, func(w *torch.Tensor) *torch.Tensor {
		w = w.ToDType(torch.Float64).Mul(factor(w.Scope()).Reshape(-1, 1, 1, 1)).ToDType(f.dtype)
		return w.ChannelsLast()
	})
	l.conv.bias = f.Tensor(norm.bias, func(b *torch.Tensor) *torch.Tensor {
		s := b.Scope()
		shift := norm.mean.Alias(s).ToDType(torch.Float64).Neg()
		if conv.bias != nil {
			shift = shift.Add(conv.bias.Alias(s))
		}
		return b.ToDType(torch.Float64).Add(shift.Mul(factor(s))).ToDType(f.dtype)
	})
	if f.err == nil {
		l.pack(f)
	}
	return l
}

// pack lays the weight out for the CPU's kernels where they take it.
func (l *Folded) pack(f *Inference) {
	copy(l.shape.Stride[:], l.conv.stride)
	copy(l.shape.Padding[:], l.conv.padding)
	copy(l.shape.Dilation[:], l.conv.dilation)
	l.shape.Groups = l.conv.groups
	if l.conv.weight.Device().IsCUDA() || f.dtype == torch.Float64 {
		return
	}
	inner := torch.NewScope() // a refusal is no error: there is the plain convolution
	defer inner.Close()
	packed := l.conv.weight.Alias(inner).PackConv(l.shape)
	if packed.Err() == nil {
		l.packed, f.err = packed.KeepIn(f.scope)
	}
}

// Forward maps [n, in, h, w] to [n, out, h', w'].
func (l *Folded) Forward(x *torch.Tensor, mode Mode) *torch.Tensor {
	if l.packed != nil {
		return x.PackedConv(l.packed, l.conv.bias, l.shape, l.relu)
	}
	y := l.conv.Forward(x, mode)
	if l.relu {
		return y.ReLUInPlace()
	}
	return y
}

// Onto replaces sum by ReLU(sum + Forward(x)) and returns it.
func (l *Folded) Onto(sum, x *torch.Tensor) *torch.Tensor {
	if l.packed != nil {
		return x.PackedConvOnto(sum, l.packed, l.conv.bias, l.shape)
	}
	return sum.AddInPlace(l.conv.Forward(x, Eval)).ReLUInPlace()
}
