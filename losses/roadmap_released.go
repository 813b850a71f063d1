package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("roadmap_released", "ROADMAP (Ramzi et al., NeurIPS 2021), the published program", func() Loss {
		l := &RoadmapReleased{SupAPWeight: 1, CalibrationWeight: 1, Surrogate: surrogate(), Hinges: hinges()}
		l.Variant, l.Reduction = "released", "nonzero"
		return l
	}, func(o *score.Options) { o.Self = "include" })
}

// RoadmapReleased is the loss as the authors of ROADMAP published their
// program, which differs from the paper in its H⁻, in the mean of the
// calibration loss, in counting a query as its own positive, and in the sum:
//
//	L = L_SupAP + L_calibration
type RoadmapReleased struct {
	SupAPWeight       float64 `yaml:"supap_weight" in:"(-inf,inf)"`       // factor of the SupAP loss
	CalibrationWeight float64 `yaml:"calibration_weight" in:"(-inf,inf)"` // factor of the calibration loss
	Surrogate         `yaml:",inline"`
	Hinges            `yaml:",inline"`
}

// Forward implements Loss.
func (l *RoadmapReleased) Forward(b *score.Block) *torch.Tensor {
	supap, calibration := SupAP{l.Surrogate}, Calibration{l.Hinges}
	return supap.Forward(b).MulScalar(l.SupAPWeight).Add(calibration.Forward(b).MulScalar(l.CalibrationWeight))
}
