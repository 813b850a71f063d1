package train

import (
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
	if err := log.file.Sync(); err != nil {
		return fmt.Errorf("write the log: %w", err)
	}
	if err := r.saveAs(r.folder.checkpoint(r.step)); err != nil {
		return fmt.Errorf("checkpoint at step %d: %w", r.step, err)
	}
	r.saved = r.step
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
	return writeTensors(path, tensors, map[string]string{metadataKind: kindRun, metadataStep: strconv.Itoa(r.step)})
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

// restore takes the run to the newest of its checkpoints, those of the given
// steps, that can be read.
func (r *Run) restore(steps []int) error {
	var first error
	for _, step := range steps {
		err := r.load(r.folder.checkpoint(step), step)
		if err == nil && step > r.recipe.Train.Steps {
			return fault.Inputf("run folder %s: %d steps are done already, more than train.steps=%d", r.folder.Path, step, r.recipe.Train.Steps)
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
		r.note(fmt.Sprintf("%v; trying the checkpoint before it", err))
	}
	if first != nil {
		return fault.Inputf("run folder %s: no checkpoint can be used: %w; put a whole copy into %s, or empty that folder to begin at step 0", r.folder.Path, first, r.folder.file(checkpointDir))
	}
	r.note(fmt.Sprintf("run folder %s has no checkpoint yet: beginning at step 0", r.folder.Path))
	return nil
}

func (r *Run) load(path string, step int) error {
	file, err := tensorio.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if have, err := strconv.Atoi(file.Metadata[metadataStep]); err != nil || have != step || file.Metadata[metadataKind] != kindRun {
		return fault.Inputf("%s is not the checkpoint of step %d", path, step)
	}
	if err := r.state().Load(weightsOf{file}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
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
			return fmt.Errorf("%s: %w", path, err)
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
