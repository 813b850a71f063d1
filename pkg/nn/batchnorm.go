package nn

import "roadmap/pkg/torch"

// Frozen says how much of a batch norm stays as it was loaded.
type Frozen int

// FrozenNone trains all of it. FrozenStatistics normalises with the running
// statistics in training too, and leaves them alone. FrozenAffine does so and
// keeps scale and shift as they are.
const (
	FrozenNone Frozen = iota
	FrozenStatistics
	FrozenAffine
)

// batchNormMomentum is the share of a batch in the running statistics, and
// batchNormEps is added to variances: PyTorch's defaults.
const (
	batchNormMomentum = 0.1
	batchNormEps      = 1e-5
)

// BatchNorm normalises each channel over batch, height and width (Ioffe and
// Szegedy 2015): with the batch's own mean and (biased) variance in training,
// with the running ones, whose variance is unbiased, in evaluation.
type BatchNorm struct {
	weight, bias *torch.Tensor // [c]
	mean, vari   *torch.Tensor // running, [c]
	batches      *torch.Tensor // training batches seen, int64
	frozen       Frozen
}

// NewBatchNorm makes a batch norm over channels, with the parameters weight and
// bias and the buffers running_mean, running_var and num_batches_tracked.
// scale is the initial weight.
func NewBatchNorm(p Path, channels int64, scale float32, frozen Frozen) *BatchNorm {
	l := &BatchNorm{
		weight: p.Param("weight", Constant(scale), channels), bias: p.Param("bias", Zeros, channels),
		mean: p.Buffer("running_mean", Zeros, channels), vari: p.Buffer("running_var", Ones, channels),
		batches: p.Counter("num_batches_tracked"), frozen: frozen,
	}
	if frozen == FrozenAffine {
		l.weight.RequireGrad(false)
		l.bias.RequireGrad(false)
	}
	return l
}

// Forward maps [n, c, h, w] to the same shape.
func (l *BatchNorm) Forward(x *torch.Tensor, mode Mode) *torch.Tensor {
	mean, vari, train := l.mean, l.vari, mode != Eval && l.frozen == FrozenNone
	switch {
	case train && mode == Train:
		l.batches.AddScalarInPlace(1)
	case train: // Replay: the batch's statistics, counted already
		mean, vari = nil, nil
	}
	return x.BatchNorm(l.weight, l.bias, mean, vari, train, batchNormMomentum, batchNormEps)
}
