package losses

import (
	"math"

	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("supap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 3-5", func() Loss { return &SupAP{Common: common(), Surrogate: surrogate()} })
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
	Common    `yaml:",inline"`
	Surrogate `yaml:",inline"`
}

// Validate implements Loss.
func (l *SupAP) Validate() error { return validateAll(&l.Common, &l.Surrogate) }

// Forward implements Loss.
func (l *SupAP) Forward(b *Block) *torch.Tensor { return l.Surrogate.forward(b) }

func (l *SupAP) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{l.Surrogate.term(b, 1)}
}

// Surrogate is the function H⁻ that stands for the step function H in rank⁻:
//
//	H⁻(t) = σ(t/τ)            t < 0
//	      = σ(t/τ) + start    0 ≤ t ≤ δ
//	      = ρ (t − δ) + offset    t > δ
//
// It is at least H wherever start ≥ 0.5, offset ≥ 1 and ρ ≥ 0.
type Surrogate struct {
	Tau     float64  `yaml:"tau"`     // temperature τ of the sigmoid, in units of score
	Rho     float64  `yaml:"rho"`     // slope ρ beyond delta
	Epsilon float64  `yaml:"epsilon"` // without delta, δ = τ ln((1−ε)/ε): where the sigmoid reaches 1−ε
	Delta   *float64 `yaml:"delta"`   // where the linear branch begins; unset: from epsilon (released: 0.05)
	Start   float64  `yaml:"start"`   // added to the sigmoid from 0 on
	Offset  *float64 `yaml:"offset"`  // value the linear branch begins with; unset: σ(δ/τ) + start (released: 1.44)
	Variant string   `yaml:"variant"` // "paper", or "released": the authors' program, where H⁻(0) = 0.5; no upper bound
}

func surrogate() Surrogate {
	return Surrogate{Tau: 0.01, Rho: 100, Epsilon: 0.01, Start: 0.5, Variant: "paper"}
}

// Validate refuses parameters without which H⁻ is not defined.
func (h *Surrogate) Validate() error {
	switch {
	case h.Variant != "paper" && h.Variant != "released":
		return fault.Inputf("variant is %q; give paper or released", h.Variant)
	case !(h.Epsilon > 0 && h.Epsilon < 0.5):
		return fault.Inputf("epsilon is %g; give a number between 0 and 0.5", h.Epsilon)
	case h.Delta != nil && !(*h.Delta >= 0 && *h.Delta <= largest):
		return fault.Inputf("delta is %g; give a difference of scores of at least 0", *h.Delta)
	}
	if err := positive("tau", h.Tau); err != nil {
		return err
	}
	return finite("rho", h.Rho, "start", h.Start, "offset", or(h.Offset, 0))
}

// delta is δ, where the linear branch begins.
func (h *Surrogate) delta() float64 {
	if h.Variant == "released" {
		return or(h.Delta, 0.05)
	}
	return or(h.Delta, h.Tau*math.Log((1-h.Epsilon)/h.Epsilon))
}

// offset is the value with which the linear branch begins.
func (h *Surrogate) offset() float64 {
	if h.Variant == "released" {
		return or(h.Offset, 1.44)
	}
	return or(h.Offset, 1/(1+math.Exp(-h.delta()/h.Tau))+h.Start)
}

// minus is H⁻ of differences t.
func (h *Surrogate) minus(t *torch.Tensor) *torch.Tensor {
	sigmoid := t.DivScalar(h.Tau).Sigmoid()
	stepped := t.GeScalar(0) // H(t)
	if h.Variant == "released" {
		stepped = t.GtScalar(0)
	}
	linear := t.SubScalar(h.delta()).MulScalar(h.Rho).AddScalar(h.offset())
	low := sigmoid.Add(stepped.ToDType(t.DType()).MulScalar(h.Start))
	return t.GtScalar(h.delta()).Where(linear, low)
}

func (h *Surrogate) forward(b *Block) *torch.Tensor {
	p := b.Positives()
	below := h.minus(b.Scores.Unsqueeze(1).Sub(p.Scores.Unsqueeze(2)))                   // [q, p, g] H⁻(s_j − s_k)
	minus := b.Negative.Unsqueeze(1).Where(below, zero(below)).SumDim([]int64{2}, false) // [q, p] rank⁻
	plus := p.rank()                                                                     // [q, p] rank⁺
	return b.oneMinus(plus.Div(plus.Add(minus)))
}

func (h *Surrogate) term(b *Block, weight float64) torch.RankTerm {
	return torch.RankTerm{Kind: torch.RankSupAP, Weight: weight * b.perRanked(),
		P: []float64{h.Tau, h.Rho, h.delta(), h.Start, h.offset(), flag(h.Variant == "released")}}
}
