package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("calibration", func() Loss { return &Calibration{Common: common(), Hinges: hinges()} })
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

// Totals implements Counter.
func (l *Calibration) Totals(b *Block) *torch.Tensor { return l.Hinges.totals(b) }

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
	pull := b.Scores.RSubScalar(h.Alpha).ReLU() // [q, g] how far a pair is below α
	push := b.Scores.SubScalar(h.Beta).ReLU()   // [q, g] how far a pair is above β
	if h.Reduction == "nonzero" {
		return b.ratio(0, sumOver(pull, b.Positive)).Add(b.ratio(1, sumOver(push, b.Negative)))
	}
	return b.Mean(meanOver(pull, b.Positive).Add(meanOver(push, b.Negative)))
}

// totals are #{[α − s]₊ > 0} over the positive and #{[s − β]₊ > 0} over the
// negative pairs of a block.
func (h *Hinges) totals(b *Block) *torch.Tensor {
	if h.Reduction != "nonzero" {
		return nil
	}
	return torch.Stack([]*torch.Tensor{
		countOver(b.Scores.RSubScalar(h.Alpha).GtScalar(0), b.Positive),
		countOver(b.Scores.SubScalar(h.Beta).GtScalar(0), b.Negative),
	}, 0)
}
