package backbones

import (
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// stages is a trunk in parts, so that the values inside a part need not be
// stored for the gradients.
type stages struct {
	layers     []nn.Layer
	checkpoint bool
}

// Forward applies the parts in order.
func (t stages) Forward(x *torch.Tensor, mode nn.Mode) *torch.Tensor {
	if !t.checkpoint || mode != nn.Train {
		return nn.Sequential(t.layers).Forward(x, mode)
	}
	parts := make(nn.Sequential, len(t.layers))
	for i, layer := range t.layers {
		parts[i] = nn.Func(func(x *torch.Tensor) *torch.Tensor {
			return torch.Checkpoint(x, func(x *torch.Tensor, again bool) *torch.Tensor {
				if again {
					return layer.Forward(x, nn.Replay)
				}
				return layer.Forward(x, nn.Train)
			})
		})
	}
	return parts.Forward(x, mode)
}

// Inference is the parts' forms for inference, in a row.
func (t stages) Inference(f *nn.Inference) nn.Layer { return nn.Sequential(t.layers).Inference(f) }
