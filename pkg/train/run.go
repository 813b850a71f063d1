// Package train is the training loop: batches from a sampler, forward, loss,
// backward, optimiser and schedule, with evaluations and checkpoints on the way,
// all as a recipe says, and everything that happened in a run folder. A run that was interrupted, by Ctrl-C or by
// the machine, goes on from its newest checkpoint and ends with the very bits
// it would have ended with.
package train

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"roadmap/backbones"
	"roadmap/losses/criterion"
	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/fault"
	"roadmap/pkg/memory"
	"roadmap/pkg/nn"
	"roadmap/pkg/optim"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
	"roadmap/sampler"
)

// Observer is told how far a run has come. Every function may be nil.
type Observer struct {
	Begin     func(s Summary) // once, before anything is evaluated or trained
	Step      func(done, total int, loss float64)
	Embed     func(done, total int)
	Evaluated func(e Evaluated)
	Note      func(text string) // what the user should know, a line
}

func (o *Observer) fill() {
	if o.Begin == nil {
		o.Begin = func(Summary) {}
	}
	if o.Evaluated == nil {
		o.Evaluated = func(Evaluated) {}
	}
	if o.Step == nil {
		o.Step = func(int, int, float64) {}
	}
	if o.Embed == nil {
		o.Embed = func(int, int) {}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
}

// Run is a recipe at work: its parts, and how far it has come.
type Run struct {
	recipe   *Recipe
	observer Observer
	folder   *Folder

	device    torch.Device
	precision torch.DType
	trainSet  *data.Dataset
	testSet   *data.Dataset
	loader    *data.Loader
	plan      sampler.Plan
	test      *embed.Embedder
	scope     *torch.Scope
	model     *backbones.Model
	criterion *criterion.Criterion
	optimizer *optim.Optimizer
	schedule  optim.Schedule
	scaler    *optim.Scaler  // of float16's gradients; else nil
	average   *optim.Average // of the network's weights; nil: none

	step          int                // optimiser steps done
	saved         int                // step of the newest checkpoint that this process saved or loaded; -1: none
	condition     condition          // of the weights and the state beside them
	past          *past              // before the step that is being taken
	metrics       map[string]Metrics // by the name of the evaluation
	latest        Metrics            // of the last evaluation of this process; nil: none yet
	queries, lone int                // of an evaluation
	notes         []string           // of what happened before there was a log

	data map[string]data.Fingerprint // by split, as the run began
}

// New builds every part of a recipe and checks that they fit together. The
// recipe's sections are completed with their defaults. Nothing is written.
func New(r *Recipe, o Observer) (*Run, error) {
	if err := r.Resolve(); err != nil {
		return nil, err
	}
	if err := r.startable(); err != nil {
		return nil, err
	}
	return build(r, o, r.Weights.File)
}

// build is New with the weights of another file; "": none.
func build(r *Recipe, o Observer, weights string) (*Run, error) {
	o.fill()
	run := &Run{recipe: r, observer: o, scope: torch.NewScope(), saved: -1}
	withNetwork := func() error { return run.withNetwork(weights) }
	if err := r.Resolve(); err != nil {
		return nil, err
	}
	for _, note := range r.Notes() {
		run.note(note)
	}
	for _, part := range []func() error{run.onDevice, run.withData, run.withinMemory, withNetwork, run.withObjective} {
		if err := part(); err != nil {
			run.Close()
			return nil, err
		}
	}
	return run, nil
}

// Resume goes on with the run of a folder, from its newest checkpoint that is
// whole. A run without one begins anew. r is the folder's recipe; overrides may
// have changed it, so it becomes the folder's config.yaml. What makes another run
// of it, in the recipe or the data, is refused unless accept says otherwise. The
// folder is the run's from now on, and closed with it.
func Resume(r *Recipe, f *Folder, accept bool, o Observer) (*Run, error) {
	run, err := resume(r, f, accept, o)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return run, nil
}

func resume(r *Recipe, f *Folder, accept bool, o Observer) (run *Run, err error) {
	defer func() {
		if err != nil && run != nil {
			run.folder = nil // its lock is the caller's to give back
			err = errors.Join(err, run.Close())
		}
	}()
	file, step, damaged, err := f.newest()
	if err != nil {
		return nil, err
	}
	if file == nil {
		if run, err = New(r, o); err != nil {
			return nil, err
		}
		run.note(fmt.Sprintf("run folder %s has no checkpoint yet: beginning at step 0", f.Path))
		return run, run.opened(f, nil)
	}
	defer file.Close() // read only
	if step > r.Train.Steps {
		return nil, fault.Inputf("run folder %s: %d steps are done already, more than train.steps=%d", f.Path, step, r.Train.Steps)
	}
	before, unknown := parseIdentity(file.Metadata[metadataRun])
	if unknown == nil && !accept { // before the network and the data are looked for, which may be no longer there
		if err := r.Resolve(); err != nil {
			return nil, err
		}
		r.absolute()
		parts, err := r.parts()
		if err != nil {
			return nil, err
		}
		if err := refuse(f.Path, step, changedKeys(before.Recipe, parts)); err != nil {
			return nil, err
		}
	}
	if run, err = build(r, o, ""); err != nil { // the checkpoint has newer weights than the file, which may be gone
		return nil, err
	}
	return run, run.goOn(f, file, step, damaged, before, accept)
}

// goOn takes a run to a checkpoint, and says what is not as it was.
func (r *Run) goOn(f *Folder, file *tensorio.File, step int, damaged []error, before *identity, accept bool) error {
	var changed []change
	if before != nil {
		now, err := r.identity()
		if err != nil {
			return err
		}
		changed = before.changes(now)
		if err := refuse(f.Path, step, changed); err != nil && !accept {
			return err
		}
	}
	if err := r.load(file, step); err != nil {
		return err
	}
	for _, err := range damaged {
		r.note(fmt.Sprintf("%v; going on from the checkpoint of step %d", err, step))
	}
	if err := f.discardAfter(step); err != nil { // the damaged ones: none of them counts as one to keep
		return err
	}
	if err := r.opened(f, changed); err != nil {
		return err
	}
	if refuse(f.Path, step, changed) == nil {
		return nil
	}
	return r.saveAs(f.checkpoint(step)) // which is now one of what the run has become
}

// Close frees the network and the datasets, and the run folder if there is one.
func (r *Run) Close() error {
	r.scope.Close()
	for _, d := range []*data.Dataset{r.trainSet, r.testSet} {
		if d != nil {
			_ = d.Close() // opened for reading: nothing can be lost
		}
	}
	if r.folder == nil {
		return nil
	}
	return r.folder.Close()
}

func (r *Run) onDevice() (err error) {
	if r.device, err = torch.ParseDevice(r.recipe.Train.Device); err != nil {
		return err
	}
	if r.precision, err = embed.Precision(r.recipe.Train.Precision, r.device); err != nil {
		return err
	}
	// The bits depend on all three, so the run's config.yaml says what they were.
	r.recipe.Train.Device = r.device.String()
	r.recipe.Train.Precision = r.precision.String()
	if r.recipe.Train.Threads == 0 {
		r.recipe.Train.Threads = torch.Threads()
	}
	torch.SetDeterministic(true)
	return torch.Seed(r.device, r.recipe.Seed)
}

func (r *Run) withData() error {
	collection, err := config.Resolve(data.Registry, &r.recipe.Data)
	if err != nil {
		return err
	}
	if r.trainSet, err = collection.Open(data.Train); err != nil {
		return err
	}
	if r.testSet, err = collection.Open(data.Test); err != nil {
		return err
	}
	r.data = map[string]data.Fingerprint{data.Train: r.trainSet.Fingerprint(), data.Test: r.testSet.Fingerprint()}
	for _, d := range []*data.Dataset{r.trainSet, r.testSet} {
		if n := len(d.Skipped); n > 0 {
			r.note(fmt.Sprintf("%s %s: %d broken images skipped, first %s", d.Name, d.Split, n, d.Skipped[0]))
		}
	}
	if note := r.trainSet.PassedOver(); note != "" {
		r.note(fmt.Sprintf("%s: passed over %s", r.trainSet.Name, note))
	}
	cache := int64(min(r.recipe.Train.Cache, memory.Limit()/4))
	r.loader, err = data.NewLoader(r.trainSet, r.recipe.Transform, data.LoaderOptions{
		Workers: r.recipe.Train.Workers, CacheBytes: cache, Augment: true, Seed: r.recipe.Seed})
	if err != nil {
		return err
	}
	batches, err := config.Resolve(sampler.Registry, &r.recipe.Sampler)
	if err != nil {
		return err
	}
	if _, asks := batches.(sampler.Regrouper); asks {
		return fault.Inputf("sampler %s: its categories come from the network, and a run does not ask it for them yet; choose hard, which takes the dataset's categories, or balanced", r.recipe.Sampler.Name)
	}
	if r.plan, err = batches.Plan(r.trainSet.Labels(), r.trainSet.Categories(), r.recipe.Seed); err != nil {
		if lone := (*sampler.LoneError)(nil); errors.As(err, &lone) {
			lone.Name = r.trainSet.Items[lone.Row].Class
		}
		return fmt.Errorf("%s %s: %w", r.trainSet.Name, r.trainSet.Split, err)
	}
	r.test, err = embed.New(r.testSet, r.recipe.Transform, embed.Options{Batch: r.recipe.Eval.Batch, Workers: r.recipe.Train.Workers,
		CacheBytes: cache, Precision: r.precision, Progress: func(done int) { r.observer.Embed(done, r.testSet.Len()) }})
	if err != nil {
		return err
	}
	if note := unlike(r.testSet); note != "" {
		r.note(note)
	}
	return r.measurable()
}

// note tells the user, and the log once there is one.
func (r *Run) note(text string) {
	r.notes = append(r.notes, text)
	r.observer.Note(text)
}

func (r *Run) withNetwork(weights string) error {
	backbone, err := config.Resolve(backbones.Registry, &r.recipe.Model)
	if err != nil {
		return err
	}
	if r.model, err = backbone.Build(r.scope, r.device, r.recipe.Seed); err != nil {
		return err
	}
	channels, side, _ := r.recipe.Transform.Size()
	if err := embed.Fits(r.model, channels, side); err != nil {
		return err
	}
	if in := r.model.Input(); in.Size != side && in.Takes != nil { // nil: one size is like another to it
		r.note(fmt.Sprintf("model.size is %d, but the transform makes images of %d pixels, and those count", in.Size, side))
	}
	if weights == "" {
		return nil
	}
	from := r.recipe.Weights
	from.File = weights
	loaded, err := r.model.Load(from)
	if miss := (*nn.MismatchError)(nil); errors.As(err, &miss) {
		return fmt.Errorf("weights: %w; or load what fits with weights.strict=false", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Inputf("weights.file=%s: there is no such file; give one, or weights=random", weights)
	}
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	r.note(fmt.Sprintf("weights %s: %s", weights, loaded))
	return nil
}

// withinMemory refuses batches that could not be held.
func (r *Run) withinMemory() error {
	images := len(r.plan.Epoch(0)[0])
	_, side, _ := r.recipe.Transform.Size()
	const ahead = 2 // prepared beside the one in use
	bytes := 4 * float64(images) * float64(r.recipe.Transform.Len())
	return memory.Check(fmt.Sprintf("a batch of %d images of %d × %d pixels, and %d prepared ahead,", images, side, side, ahead), (1+ahead)*bytes)
}

// withObjective makes what moves the weights: loss, optimiser and schedule.
func (r *Run) withObjective() error {
	loss, err := config.Resolve(criterion.Registry, &r.recipe.Loss)
	if err != nil {
		return err
	}
	r.criterion, err = criterion.Start(loss, criterion.Setup{
		Params: nn.NewParams(r.scope, r.device, r.recipe.Seed),
		Dim:    r.model.Dim(), Batch: len(r.plan.Epoch(0)[0]), Labels: r.trainSet.Labels(),
	})
	if err != nil {
		return fmt.Errorf("loss %s: %w", r.recipe.Loss.Name, err)
	}
	if r.schedule, err = config.Resolve(optim.Schedules, &r.recipe.Schedule); err != nil {
		return err
	}
	rule, err := config.Resolve(optim.Registry, &r.recipe.Optimizer)
	if err != nil {
		return err
	}
	groups := r.recipe.Groups.Split(r.model.Parameters(), r.model.IsHead, r.criterion.State().Under(lossPrefix).Parameters())
	if r.optimizer, err = rule.New(r.scope, groups); err != nil {
		return err
	}
	if r.precision == torch.Float16 {
		r.scaler = optim.NewScaler(r.scope)
	}
	if decay := r.recipe.Train.EMA; decay > 0 {
		r.average, err = optim.NewAverage(r.scope, r.model.State(), decay)
	}
	return err
}

// Begin makes f the run's folder and writes the resolved recipe there.
func (r *Run) Begin(f *Folder) error { return r.opened(f, nil) }

// opened is Begin for a folder whose run changed; changes of its config.yaml are
// added.
func (r *Run) opened(f *Folder, changed []change) error {
	r.folder = f
	r.recipe.absolute()
	text, err := config.Marshal(r.recipe)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(f.ConfigPath())
	if err == nil && !f.fresh && !bytes.Equal(old, text) {
		more, err := r.changesOf(old)
		if err != nil {
			return err
		}
		for _, c := range more {
			if !slices.ContainsFunc(changed, func(known change) bool { return known.key == c.key }) {
				changed = append(changed, c)
			}
		}
	}
	for _, c := range changed {
		r.note(fmt.Sprintf("after step %d %s", r.step, c))
	}
	if err == nil && bytes.Equal(old, text) {
		return nil
	}
	return f.write(configFile, text)
}

// changesOf says what overrides have made different from the recipe so far.
func (r *Run) changesOf(old []byte) ([]change, error) {
	tree, err := config.Parse(r.folder.ConfigPath(), old)
	if err != nil {
		return nil, err
	}
	before, err := LoadRecipe(tree, nil)
	if err != nil {
		return nil, err
	}
	was, e1 := config.Pairs(before)
	now, e2 := config.Pairs(r.recipe)
	known := slices.DeleteFunc(changedKeys(was, now), func(c change) bool { return c.was == "not there" }) // a default of a newer program
	return known, cmp.Or(e1, e2)
}

// What the names in a checkpoint begin with.
const (
	modelPrefix     = "model."
	lossPrefix      = "loss." // proxies and memory
	optimizerPrefix = "optimizer."
	scalerPrefix    = "scaler."
	averagePrefix   = "average."
	randomPrefix    = "random." // states of random numbers
)

// state is what a checkpoint must hold, beside random numbers, for the run to
// go on exactly. Batches, augmentation and the learning rate are functions of
// the step.
func (r *Run) state() nn.State {
	all := slices.Concat(r.model.State().Under(modelPrefix), r.criterion.State().Under(lossPrefix), r.optimizer.State().Under(optimizerPrefix))
	if r.scaler != nil {
		all = append(all, r.scaler.State().Under(scalerPrefix)...)
	}
	if r.average != nil {
		all = append(all, r.average.State().Under(averagePrefix)...)
	}
	return all
}

// changing is the state that a step may change before it moves the weights.
func (r *Run) changing() nn.State {
	all := append(r.model.State(), r.criterion.State()...)
	if r.scaler != nil {
		all = append(all, r.scaler.State()...)
	}
	return all
}

func randomName(d torch.Device) string { return randomPrefix + d.String() }

// generators are the devices whose random numbers the run may draw.
func (r *Run) generators() []torch.Device {
	if r.device == torch.CPU {
		return []torch.Device{torch.CPU}
	}
	return []torch.Device{torch.CPU, r.device}
}

// Step is the number of optimiser steps done.
func (r *Run) Step() int { return r.step }

// Recipe is the recipe, with every default filled in.
func (r *Run) Recipe() *Recipe { return r.recipe }

// Folder is where the run's files are; nil before Begin.
func (r *Run) Folder() *Folder { return r.folder }

// LoadRecipe reads a recipe and lays overrides over it.
func LoadRecipe(tree *config.Tree, overrides []string) (*Recipe, error) {
	if err := tree.Override(overrides...); err != nil {
		return nil, err
	}
	r := NewRecipe()
	if err := tree.Decode(r); err != nil {
		return nil, err
	}
	return r, nil
}

// OpenTrained reads the recipe of a run folder and names the file of its
// weights.
func OpenTrained(folder string) (recipe *Recipe, weights string, err error) {
	if recipe, err = ReadRecipe(folder, nil); err != nil {
		return nil, "", err
	}
	f := &Folder{Path: folder}
	if _, err := os.Stat(f.WeightsPath()); err != nil {
		return nil, "", fault.Inputf("run folder %s: the run has not ended, so there is no %s; finish it with roadmap train --resume %s", folder, weightsFile, folder)
	}
	return recipe, f.WeightsPath(), nil
}
