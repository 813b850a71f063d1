package nn

import (
	"math"
	"math/rand/v2"
)

// Init writes the initial values of a tensor, in row order.
type Init func(r *rand.Rand, values []float32)

// Constant is the same value everywhere.
func Constant(value float32) Init {
	return func(_ *rand.Rand, values []float32) {
		for i := range values {
			values[i] = value
		}
	}
}

// Zeros and Ones are the constants in use.
var (
	Zeros = Constant(0)
	Ones  = Constant(1)
)

// Uniform is uniform in [-bound, bound).
func Uniform(bound float64) Init {
	return func(r *rand.Rand, values []float32) {
		for i := range values {
			values[i] = float32(bound * (2*r.Float64() - 1))
		}
	}
}

// Normal has mean 0 and the given standard deviation.
func Normal(std float64) Init {
	return func(r *rand.Rand, values []float32) {
		for i := range values {
			values[i] = float32(std * r.NormFloat64())
		}
	}
}

// TruncatedNormal is Normal restricted to [-bound, bound].
func TruncatedNormal(std, bound float64) Init {
	return func(r *rand.Rand, values []float32) {
		for i := range values {
			x := std * r.NormFloat64()
			for math.Abs(x) > bound {
				x = std * r.NormFloat64()
			}
			values[i] = float32(x)
		}
	}
}

// FanIn is what PyTorch's convolutions and linear layers start from, weights
// and biases alike: uniform within ±1/√inputs, where inputs is the number of
// values that one output is a sum over. (It is kaiming_uniform_ with a = √5.)
func FanIn(inputs int64) Init { return Uniform(1 / math.Sqrt(float64(inputs))) }

// KaimingNormal keeps the variance of values behind a ReLU; He et al. 2015,
// eq. 10: Normal(√(2/fan)), with fan the inputs or outputs of one unit.
func KaimingNormal(fan int64) Init { return Normal(math.Sqrt(2 / float64(fan))) }
