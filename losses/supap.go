package losses

import (
	"math"

	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("supap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 3-5", func() Loss { return &SupAP{Surrogate: surrogate()} })
}

// SupAP is the smooth upper bound of 1 − AP of ROADMAP (Ramzi et al. 2021),
// eq. 3 to 5, for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rank⁺(k) / (rank⁺(k) + rank⁻(k))
//	rank⁺(k) = 1 + Σ_{j∈P_i\{k}} H(s_j − s_k)      no gradient
//	rank⁻(k) = Σ_{j∈N_i} H⁻(s_j − s_k)
//
// The loss is the mean of L_i over the queries that have a positive.
type SupAP struct {
	Surrogate `yaml:",inline"`
}

// Forward implements Loss.
func (l *SupAP) Forward(b *score.Block) *torch.Tensor {
	plus, minus := b.RankPlus(score.Heaviside()), b.RankMinus(l.step())
	return b.MeanAP(plus.Div(plus.Add(minus)))
}

// Surrogate is the function H⁻ that stands for the step function H in rank⁻:
//
//	H⁻(t) = σ(t/τ)            t < 0
//	      = σ(t/τ) + start    0 ≤ t ≤ δ
//	      = ρ (t − δ) + offset    t > δ
//
// It is at least H wherever start ≥ 0.5, offset ≥ 1 and ρ ≥ 0.
type Surrogate struct {
	Tau     float64  `yaml:"tau" in:"(0,inf)"`              // temperature τ of the sigmoid, in units of score
	Rho     float64  `yaml:"rho" in:"(-inf,inf)"`           // slope ρ beyond delta
	Epsilon float64  `yaml:"epsilon" in:"(0,0.5)"`          // without delta, δ = τ ln((1−ε)/ε): where the sigmoid reaches 1−ε
	Delta   *float64 `yaml:"delta" in:"[0,inf)"`            // where the linear branch begins; unset: from epsilon (released: 0.05)
	Start   float64  `yaml:"start" in:"(-inf,inf)"`         // added to the sigmoid from 0 on
	Offset  *float64 `yaml:"offset" in:"(-inf,inf)"`        // value the linear branch begins with; unset: σ(δ/τ) + start (released: 1.44)
	Variant string   `yaml:"variant" in:"{paper,released}"` // "paper", or "released": the authors' program, where H⁻(0) = 0.5; no upper bound
}

func surrogate() Surrogate {
	return Surrogate{Tau: 0.01, Rho: 100, Epsilon: 0.01, Start: 0.5, Variant: "paper"}
}

// step is H⁻.
func (h *Surrogate) step() score.Step {
	released := h.Variant == "released"
	delta := h.Tau * math.Log((1-h.Epsilon)/h.Epsilon)
	if released {
		delta = 0.05
	}
	delta = or(h.Delta, delta)
	offset := 1/(1+math.Exp(-delta/h.Tau)) + h.Start
	if released {
		offset = 1.44
	}
	return score.UpperBound{Tau: h.Tau, Rho: h.Rho, Delta: delta, Start: h.Start, Offset: or(h.Offset, offset), ZeroIsLow: released}.Step()
}

// or is *p, or the default where p is unset.
func or(p *float64, unset float64) float64 {
	if p == nil {
		return unset
	}
	return *p
}
