package losses

import "roadmap/pkg/torch"

func init() {
	register("ap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 1", func() Loss { return &AP{Common: common()} })
}

// AP is one minus the true average precision, the metric itself: its value has
// no gradient, and cannot be trained on. ROADMAP (Ramzi et al. 2021), eq. 1, for query i:
//
//	L_i = 1 − 1/|P_i| Σ_{k∈P_i} rank⁺(k) / (rank⁺(k) + rank⁻(k))
//	rank⁺(k) = 1 + Σ_{j∈P_i\{k}} H(s_j − s_k)
//	rank⁻(k) = Σ_{j∈N_i} H(s_j − s_k)
//
// H(0) = 1: a tie counts against the positive. The loss is the mean of L_i
// over the queries that have a positive.
type AP struct {
	Common `yaml:",inline"`
}

// Validate implements Loss.
func (l *AP) Validate() error { return l.Common.Validate() }

// Forward implements Loss.
func (l *AP) Forward(b *Block) *torch.Tensor {
	p := b.Positives()
	above := b.Scores.Unsqueeze(1).Ge(p.Scores.Unsqueeze(2)).And(b.Negative.Unsqueeze(1)) // [q, p, g]
	minus := above.SumDim([]int64{2}, false).ToDType(b.Scores.DType())
	plus := p.rank()
	return b.oneMinus(plus.Div(plus.Add(minus)))
}

// noGradient implements metric.
func (l *AP) noGradient() {}

func (l *AP) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{{Kind: torch.RankAP, Weight: b.perRanked()}}
}
