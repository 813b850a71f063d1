package losses

import (
	"math"

	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/torch"
)

// OperatingRegion is the share of the differences s_j − s_k (k a positive of
// the query, j any other entry) on which the sigmoid of temperature tau has a
// slope worth the name, |dσ(t/τ)/dt| > 0.005: those that Smooth-AP can learn
// from (Brown et al. 2020, supplementary, eq. 1). It is 0 if no query has a
// positive.
func OperatingRegion(in score.Input, o score.Options, tau float64) (float64, error) {
	r := &region{Tau: tau}
	if err := config.Check(r); err != nil {
		return 0, err
	}
	result, err := score.Evaluate(r.forward, score.Traits{Metric: true, Totals: true}, o, in)
	if err != nil {
		return 0, err
	}
	return result.Value.Item()
}

// region is OperatingRegion in the shape of a loss.
type region struct {
	Tau float64 `yaml:"tau" in:"(0,inf)"`
}

func (r *region) forward(b *score.Block) *torch.Tensor {
	// dσ(t/τ)/dt = σ(1 − σ)/τ falls with |t|, and is 0.005 where σ(1 − σ) is 0.005 τ.
	root := math.Sqrt(max(1-4*0.005*r.Tau, 0))
	reach := r.Tau * math.Log((1+root)/(1-root))                                           // 0.005 τ ≥ 1/4: 0
	count := func(h score.Step) *torch.Tensor { return b.RankPlus(h).Add(b.RankMinus(h)) } // 1 more than the differences
	within := count(score.Hinge{Margin: reach}.Active()).Sub(count(score.Hinge{Margin: -reach}.Active()))
	all := count(score.Hinge{Margin: math.MaxFloat32}.Active()).SubScalar(1)
	return b.Ratio(b.SumPositives(within), b.SumPositives(all))
}
