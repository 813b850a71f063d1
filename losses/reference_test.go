package losses_test

import (
	"os"
	"os/exec"
	"testing"
)

// The reference agrees with pytorch-metric-learning where the definitions are
// the same. ROADMAP_PYTHON names the Python that has it.
func TestConformanceOfTheReference(t *testing.T) {
	python := os.Getenv("ROADMAP_PYTHON")
	if python == "" {
		t.Skip("ROADMAP_PYTHON names no Python with pytorch-metric-learning")
	}
	out, err := exec.Command(python, "testdata/reference.py", "--peers").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
