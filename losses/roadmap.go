package losses

import (
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

func init() {
	register("roadmap", "ROADMAP (Ramzi et al., NeurIPS 2021), eq. 2", func() Loss {
		return &Roadmap{Common: common(), Lambda: 0.5, Surrogate: surrogate(), Hinges: hinges()}
	})
}

// Roadmap is the loss of ROADMAP (Ramzi et al. 2021), eq. 2:
//
//	L = (1 − λ) L_SupAP + λ L_calibration
type Roadmap struct {
	Common    `yaml:",inline"`
	Lambda    float64 `yaml:"lambda"` // weight λ of the calibration loss, in [0, 1]
	Surrogate `yaml:",inline"`
	Hinges    `yaml:",inline"`
}

// Validate implements Loss.
func (l *Roadmap) Validate() error {
	if !(l.Lambda >= 0 && l.Lambda <= 1) {
		return fault.Inputf("lambda is %g; give a weight between 0 and 1", l.Lambda)
	}
	return validateAll(&l.Common, &l.Surrogate, &l.Hinges)
}

// Forward implements Loss.
func (l *Roadmap) Forward(b *Block) *torch.Tensor {
	return l.Surrogate.forward(b).MulScalar(1 - l.Lambda).Add(l.Hinges.forward(b).MulScalar(l.Lambda))
}

func (l *Roadmap) terms(b *Block) []torch.RankTerm {
	return []torch.RankTerm{l.Surrogate.term(b, 1-l.Lambda), l.Hinges.term(b, l.Lambda)}
}
