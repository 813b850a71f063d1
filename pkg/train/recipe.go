package train

import (
	"cmp"
	"fmt"
	"runtime"

	"roadmap/backbones"
	"roadmap/losses/criterion"
	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/optim"
	"roadmap/pkg/torch"
	"roadmap/sampler"
)

// Recipe is everything that decides a run. The same recipe gives the same
// weights, bit for bit, on the same machine with the same number of threads
// (train.threads).
type Recipe struct {
	Seed      uint64            `yaml:"seed"` // governs initial weights, batches and augmentation
	Data      config.Section    `yaml:"data"`
	Transform data.Transform    `yaml:"transform"`
	Sampler   config.Section    `yaml:"sampler"`
	Model     config.Section    `yaml:"model"`
	Weights   backbones.Weights `yaml:"weights"` // that the network starts from
	Loss      config.Section    `yaml:"loss"`
	Optimizer config.Section    `yaml:"optimizer"`
	Schedule  config.Section    `yaml:"schedule"` // of the learning rate
	Groups    optim.Grouping    `yaml:"groups"`   // parameters that are treated differently
	Train     Loop              `yaml:"train"`
	Eval      Evaluation        `yaml:"eval"`
}

// Loop is how a run goes on.
type Loop struct {
	Steps           int          `yaml:"steps"`            // optimiser steps
	LogEvery        int          `yaml:"log_every"`        // steps between lines of the log
	CheckpointEvery int          `yaml:"checkpoint_every"` // steps between checkpoints; 0: only at the end
	KeepCheckpoints int          `yaml:"keep_checkpoints"` // the newest ones; older ones are removed
	EvalEvery       int          `yaml:"eval_every"`       // steps between evaluations; 0: only before the first and after the last
	Device          string       `yaml:"device"`           // auto, cpu, cuda:0
	Threads         int          `yaml:"threads"`          // of one operation on the CPU; 0: one a processor; other bits with another number
	Workers         int          `yaml:"workers"`          // goroutines that decode images; 0: one a processor
	Cache           config.Bytes `yaml:"cache"`            // memory for decoded images, such as 512MiB, at most a quarter of all there is; 0: none
	Precision       string       `yaml:"precision"`        // of the network: float32, bfloat16, float16 (with gradient scaling); auto: bfloat16 where that is much faster
	ClipNorm        float64      `yaml:"clip_norm"`        // upper bound of the gradient's norm; 0: none
	EMA             float64      `yaml:"ema"`              // decay a step of the weights' moving average, which is then evaluated and kept; 0: none
}

// Evaluation is how a run is measured, on the test split: every image is a
// query, all others are the gallery.
type Evaluation struct {
	Metrics []string `yaml:"metrics"` // r@K, p@K, map@r, rp, map, mrr, …
	Batch   int      `yaml:"batch"`   // images embedded at once
}

// NewRecipe returns the values that keys absent from a recipe have.
func NewRecipe() *Recipe {
	return &Recipe{
		Sampler:   config.Named("balanced"),
		Model:     config.Named("convnet"),
		Weights:   backbones.Weights{Strict: true},
		Loss:      config.Named("roadmap"),
		Optimizer: config.Named("adam"),
		Schedule:  config.Named("constant"),
		Groups:    optim.NewGrouping(),
		Train:     Loop{Steps: 1000, LogEvery: 10, CheckpointEvery: 500, KeepCheckpoints: 2, Device: "auto", Cache: config.GiB, Precision: "auto"},
		Eval:      Evaluation{Metrics: []string{"r@1", "r@2", "r@4", "r@8", "map@r"}, Batch: 256},
	}
}

// Validate refuses numbers that no run can have.
func (r *Recipe) Validate() error {
	if r.Data.Name == "" {
		return config.Invalid("data", "names no dataset; give one, such as data=glyphs or data.name=folder data.root=DIR")
	}
	if err := r.Transform.Sized(); err != nil {
		return fmt.Errorf("transform: %w", err)
	}
	return nil
}

