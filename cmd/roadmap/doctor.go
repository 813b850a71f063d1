package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/memory"
	"roadmap/pkg/torch"
)

func init() { register(doctorVerb) }

func doctorVerb() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "say what works on this machine and what does not",
		Description: "Tries libtorch, the devices, threads and memory, and says in a line each what it found.\n" +
			"A missing GPU is no fault; a libtorch that computes wrongly is (exit code 1).\n\n" +
			"Example:\n  roadmap doctor\n  roadmap doctor --json",
		Flags:  []cli.Flag{jsonFlag()},
		Action: action(doctor),
	}
}

// finding is one thing that was looked at.
type finding struct {
	What   string `json:"what"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

type health struct {
	Version  string    `json:"version"`
	Libtorch string    `json:"libtorch"`
	Go       string    `json:"go"`
	CPUs     int       `json:"cpus"`
	Threads  int       `json:"threads"`
	Memory   int64     `json:"memory_bytes"`
	GPUs     []gpu     `json:"gpus"`
	Findings []finding `json:"findings"`
	Healthy  bool      `json:"healthy"`
}

type gpu struct {
	Device string `json:"device"`
	Free   int64  `json:"free_bytes"`
	Total  int64  `json:"total_bytes"`
}

func doctor(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	h := examine()
	if err := answer(c, h, h.print); err != nil {
		return err
	}
	if !h.Healthy {
		return fmt.Errorf("doctor: something does not work here; see the lines marked FAIL above")
	}
	return nil
}

func examine() *health {
	h := &health{Version: version, Libtorch: torch.Version(), Go: runtime.Version(), CPUs: runtime.NumCPU(), Threads: torch.Threads(),
		Memory: int64(memory.Limit()), GPUs: []gpu{}, Healthy: true}
	note := func(what string, err error, detail string) {
		f := finding{What: what, OK: err == nil, Detail: detail}
		if err != nil {
			f.Detail, h.Healthy = err.Error(), false
		}
		h.Findings = append(h.Findings, f)
	}
	note("libtorch", nil, h.Libtorch)
	note("cpu arithmetic", tryDevice(torch.CPU), "product and gradient as expected")
	note("cpu threads", nil, fmt.Sprintf("%d of %d processors", h.Threads, h.CPUs))
	note("memory", nil, memory.Limit().About())
	devices, why := torch.CUDADevices()
	if len(devices) == 0 {
		note("gpu", nil, "none: "+why)
	}
	for _, d := range devices {
		m, err := torch.Memory(d)
		if err == nil {
			err = tryDevice(d)
		}
		h.GPUs = append(h.GPUs, gpu{Device: d.String(), Free: m.Free, Total: m.Total})
		note(d.String(), err, fmt.Sprintf("%.1f of %.1f GiB free, product and gradient as expected", float64(m.Free)/(1<<30), float64(m.Total)/(1<<30)))
	}
	return h
}

// tryDevice computes (x·x)' at x = [1 2; 3 4] and compares it with the answer.
func tryDevice(d torch.Device) error {
	s := torch.NewScope()
	defer s.Close()
	x := torch.From(s, []float32{1, 2, 3, 4}, 2, 2).ToDevice(d).Detach().RequireGrad(true)
	if err := x.MatMul(x).Sum().Backward(); err != nil {
		return err
	}
	have, err := x.Grad(s).Float32s()
	if err != nil {
		return err
	}
	for i, want := range []float32{7, 11, 9, 13} { // row sums of x plus column sums of x
		if have[i] != want {
			return fmt.Errorf("d Σ(x·x)/dx = %v, want [7 11 9 13]", have)
		}
	}
	return nil
}

func (h *health) print(w io.Writer) error {
	var rows [][]string
	for _, f := range h.Findings {
		state := "ok"
		if !f.OK {
			state = "FAIL"
		}
		rows = append(rows, []string{f.What, state, f.Detail})
	}
	return printTable(w, []string{"what", "state", "detail"}, rows)
}
