package losses_test

import (
	"math"
	"testing"
)

// Inner products 3 and 0: nothing is normalised.
func TestCrossEntropy(t *testing.T) {
	workedProxies(t, "crossentropy", nil, math.Log(1+math.Exp(-3)))
}
