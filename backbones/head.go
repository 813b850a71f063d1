package backbones

import (
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Head turns a backbone's features into the embedding: pooling over places,
// layer norm, projection, length 1. It is part of every backbone's section.
type Head struct {
	Dim       int    `yaml:"dim"`        // of the embedding; 0: the backbone's own width, without projection
	Pool      string `yaml:"pool"`       // avg, max or gem over places; cls (networks with tokens): the class token
	LayerNorm bool   `yaml:"layer_norm"` // without scale and shift, between pooling and projection
	Normalize bool   `yaml:"normalize"`  // embeddings of Euclidean length 1
}

// Validate refuses what no backbone can do; Build checks the rest.
func (h Head) Validate() error {
	switch h.Pool {
	case "avg", "max", "gem", "cls":
	default:
		return config.Invalid("pool", "is %q; give avg, max, gem or cls", h.Pool)
	}
	if h.Dim < 0 {
		return config.Invalid("dim", "must be positive, or 0 for the backbone's own width; it is %d", h.Dim)
	}
	return nil
}

// layout is how a trunk gives its features.
type layout struct {
	vectors     bool  // [n, width]; else
	classTokens int64 // 0: maps [n, width, h, w]; else tokens [n, t, width], the first of which stand for the whole image
}

// head is a Head at work.
type head struct {
	dim        int
	layers     nn.Sequential
	projection *nn.Linear // the last of layers; nil: none
	normalize  bool
}

const (
	headNormEps = 1e-5  // added to the variance by the head's layer norm
	lengthEps   = 1e-12 // the least length an embedding is divided by
	gemPower    = 3     // initial exponent of generalised-mean pooling
	gemEps      = 1e-6  // the least activation it takes to a power
)

func newHead(p nn.Path, h Head, width int, l layout) (head, error) {
	pool, err := newPool(p.At("pool"), h.Pool, l)
	if err != nil {
		return head{}, err
	}
	made := head{dim: width, normalize: h.Normalize, layers: nn.Sequential{pool}}
	if h.LayerNorm {
		made.layers = append(made.layers, nn.Func(func(x *torch.Tensor) *torch.Tensor {
			return x.LayerNorm([]int64{int64(width)}, nil, nil, headNormEps)
		}))
	}
	if h.Dim > 0 {
		made.dim = h.Dim
		made.projection = nn.NewLinear(p.At("projection"), int64(width), int64(h.Dim), true, nil)
		made.layers = append(made.layers, made.projection)
	}
	return made, nil
}

// Forward maps features to embeddings [n, dim], float32 also where the network
// computes in 16 bits.
func (h head) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	x = h.layers.Forward(x, mode)
	if x.DType() != torch.Float64 {
		x = x.ToDType(torch.Float32)
	}
	if h.normalize {
		x = x.Div(x.Norm(2, []int64{1}, true).ClampMin(lengthEps))
	}
	return x
}

// newPool makes a layer from features to vectors [n, width].
func newPool(p nn.Path, name string, l layout) (nn.Layer, error) {
	places, patches := []int64{2, 3}, nn.Func(func(x *torch.Tensor) *torch.Tensor { return x })
	if k := l.classTokens; k > 0 {
		places, patches = []int64{1}, func(x *torch.Tensor) *torch.Tensor { return x.Narrow(1, k, x.Size(1)-k) }
	}
	switch {
	case l.vectors:
		return nn.Func(func(x *torch.Tensor) *torch.Tensor { return x }), nil
	case name == "avg":
		return nn.Sequential{patches, nn.Func(func(x *torch.Tensor) *torch.Tensor { return x.MeanDim(places, false) })}, nil
	case name == "max":
		return nn.Sequential{patches, nn.Func(func(x *torch.Tensor) *torch.Tensor { return x.AMax(places, false) })}, nil
	case name == "gem" && l.classTokens == 0:
		return &gem{power: p.Param("p", nn.Constant(gemPower), 1)}, nil
	case name == "cls" && l.classTokens > 0:
		return nn.Func(func(x *torch.Tensor) *torch.Tensor {
			return x.Narrow(1, 0, l.classTokens).MeanDim([]int64{1}, false)
		}), nil
	case name == "cls":
		return nil, fault.Inputf("pool: this backbone has no class token: use avg, max or gem instead of cls")
	}
	return nil, fault.Inputf("pool: gem needs a backbone with feature maps: use cls, avg or max")
}

// gem is generalised-mean pooling (Radenović et al. 2018, eq. 3): the mean of
// the activations' p-th powers, to the power of 1/p, with p learned.
type gem struct{ power *torch.Tensor }

// Forward maps [n, width, h, w] to [n, width].
func (g *gem) Forward(x *torch.Tensor, _ nn.Mode) *torch.Tensor {
	return x.ClampMin(gemEps).PowTensor(g.power).MeanDim([]int64{2, 3}, false).PowTensor(g.power.Reciprocal())
}
