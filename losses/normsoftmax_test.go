package losses_test

import (
	"math"
	"testing"
)

// Cosines 1 and 0 at σ = 0.5.
func TestNormSoftmax(t *testing.T) {
	workedProxies(t, "normsoftmax", map[string]any{"temperature": 0.5}, math.Log(1+math.Exp(-1/0.5)))
}
