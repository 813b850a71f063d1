package losses

import "roadmap/pkg/torch"

// OperatingRegion is the share of the differences s_j − s_k (k a positive of
// the query, j any other entry) on which the sigmoid of temperature tau has a
// slope worth the name, |dσ(t/τ)/dt| > 0.005: those that Smooth-AP can learn
// from (Brown et al. 2020, supplementary, eq. 1). It is 0 if no query has a
// positive.
func OperatingRegion(in Input, tau float64) (float64, error) {
	r, err := Forward(&region{Common: common(), tau: tau}, in)
	if err != nil {
		return 0, err
	}
	return r.Value.Item()
}

// region is OperatingRegion in the shape of a loss.
type region struct {
	Common
	tau float64
}

func (l *region) Validate() error {
	if err := positive("tau", l.tau); err != nil {
		return err
	}
	return l.Common.Validate()
}

func (l *region) noGradient() {}

func (l *region) Counts() int { return 1 }

// Totals counts the differences.
func (l *region) Totals(b *Block) *torch.Tensor {
	return l.differences(b).Sum().ToDType(torch.Float64).Unsqueeze(0)
}

func (l *region) Forward(b *Block) *torch.Tensor {
	sigma := b.Scores.Unsqueeze(1).Sub(b.Positives().Scores.Unsqueeze(2)).DivScalar(l.tau).Sigmoid()
	steep := sigma.Mul(sigma.RSubScalar(1)).GtScalar(0.005 * l.tau)
	return b.ratio(0, steep.And(l.differences(b)).Sum().ToDType(torch.Float64))
}

// differences are the pairs (k, j) of each query, [q, p, g] Bool.
func (l *region) differences(b *Block) *torch.Tensor {
	p := b.Positives()
	columns := b.Scores.Scope().ArangeFrom(0, float64(b.Scores.Size(1)), 1, torch.Int64, b.Scores.Device())
	others := columns.Reshape(1, 1, -1).Ne(p.Index.Unsqueeze(2))
	return others.And(p.Real.Unsqueeze(2)).And(b.Positive.Or(b.Negative).Unsqueeze(1))
}
