package backbones

import (
	"fmt"

	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Embedder is a network made for embedding alone: evaluation mode, without
// gradients, its weights folded and laid out for speed.
type Embedder struct {
	model *Model
	dtype torch.DType
	trunk nn.Layer
}

// Embedder copies the network, as it is now, into scope s in a form that only
// embeds. In Float32 the embeddings are those of Forward but for rounding; in
// BFloat16 or Float16 the trunk computes in 16 bits, the head in 32.
func (m *Model) Embedder(s *torch.Scope, dtype torch.DType) (*Embedder, error) {
	if dtype != torch.Float32 && dtype != torch.BFloat16 && dtype != torch.Float16 {
		return nil, fault.Inputf("a network embeds in float32, bfloat16 or float16, not in %s", dtype)
	}
	f := nn.NewInference(s, dtype)
	e := &Embedder{model: m, dtype: dtype, trunk: f.Layer(m.trunk)}
	if err := f.Err(); err != nil {
		return nil, fmt.Errorf("making the network ready to embed: %w", err)
	}
	return e, nil
}

// Forward maps images [n, c, h, w] to embeddings [n, Dim()], float32.
func (e *Embedder) Forward(x *torch.Tensor) (y *torch.Tensor) {
	torch.NoGrad(func() {
		y = nn.Apart(x, func(x *torch.Tensor) *torch.Tensor {
			x = x.ToDType(e.dtype)
			if e.model.params.ChannelsLast {
				x = x.ChannelsLast()
			}
			return e.model.head.Forward(e.trunk.Forward(x, nn.Eval).ToDType(torch.Float32), nn.Eval)
		})
	})
	return y
}
