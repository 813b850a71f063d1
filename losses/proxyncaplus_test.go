package losses_test

import (
	"math"
	"testing"
)

// Squared distances 0 and 2 at T = 1: −ln(e⁻⁰/(e⁻⁰ + e⁻²)).
func TestProxyNCAPlus(t *testing.T) {
	workedProxies(t, "proxynca++", map[string]any{"temperature": 1}, math.Log(1+math.Exp(-2)))
}
