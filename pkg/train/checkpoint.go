package train

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

const (
	metadataKind = "kind"
	metadataStep = "step"
	metadataRun  = "run" // the identity, as JSON
	kindRun      = "roadmap checkpoint"
	kindWeights  = "roadmap weights"
)

// checkpoint saves the run as it is now, and then removes old checkpoints.
func (r *Run) checkpoint(log *journal) error {
	if err := r.save(log); err != nil {
		return saveError{err}
	}
	return r.folder.prune(r.recipe.Train.KeepCheckpoints)
}

// save writes a checkpoint of the run as it is now, unless it is there already.
// Weights that are not finite are no state to go on from: they are an error, and
// the older checkpoints stay.
func (r *Run) save(log *journal) error {
	if r.saved == r.step {
		return nil
	}
	if err := r.finite(); err != nil {
		return err
	}
	if err := log.sync(); err != nil {
		return err
	}
	if err := r.saveAs(r.folder.checkpoint(r.step)); err != nil {
		return fmt.Errorf("checkpoint at step %d: %w", r.step, err)
	}
	r.saved = r.step
	r.folder.intact(r.step)
	return nil
}

// finite checks the parameters and buffers of network and loss.
func (r *Run) finite() error {
	s := r.scope.Child()
	defer s.Close()
	for _, n := range append(r.model.State(), r.criterion.State()...) {
		if ok, err := n.Tensor.Alias(s).IsFinite().All().Item(); err != nil {
			return err
		} else if ok == 0 {
			return fmt.Errorf("after step %d the tensor %s is not finite; %s", r.step, n.Name, gentler)
		}
	}
	return nil
}

func (r *Run) saveAs(path string) error {
	tensors, err := r.state().Snapshot()
	if err != nil {
		return err
	}
	for _, d := range r.generators() {
		bytes, err := torch.GeneratorState(d)
		if err != nil {
			return err
		}
		tensors = append(tensors, tensorio.Named{Name: randomName(d), Tensor: tensorio.Of(bytes, len(bytes))})
	}
	now, err := r.identity()
	if err != nil {
		return err
	}
	text, err := now.text()
	if err != nil {
		return err
	}
	return writeTensors(path, tensors, map[string]string{metadataKind: kindRun, metadataStep: strconv.Itoa(r.step), metadataRun: text})
}

// saveWeights writes the network alone, as it was evaluated, for embedding.
func (r *Run) saveWeights() error {
	state := r.model.State()
	if r.average != nil {
		state = r.average.State()
	}
	tensors, err := state.Snapshot()
	if err != nil {
		return err
	}
	return writeTensors(r.folder.WeightsPath(), tensors, map[string]string{metadataKind: kindWeights, metadataStep: strconv.Itoa(r.step)})
}

func writeTensors(path string, tensors []tensorio.Named, metadata map[string]string) error {
	return tensorio.Save(path, true, func(w io.Writer) error { return tensorio.WriteSafetensors(w, tensors, metadata) })
}

// openCheckpoint opens the checkpoint of a step and looks it over: one that is
// damaged is an error.
func (f *Folder) openCheckpoint(step int) (*tensorio.File, error) {
	path := f.checkpoint(step)
	file, err := tensorio.Open(path)
	if err != nil {
		return nil, err
	}
	if have, err := strconv.Atoi(file.Metadata[metadataStep]); err != nil || have != step || file.Metadata[metadataKind] != kindRun {
		return nil, errors.Join(fault.Inputf("%s is not the checkpoint of step %d", path, step), file.Close())
	}
	if err := file.Verify(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.intact(step)
	return file, nil
}

// newest opens the newest checkpoint that is whole, and says which newer ones
// are not. Without any, file is nil.
func (f *Folder) newest() (file *tensorio.File, step int, damaged []error, err error) {
	steps, err := f.checkpoints()
	if err != nil {
		return nil, 0, nil, err
	}
	for _, step := range steps {
		file, err := f.openCheckpoint(step)
		if err == nil {
			return file, step, damaged, nil
		}
		damaged = append(damaged, err)
	}
	if len(damaged) > 0 {
		return nil, 0, damaged, fault.Inputf("run folder %s: no checkpoint can be used: %w; put a whole copy into %s, or empty that folder to begin at step 0", f.Path, damaged[0], f.file(checkpointDir))
	}
	return nil, 0, nil, nil
}

// load takes the run to a checkpoint.
func (r *Run) load(file *tensorio.File, step int) error {
	if err := r.state().Load(weightsOf{file}); err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	for _, d := range r.generators() {
		if !file.Has(randomName(d)) {
			r.note(fmt.Sprintf("the run was on another device: random numbers of %s begin anew", d))
			continue
		}
		state, err := file.Tensor(randomName(d))
		if err != nil {
			return err
		}
		if err := torch.SetGeneratorState(d, state.Data); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	r.step, r.saved = step, step
	return nil
}

// weightsOf is a checkpoint without the state of random numbers, which depends
// on the device.
type weightsOf struct{ *tensorio.File }

// Names lists the tensors of network and optimiser.
func (w weightsOf) Names() []string {
	return slices.DeleteFunc(w.File.Names(), func(name string) bool { return strings.HasPrefix(name, randomPrefix) })
}
