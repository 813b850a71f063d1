package backbones

import (
	"fmt"
	"math"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

func init() {
	for name, plan := range map[string]vitPlan{
		"vit_small_patch16_224":            {width: 384, heads: 6, depth: 12, input: halfInput},
		"vit_base_patch16_224":             {width: 768, heads: 12, depth: 12, input: halfInput},
		"deit_small_patch16_224":           {width: 384, heads: 6, depth: 12, input: imagenetInput},
		"deit_base_patch16_224":            {width: 768, heads: 12, depth: 12, input: imagenetInput},
		"deit_small_distilled_patch16_224": {width: 384, heads: 6, depth: 12, distilled: true, input: imagenetInput},
		"deit_base_distilled_patch16_224":  {width: 768, heads: 12, depth: 12, distilled: true, input: imagenetInput},
	} {
		Registry.Register(name, func() Backbone {
			return &ViT{Size: 224, Head: Head{Pool: "cls", Normalize: true}, plan: plan}
		})
	}
}

// ViT is the vision transformer of Dosovitskiy et al. (2021), eq. 1 to 4, as
// timm has it, and DeiT (Touvron et al. 2021), which is the same network and,
// distilled, has a second token beside the class token.
type ViT struct {
	Size            int  `yaml:"size"`             // of the images, pixels; the position embeddings are made for it and interpolated for others
	FrozenPositions bool `yaml:"frozen_positions"` // position embeddings as loaded
	Checkpoint      bool `yaml:"checkpoint"`       // keep the values between blocks only and compute the rest twice: less memory, slower
	Head            `yaml:",inline"`

	plan vitPlan
}

type vitPlan struct {
	width, heads, depth int64
	distilled           bool
	input               func(size int) Input
}

const (
	patch      = 16   // pixels, both ways
	vitNormEps = 1e-6 // added to the variance by a transformer's layer norms
	vitInitStd = 0.02 // of linear layers and position embeddings
	mlpRatio   = 4    // width inside a block's perceptron over the network's
)

// Validate asks for whole patches.
func (c *ViT) Validate() error {
	if c.Size < patch || c.Size%patch != 0 {
		return config.Invalid("size", "must be a positive multiple of the patches' %d pixels, it is %d", patch, c.Size)
	}
	return c.Head.Validate()
}

// wholePatches refuses images with a part of a patch at the edge.
func wholePatches(side int) error {
	if side < patch || side%patch != 0 {
		return fault.Inputf("the network's patches of %d pixels do not divide images of %d; set transform.resize (or crop) to a multiple of %d, such as %d",
			patch, side, patch, max(patch, (side+patch/2)/patch*patch))
	}
	return nil
}

// Build makes the network with timm's names and the head.
func (c *ViT) Build(s *torch.Scope, device torch.Device, seed uint64) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	p := nn.NewParams(s, device, seed)
	root, width, grid := p.Root(), c.plan.width, int64(c.Size/patch)
	small := nn.TruncatedNormal(vitInitStd, 2)

	e := &embed{grid: grid}
	e.tokens = []*torch.Tensor{root.Param("cls_token", nn.Normal(1e-6), 1, 1, width)}
	prefix := int64(1)
	if c.plan.distilled {
		prefix = 2
	}
	e.positions = root.Param("pos_embed", small, 1, prefix+grid*grid, width)
	if c.FrozenPositions {
		e.positions.RequireGrad(false)
	}
	if c.plan.distilled {
		e.tokens = append(e.tokens, root.Param("dist_token", small, 1, 1, width))
	}
	e.patches = nn.NewConv(root.At("patch_embed", "proj"), nn.ConvShape{In: 3, Out: width, Kernel: patch, Stride: patch})

	names := naming{classifier: []string{"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}, positions: "pos_embed", tokens: prefix}
	if !c.plan.distilled {
		names.distilled = "dist_token"
	}

	trunk := stages{checkpoint: c.Checkpoint, layers: []nn.Layer{e}}
	for i := range c.plan.depth {
		trunk.layers = append(trunk.layers, newBlock(root.At("blocks", i), width, c.plan.heads))
	}
	trunk.layers = append(trunk.layers, nn.NewLayerNorm(root.At("norm"), width, vitNormEps))
	input := c.plan.input(c.Size)
	input.Takes = wholePatches
	return finish(p, input, trunk, int(width), layout{classTokens: prefix}, names, c.Head)
}

// embed is eq. 1: patches as vectors, the class token (and the distillation
// token) before them, positions added.
type embed struct {
	patches   *nn.Conv
	tokens    []*torch.Tensor // each [1, 1, width]
	positions *torch.Tensor   // [1, tokens + grid·grid, width]
	grid      int64
}

// Forward maps images [n, 3, h, w] to tokens [n, t, width].
func (e *embed) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	if h, w := x.Size(2), x.Size(3); h%patch != 0 || w%patch != 0 {
		x.Scope().Fail(fault.Inputf("images of %dx%d pixels do not divide into patches of %d", w, h, patch))
		return x.Scope().Dead()
	}
	n, places := x.Size(0), e.patches.Forward(x, mode) // [n, width, rows, cols]
	all := make([]*torch.Tensor, 0, 3)
	for _, t := range e.tokens {
		all = append(all, t.Alias(x.Scope()).Expand(n, -1, -1))
	}
	all = append(all, places.Flatten(2, 3).Transpose(1, 2))
	positions := resample(e.positions.Alias(x.Scope()), int64(len(e.tokens)), e.grid, e.grid, places.Size(2), places.Size(3))
	return torch.Cat(all, 1).Add(positions)
}

// Inference copies the weights.
func (e *embed) Inference(f *nn.Inference) nn.Layer {
	made := &embed{patches: f.Layer(e.patches).(*nn.Conv), grid: e.grid}
	convert := func(t *torch.Tensor) *torch.Tensor { return t.ToDType(f.DType()).Clone() }
	for _, t := range e.tokens {
		made.tokens = append(made.tokens, f.Tensor(t, convert))
	}
	made.positions = f.Tensor(e.positions, convert)
	return made
}

// resample brings the position embeddings [1, prefix + rows·cols, width] of one
// grid to another, as timm does: bicubic with antialiasing, the prefix as it is.
func resample(positions *torch.Tensor, prefix, rows, cols, toRows, toCols int64) *torch.Tensor {
	if rows == toRows && cols == toCols || positions.Err() != nil {
		return positions
	}
	width := positions.Size(2)
	places := positions.Narrow(1, prefix, rows*cols).Reshape(1, rows, cols, width).Permute(0, 3, 1, 2)
	places = places.ToDType(torch.Float32).UpsampleBicubic2dAA([]int64{toRows, toCols}, false).ToDType(positions.DType())
	places = places.Permute(0, 2, 3, 1).Reshape(1, toRows*toCols, width)
	return torch.Cat([]*torch.Tensor{positions.Narrow(1, 0, prefix), places}, 1)
}

// block is eq. 2 and 3: attention and perceptron, each behind a layer norm and
// added to what it was computed from.
type block struct {
	norm1, norm2 *nn.LayerNorm
	attention    *attention
	fc1, fc2     *nn.Linear
}

func newBlock(p nn.Path, width, heads int64) *block {
	small := nn.TruncatedNormal(vitInitStd, 2)
	return &block{
		norm1:     nn.NewLayerNorm(p.At("norm1"), width, vitNormEps),
		attention: &attention{heads: heads, qkv: nn.NewLinear(p.At("attn", "qkv"), width, 3*width, true, small), out: nn.NewLinear(p.At("attn", "proj"), width, width, true, small)},
		norm2:     nn.NewLayerNorm(p.At("norm2"), width, vitNormEps),
		fc1:       nn.NewLinear(p.At("mlp", "fc1"), width, mlpRatio*width, true, small),
		fc2:       nn.NewLinear(p.At("mlp", "fc2"), mlpRatio*width, width, true, small),
	}
}

// Forward maps [n, t, width] to the same shape.
func (b *block) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	x = x.Add(b.attention.Forward(b.norm1.Forward(x, mode), mode))
	inner := b.fc1.Forward(b.norm2.Forward(x, mode), mode).GELU("none")
	return x.Add(b.fc2.Forward(inner, mode))
}

