package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("calibration", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 7", func() Loss { return &Calibration{Hinges: hinges()} })
}

// Calibration keeps scores comparable from batch to batch: positives above
// alpha, negatives below beta. ROADMAP (Ramzi et al. 2021), eq. 7, for query i:
//
//	L_i = 1/|P_i| Σ_{j∈P_i} max(0, α − s_j)  +  1/|N_i| Σ_{j∈N_i} max(0, s_j − β)
//
// An empty set contributes 0. The loss is the mean of L_i over all queries.
type Calibration struct {
	Hinges `yaml:",inline"`
}

// Hinges are the parameters of the calibration loss.
type Hinges struct {
	Alpha     float64 `yaml:"alpha" in:"(-inf,inf)"`          // score wanted of positives at least
	Beta      float64 `yaml:"beta" in:"(-inf,inf)"`           // score wanted of negatives at most
	Reduction string  `yaml:"reduction" in:"{query,nonzero}"` // "query", or "nonzero": the published program's mean over all pairs that violate
}

func hinges() Hinges { return Hinges{Alpha: 0.9, Beta: 0.6, Reduction: "query"} }

// Forward implements Loss.
func (h *Hinges) Forward(b *score.Block) *torch.Tensor {
	if h.Reduction == "nonzero" {
		return violations(b, h.Alpha, h.Beta, 0)
	}
	pull := b.Positives.RSubScalar(h.Alpha).ReLU() // [q, p] how far a positive is below α
	push := score.Hinge{Margin: -h.Beta}.Step()    // how far a negative is above β
	return b.MeanPositives(pull).Add(b.MeanNegatives(push))
}

// Traits says whether the pairs that violate are counted.
func (h *Hinges) Traits() score.Traits { return score.Traits{Totals: h.Reduction == "nonzero"} }
