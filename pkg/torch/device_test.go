package torch_test

import (
	"os"
	"strings"
	"testing"

	"roadmap/pkg/torch"
)

// The kernel's list of the processor's features is the other witness.
func TestFastBFloat16(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !strings.Contains(string(info), "flags\t") {
		t.Skip("no list of the processor's features on this machine")
	}
	want := strings.Contains(string(info), " amx_bf16") || strings.Contains(string(info), " avx512_bf16")
	if got := torch.FastBFloat16(torch.CPU); got != want {
		t.Errorf("FastBFloat16(cpu) is %v, /proc/cpuinfo says %v", got, want)
	}
}