// Inference copies the weights.
func (b *block) Inference(f *nn.Inference) nn.Layer {
	return &block{
		norm1: f.Layer(b.norm1).(*nn.LayerNorm), norm2: f.Layer(b.norm2).(*nn.LayerNorm),
		attention: &attention{heads: b.attention.heads, qkv: f.Layer(b.attention.qkv).(*nn.Linear), out: f.Layer(b.attention.out).(*nn.Linear)},
		fc1:       f.Layer(b.fc1).(*nn.Linear), fc2: f.Layer(b.fc2).(*nn.Linear),
	}
}

// attention is multi-head self-attention (Vaswani et al. 2017, eq. 1), the
// product and the softmax in libtorch's fused kernel.
type attention struct {
	heads    int64
	qkv, out *nn.Linear
}

// Forward maps [n, t, width] to the same shape.
func (a *attention) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	n, t, width := x.Size(0), x.Size(1), x.Size(2)
	qkv := a.qkv.Forward(x, mode).Reshape(n, t, 3, a.heads, width/a.heads).Permute(2, 0, 3, 1, 4)
	each := qkv.Unbind(0, 3) // query, key and value, each [n, heads, t, width/heads]
	y := each[0].ScaledDotProductAttention(each[1], each[2], nil, 0, false).Transpose(1, 2).Reshape(n, t, width)
	return a.out.Forward(y, mode)
}

// halfInput is what timm's own vision transformers want.
func halfInput(size int) Input {
	half := []float32{0.5, 0.5, 0.5}
	return Input{Channels: 3, Size: size, Mean: half, Std: half}
}

// squareGrid is the side of a grid with this many places.
func squareGrid(places int64) (int64, error) {
	side := int64(math.Round(math.Sqrt(float64(places))))
	if side*side != places || side == 0 {
		return 0, fmt.Errorf("%d positions do not form a square grid", places)
	}
	return side, nil
}
