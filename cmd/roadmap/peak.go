package main

import (
	"os"
	"strconv"
	"strings"

	"roadmap/pkg/torch"
)

// peakMeter measures the most memory that a piece of work takes beyond what was
// in use when it began: of the device for a GPU, of the process otherwise.
type peakMeter struct {
	device torch.Device
	before int64
}

func newPeakMeter(d torch.Device) peakMeter {
	if d.IsCUDA() {
		m, err := torch.Memory(d)
		if err == nil {
			err = torch.ResetPeakMemory(d)
		}
		if err != nil {
			return peakMeter{device: d, before: -1}
		}
		return peakMeter{device: d, before: m.Allocated}
	}
	if err := torch.EmptyCache(d); err != nil { // what is kept idle would hide in what is in use
		return peakMeter{device: d, before: -1}
	}
	// Linux forgets the process's peak when told so, where that is allowed;
	// elsewhere the peak since the start stands in for it.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return peakMeter{device: d, before: status("VmHWM")}
	}
	return peakMeter{device: d, before: status("VmRSS")}
}

// bytes is the peak so far, 0 where it cannot be read.
func (m peakMeter) bytes() int64 {
	if m.before < 0 {
		return 0
	}
	if m.device.IsCUDA() {
		now, err := torch.Memory(m.device)
		if err != nil {
			return 0
		}
		return now.Peak - m.before
	}
	return max(status("VmHWM")-m.before, 0)
}

// status reads an entry of /proc/self/status, in bytes; -1 where there is none.
func status(key string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == key+":" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return kib << 10
			}
		}
	}
	return -1
}
