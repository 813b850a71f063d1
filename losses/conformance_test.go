package losses_test

import (
	"testing"

	"roadmap/losses/losstest"
)

func TestConformance(t *testing.T) { losstest.Run(t) }
