package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("calibration", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 7", func() Loss {
		return &Calibration{Common: common(), Hinges: hinges()}
	})
}

// Calibration keeps scores comparable from batch to batch: positives above
// alpha, negatives below beta. ROADMAP (Ramzi et al. 2021), eq. 7, for query i:
//
//	L_i = 1/|P_i| Σ_{j∈P_i} max(0, α − s_j)  +  1/|N_i| Σ_{j∈N_i} max(0, s_j − β)
//
// An empty set contributes 0. The loss is the mean of L_i over all queries.
type Calibration struct {
	Common `yaml:",inline"`
	Hinges `yaml:",inline"`
}

// Validate implements Loss.
func (l *Calibration) Validate() error { return validateAll(&l.Common, &l.Hinges) }

// Forward implements Loss.
func (l *Calibration) Forward(b *Block) *torch.Tensor { return l.Hinges.forward(b) }

func (l *Calibration) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{l.Hinges.term(b, 1)}
}

// Hinges are the parameters of the calibration loss.
type Hinges struct {
	Alpha     float64 `yaml:"alpha"`     // score wanted of positives at least
	Beta      float64 `yaml:"beta"`      // score wanted of negatives at most
	Reduction string  `yaml:"reduction"` // "query", or "nonzero": the published program's mean over all pairs that violate
}

func hinges() Hinges { return Hinges{Alpha: 0.9, Beta: 0.6, Reduction: "query"} }

// Validate refuses an unknown reduction.
func (h *Hinges) Validate() error {
	if h.Reduction != "query" && h.Reduction != "nonzero" {
		return fault.Inputf("reduction is %q; give query or nonzero", h.Reduction)
	}
	return finite("alpha", h.Alpha, "beta", h.Beta)
}

func (h *Hinges) forward(b *Block) *torch.Tensor {
	if h.Reduction == "nonzero" {
		return h.pairs().violations(b)
	}
	pull, push := h.pairs().terms(b)
	return b.Mean(meanOver(pull, b.Positive).Add(meanOver(push, b.Negative)))
}

// Counts implements Counter for the losses that have these parameters.
func (h *Hinges) Counts() int {
	if h.Reduction == "nonzero" {
		return 2
	}
	return 0
}

// Totals implements Counter.
func (h *Hinges) Totals(b *Block) *torch.Tensor { return h.pairs().count(b) }

func (h *Hinges) term(b *Block, weight float64) torch.RankTerm {
	if h.Reduction == "nonzero" {
		return h.pairs().term(b, weight)
	}
	return torch.RankTerm{Kind: torch.RankHingeQuery, Weight: weight / float64(b.Queries), P: []float64{h.Alpha, h.Beta}}
}

func (h *Hinges) pairs() hinge { return hinge{h.Alpha, h.Beta, 0} }