// Validate refuses numbers that no run can have.
func (l Loop) Validate() error {
	for _, n := range []struct {
		key   string
		value int64
		least int64
	}{
		{"steps", int64(l.Steps), 1}, {"log_every", int64(l.LogEvery), 1}, {"checkpoint_every", int64(l.CheckpointEvery), 0},
		{"keep_checkpoints", int64(l.KeepCheckpoints), 1}, {"eval_every", int64(l.EvalEvery), 0}, {"threads", int64(l.Threads), 0},
		{"workers", int64(l.Workers), 0},
	} {
		if n.value < n.least {
			return config.Invalid(n.key, "is %d; give at least %d", n.value, n.least)
		}
	}
	for _, n := range []struct {
		key   string
		value int
	}{{"threads", l.Threads}, {"workers", l.Workers}} {
		if most := 8 * runtime.NumCPU(); n.value > most {
			return config.Invalid(n.key, "is %d; on %d processors more than %d only stand in each other's way", n.value, runtime.NumCPU(), most)
		}
	}
	if err := memory.Check("it", float64(l.Cache)); err != nil {
		return config.Invalid("cache", "is %s: %w", l.Cache, err)
	}
	if !(l.ClipNorm >= 0) {
		return config.Invalid("clip_norm", "is %g; give 0 (none) or a positive number", l.ClipNorm)
	}
	if !(l.EMA >= 0 && l.EMA < 1) {
		return config.Invalid("ema", "is %g; give 0 (none) or a decay below 1, such as 0.999", l.EMA)
	}
	_, err := embed.Precision(l.Precision, torch.CPU)
	return err
}

// Validate refuses sizes below 1, and evaluations of nothing.
func (e Evaluation) Validate() error {
	if len(e.Metrics) == 0 {
		return config.Invalid("metrics", "is empty; give at least one, such as r@1")
	}
	if e.Batch < 1 {
		return config.Invalid("batch", "is %d; give at least 1", e.Batch)
	}
	return nil
}

// Resolve completes every section with its component's defaults.
func (r *Recipe) Resolve() error {
	_, e1 := config.Resolve(data.Registry, &r.Data)
	_, e2 := config.Resolve(sampler.Registry, &r.Sampler)
	_, e3 := config.Resolve(backbones.Registry, &r.Model)
	_, e4 := config.Resolve(criterion.Registry, &r.Loss)
	_, e5 := config.Resolve(optim.Registry, &r.Optimizer)
	_, e6 := config.Resolve(optim.Schedules, &r.Schedule)
	if r.Weights.Name == "" {
		r.Weights.Name = backbones.Random
		if r.Weights.File != "" {
			r.Weights.Name = backbones.Pretrained
		}
	}
	return cmp.Or(e1, e2, e3, e4, e5, e6)
}

// Notes are what a user should know of a recipe that is resolved: which
// parameters a component took over from the one that it replaces.
func (r *Recipe) Notes() (notes []string) {
	for _, s := range []struct {
		key     string
		section config.Section
	}{{"data", r.Data}, {"sampler", r.Sampler}, {"model", r.Model}, {"loss", r.Loss}, {"optimizer", r.Optimizer}, {"schedule", r.Schedule}} {
		if text := s.section.Inherited(); text != "" {
			notes = append(notes, fmt.Sprintf("%s=%s takes another's place in the recipe, of whose parameters: %s", s.key, s.section.Name, text))
		}
	}
	return notes
}

// startable refuses a recipe that would begin with other weights than it names.
func (r *Recipe) startable() error {
	if r.Weights.Name == backbones.Pretrained && r.Weights.File == "" {
		return fault.Inputf("the recipe starts from pretrained weights, and weights.file names none; give weights.file=FILE (of torchvision or timm, as it is), or weights=random to start from random ones")
	}
	return nil
}
