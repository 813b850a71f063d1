package losses_test

import (
	"testing"
)

// Squared distances 0 to the own proxy and 2 to the other: −ln(e⁻⁰/e⁻²).
func TestProxyNCA(t *testing.T) {
	workedProxies(t, "proxynca", nil, 0-2*1.)
}
