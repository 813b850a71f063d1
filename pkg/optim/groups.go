package optim

import (
	"roadmap/pkg/config"
	"roadmap/pkg/nn"
)

// Grouping is the part of a recipe that treats parameters differently.
type Grouping struct {
	HeadLR     float64 `yaml:"head_lr"`     // learning rate of the head, times the optimiser's
	ProxyLR    float64 `yaml:"proxy_lr"`    // that of the loss's proxies, times the optimiser's
	SpareNorms bool    `yaml:"spare_norms"` // no weight decay on norms, biases and the embeddings of positions and class tokens
}

// NewGrouping treats all parameters alike.
func NewGrouping() Grouping { return Grouping{HeadLR: 1, ProxyLR: 1} }

// Validate refuses a negative factor.
func (g Grouping) Validate() error {
	if !(g.HeadLR >= 0) {
		return config.Invalid("head_lr", "must not be negative, it is %g", g.HeadLR)
	}
	if !(g.ProxyLR >= 0) {
		return config.Invalid("proxy_lr", "must not be negative, it is %g", g.ProxyLR)
	}
	return nil
}

// Split puts parameters into groups: the network's backbone and head, each in
// two where norms are spared, and the loss's proxies. isHead tells backbone
// and head apart by name. Groups without a parameter are left out.
func (g Grouping) Split(params nn.State, isHead func(name string) bool, proxies nn.State) []Group {
	groups := []Group{
		{Name: "backbone", LR: 1, Decay: 1}, {Name: "backbone, no decay", LR: 1},
		{Name: "head", LR: g.HeadLR, Decay: 1}, {Name: "head, no decay", LR: g.HeadLR},
		{Name: "proxies", LR: g.ProxyLR, Decay: 1, Params: proxies},
	}
	for _, p := range params {
		i := 0
		if isHead(p.Name) {
			i = 2
		}
		if g.SpareNorms && spared(p) {
			i++
		}
		groups[i].Params = append(groups[i].Params, p)
	}
	filled := groups[:0]
	for _, group := range groups {
		if len(group.Params) > 0 {
			filled = append(filled, group)
		}
	}
	return filled
}

// spared is true for what weight decay does not suit: vectors, which scale,
// shift or add, and a transformer's learned tokens [1, t, width].
func spared(p nn.Named) bool {
	return p.Tensor.Dims() <= 1 || p.Tensor.Dims() == 3 && p.Tensor.Size(0) == 1
}
