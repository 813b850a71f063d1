package losses

import "roadmap/pkg/torch"

func init() {
	register("roadmap_released", "ROADMAP (Ramzi et al., NeurIPS 2021), the published program", func() Loss {
		l := &RoadmapReleased{Common: common(), SupAPWeight: 1, CalibrationWeight: 1, Surrogate: surrogate(), Hinges: hinges()}
		l.Self, l.Variant, l.Reduction = "include", "released", "nonzero"
		return l
	})
}

// RoadmapReleased is the loss as the authors of ROADMAP published their
// program, which differs from the paper in its H⁻, in the mean of the
// calibration loss, in counting a query as its own positive, and in the sum:
//
//	L = L_SupAP + L_calibration
type RoadmapReleased struct {
	Common            `yaml:",inline"`
	SupAPWeight       float64 `yaml:"supap_weight"`       // factor of the SupAP loss
	CalibrationWeight float64 `yaml:"calibration_weight"` // factor of the calibration loss
	Surrogate         `yaml:",inline"`
	Hinges            `yaml:",inline"`
}

// Validate implements Loss.
func (l *RoadmapReleased) Validate() error {
	if err := finite("supap_weight", l.SupAPWeight, "calibration_weight", l.CalibrationWeight); err != nil {
		return err
	}
	return validateAll(&l.Common, &l.Surrogate, &l.Hinges)
}

// Forward implements Loss.
func (l *RoadmapReleased) Forward(b *Block) *torch.Tensor {
	return l.Surrogate.forward(b).MulScalar(l.SupAPWeight).Add(l.Hinges.forward(b).MulScalar(l.CalibrationWeight))
}

func (l *RoadmapReleased) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{l.Surrogate.term(b, l.SupAPWeight), l.Hinges.term(b, l.CalibrationWeight)}
}
