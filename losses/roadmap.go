package losses

import (
	"roadmap/losses/score"
	"roadmap/pkg/torch"
)

func init() {
	register("roadmap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 2", func() Loss {
		return &Roadmap{Lambda: 0.5, Surrogate: surrogate(), Hinges: hinges()}
	})
}

// Roadmap is the loss of ROADMAP (Ramzi et al. 2021), eq. 2:
//
//	L = (1 − λ) L_SupAP + λ L_calibration
type Roadmap struct {
	Lambda    float64 `yaml:"lambda" in:"[0,1]"` // weight λ of the calibration loss
	Surrogate `yaml:",inline"`
	Hinges    `yaml:",inline"`
}

// Forward implements Loss.
func (l *Roadmap) Forward(b *score.Block) *torch.Tensor {
	supap, calibration := SupAP{l.Surrogate}, Calibration{l.Hinges}
	return supap.Forward(b).Lerp(calibration.Forward(b), l.Lambda)
}
