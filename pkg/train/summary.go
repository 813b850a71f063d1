package train

import (
	"path/filepath"
	"strings"
)

// Summary is what a run is made of, as it begins.
type Summary struct {
	Train, Test SplitSummary
	Model       string // the network's name
	Parameters  int64  // numbers that are trained
	Dim         int    // of the embeddings
	Weights     string // file that the network started from; "": random
	Loss        string
	Optimizer   string
	Device      string
	Threads     int // of one operation on the CPU
	Precision   string
	Steps       int // of the whole run
	Batch       int // images a step
	Epoch       int // steps an epoch
}

// SplitSummary counts a split.
type SplitSummary struct {
	Name            string // of the dataset
	Images, Classes int
}

// Summary says what the run is made of.
func (r *Run) Summary() Summary {
	s := Summary{
		Train:   SplitSummary{r.trainSet.Name, r.trainSet.Len(), len(r.trainSet.Classes)},
		Test:    SplitSummary{r.testSet.Name, r.testSet.Len(), len(r.testSet.Classes)},
		Model:   r.recipe.Model.Name,
		Dim:     r.model.Dim(),
		Weights: r.recipe.Weights.File, Loss: r.recipe.Loss.Name, Optimizer: r.recipe.Optimizer.Name,
		Device: r.recipe.Train.Device, Threads: r.recipe.Train.Threads, Precision: r.recipe.Train.Precision,
		Steps: r.recipe.Train.Steps, Batch: len(r.plan.Epoch(0)[0]), Epoch: r.plan.Batches(),
	}
	for _, n := range r.model.Parameters() {
		s.Parameters += n.Tensor.Numel()
	}
	return s
}

// Evaluated is one evaluation of a run.
type Evaluated struct {
	Step    int
	Metrics Metrics
	Before  Metrics // of the evaluation before it; nil for the first
	Seconds float64
	Left    int // evaluations that are still to come
}

// evaluationsLeft is how many evaluations come after the one of a step.
func (l Loop) evaluationsLeft(step int) int {
	if step >= l.Steps {
		return 0
	}
	left := 1 // after the last step
	if l.EvalEvery > 0 {
		left += (l.Steps-1)/l.EvalEvery - step/l.EvalEvery
	}
	return left
}

// pathKeys are the keys of the data and the network that name a file or folder.
func (r *Recipe) pathKeys() (data, model []string) {
	data, model = []string{"root"}, []string{"file"}
	if r.Data.Name == "list" {
		data = append(data, "train", "test")
	}
	return data, model
}

// absolute makes the paths of a recipe absolute, so that the run can go on from
// any working directory.
func (r *Recipe) absolute() {
	whole := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		if full, err := filepath.Abs(path); err == nil {
			return full
		}
		return path
	}
	ofData, ofModel := r.pathKeys()
	for _, key := range ofData {
		r.Data.Map(key, whole)
	}
	for _, key := range ofModel {
		r.Model.Map(key, whole)
	}
	r.Weights.File = whole(r.Weights.File)
}

// elsewhere is where keys live that users of other programs look for, by the
// last part of what they write.
var elsewhere = map[string]string{
	"lr": "optimizer.lr", "learning_rate": "optimizer.lr", "weight_decay": "optimizer.weight_decay", "wd": "optimizer.weight_decay",
	"momentum": "optimizer.momentum", "betas": "optimizer.beta1 and optimizer.beta2", "optim": "optimizer", "scheduler": "schedule", "lr_scheduler": "schedule",
	"warmup": "schedule.warmup_steps or schedule.warmup_epochs", "warmup_epochs": "schedule.warmup_epochs", "warmup_steps": "schedule.warmup_steps",
	"epochs": "train.steps (a run is counted in steps of one batch, and tells at its start how many are an epoch)", "max_epochs": "train.steps (steps of one batch)", "num_epochs": "train.steps (steps of one batch)",
	"steps": "train.steps", "max_steps": "train.steps", "iterations": "train.steps",
	"batch_size": "sampler.classes and sampler.samples (a batch has classes x samples images); eval.batch is that of the evaluation", "batch": "sampler.classes and sampler.samples (a batch has classes x samples images)",
	"workers": "train.workers", "num_workers": "train.workers", "threads": "train.threads", "num_threads": "train.threads", "device": "train.device", "precision": "train.precision", "amp": "train.precision",
	"fp16": "train.precision", "bf16": "train.precision", "ema": "train.ema", "clip_norm": "train.clip_norm", "grad_clip": "train.clip_norm", "max_grad_norm": "train.clip_norm",
	"eval_every": "train.eval_every", "log_every": "train.log_every", "save_every": "train.checkpoint_every", "checkpoint_every": "train.checkpoint_every",
	"backbone": "model", "arch": "model", "network": "model", "dim": "model.dim", "embedding_dim": "model.dim", "embedding_size": "model.dim", "pool": "model.pool", "pooling": "model.pool",
	"pretrained": "weights.file", "checkpoint": "weights.file", "resume": "the option --resume RUN", "dataset": "data", "root": "data.root", "data_dir": "data.root", "path": "data.root",
	"criterion": "loss", "tau": "loss.tau", "temperature": "loss.tau", "margin": "loss.margin", "metrics": "eval.metrics", "image_size": "transform.resize and transform.crop", "img_size": "transform.resize and transform.crop",
	"resize": "transform.resize", "crop": "transform.crop", "mean": "transform.mean", "std": "transform.std", "augment": "transform.augment", "flip": "transform.augment.flip", "hflip": "transform.augment.flip", "random_seed": "seed",
	"output": "the option --out FOLDER", "out": "the option --out FOLDER", "output_dir": "the option --out FOLDER",
}

// Elsewhere says where the setting lives that an unknown key means; "" if that
// is not known.
func (r *Recipe) Elsewhere(key string) string {
	parts := strings.Split(key, ".")
	place := elsewhere[strings.ToLower(parts[len(parts)-1])]
	if place == key { // it is there, but not in this component
		return ""
	}
	return place
}
