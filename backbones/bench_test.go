package backbones_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"roadmap/backbones"
	"roadmap/backbones/backbonetest"
	"roadmap/pkg/config"
	"roadmap/pkg/optim"
	"roadmap/pkg/torch"
	"roadmap/pkg/torch/torchtest"
)

// A setting is what testdata/bench.py times under the same name in Python.
type setting struct {
	name         string
	batch, size  int64
	dtype        torch.DType // not Float32: autocast
	channelsLast bool
}

func (s setting) String() string {
	layout := "rows"
	if s.channelsLast {
		layout = "channels_last"
	}
	return fmt.Sprintf("%s/%d/%d/%s/%s", s.name, s.batch, s.size, s.dtype, layout)
}

func (s setting) build(root *torch.Scope) (*backbones.Model, *torch.Tensor, error) {
	options := []string{fmt.Sprint("size=", s.size), "dim=64"}
	if !strings.Contains(s.name, "deit") {
		options = append(options, fmt.Sprint("channels_last=", s.channelsLast))
	}
	section, err := config.Assign(s.name, options...)
	if err != nil {
		return nil, nil, err
	}
	backbone, err := config.Build(backbones.Registry, section)
	if err != nil {
		return nil, nil, err
	}
	model, err := backbone.Build(root, torch.CPU, 0)
	if err != nil {
		return nil, nil, err
	}
	return model, backbonetest.Tensor(root, torch.CPU, "images", s.batch, int64(model.Input().Channels), s.size, s.size), nil
}

func (s setting) autocast(f func()) {
	if s.dtype == torch.Float32 {
		f()
		return
	}
	torch.Autocast(torch.CPU, s.dtype, f)
}

// TestMain lets the benchmarks run on the first thread.
func TestMain(m *testing.M) { torchtest.Main(m) }

// measure times f after one call of it: on the clock and in processor time,
// which other work on the machine disturbs less (with OMP_NUM_THREADS=1
// hardly). The memory is the process's largest: run one benchmark for it.
func measure(b *testing.B, f func() error) error {
	if err := f(); err != nil {
		return err
	}
	before, _ := usage()
	for b.Loop() {
		if err := f(); err != nil {
			return err
		}
	}
	after, peak := usage()
	b.ReportMetric(float64(after-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
	return nil
}

// usage is processor time in nanoseconds and the largest memory so far in bytes.
func usage() (processor, peak int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // this process's own usage is always there
	}
	return u.Utime.Nano() + u.Stime.Nano(), u.Maxrss * 1024
}

// BenchmarkStep is one training step: forward, Backward and Adam.
func BenchmarkStep(b *testing.B) {
	for _, set := range []setting{
		{"convnet", 128, 28, torch.Float32, false},
		{"convnet", 128, 28, torch.Float32, true},
		{"resnet18", 64, 224, torch.Float32, false},
		{"resnet18", 64, 224, torch.Float32, true},
		{"resnet18", 64, 224, torch.BFloat16, true},
		{"resnet50", 32, 224, torch.Float32, false},
		{"resnet50", 32, 224, torch.Float32, true},
		{"resnet50", 32, 224, torch.BFloat16, false},
		{"resnet50", 32, 224, torch.BFloat16, true},
		{"deit_small_patch16_224", 32, 224, torch.Float32, false},
		{"deit_small_patch16_224", 32, 224, torch.BFloat16, false},
	} {
		torchtest.Bench(b, set.String(), func(b *testing.B, root *torch.Scope) error {
			model, x, err := set.build(root)
			if err != nil {
				return err
			}
			adam, err := optim.Registry.Make("adam")
			if err != nil {
				return err
			}
			optimizer, err := adam.New(root, []optim.Group{{Params: model.Parameters(), LR: 1, Decay: 1}})
			if err != nil {
				return err
			}
			return measure(b, func() error {
				s := root.Child()
				defer s.Close()
				var y *torch.Tensor
				set.autocast(func() { y = model.Forward(x.Alias(s), true) })
				if err := optimizer.ZeroGrad(); err != nil {
					return err
				}
				if err := y.MatMul(y.T()).Square().Mean().Backward(); err != nil {
					return err
				}
				return optimizer.Step(1)
			})
		})
	}
}

// BenchmarkEmbed is a batch of images embedded by an Embedder.
func BenchmarkEmbed(b *testing.B) {
	for _, set := range []setting{
		{"convnet", 128, 28, torch.Float32, true},
		{"resnet50", 64, 224, torch.Float32, true},
		{"resnet50", 64, 224, torch.BFloat16, true},
		{"deit_small_patch16_224", 64, 224, torch.Float32, false},
		{"deit_small_patch16_224", 64, 224, torch.BFloat16, false},
	} {
		torchtest.Bench(b, set.String(), func(b *testing.B, root *torch.Scope) error {
			model, x, err := set.build(root)
			if err != nil {
				return err
			}
			e, err := model.Embedder(root, set.dtype)
			if err != nil {
				return err
			}
			return measure(b, func() error {
				s := root.Child()
				defer s.Close()
				_, err := e.Forward(x.Alias(s)).Float32s()
				return err
			})
		})
	}
}
