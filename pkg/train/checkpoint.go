package train

import (
	"fmt"
	"io"
	"strconv"

	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

const (
	metadataKind = "kind"
	metadataStep = "step"
	kindRun      = "roadmap checkpoint"
	kindWeights  = "roadmap weights"
)

// save writes a checkpoint of the run as it is now, and then removes old ones.
func (r *Run) save() error {
	if err := r.saveAs(r.folder.checkpoint(r.step)); err != nil {
		return err
	}
	return r.folder.prune(r.recipe.Train.KeepCheckpoints)
}

func (r *Run) saveAs(path string) error {
	s := torch.NewScope()
	defer s.Close()
	state, err := r.state(s)
	if err != nil {
		return fmt.Errorf("checkpoint at step %d: %w", r.step, err)
	}
	if err := writeState(path, state, map[string]string{metadataKind: kindRun, metadataStep: strconv.Itoa(r.step)}); err != nil {
		return fmt.Errorf("checkpoint at step %d: %w; earlier checkpoints are whole, so make room and continue with --resume %s", r.step, err, r.folder.Path)
	}
	return nil
}

// saveWeights writes the network alone, for embedding.
func (r *Run) saveWeights() error {
	return writeState(r.folder.WeightsPath(), r.model.State(), map[string]string{metadataKind: kindWeights, metadataStep: strconv.Itoa(r.step)})
}

func writeState(path string, state nn.State, metadata map[string]string) error {
	tensors, err := state.Snapshot()
	if err != nil {
		return err
	}
	return tensorio.Save(path, true, func(w io.Writer) error { return tensorio.WriteSafetensors(w, tensors, metadata) })
}

// Restore goes on with the run of a folder, from its newest checkpoint that
// can be read. A run without one begins anew.
func (r *Run) Restore(f *Folder) error {
	r.folder = f
	steps, err := f.checkpoints()
	if err != nil {
		return err
	}
	var first error
	for _, step := range steps {
		err := r.load(f.checkpoint(step), step)
		if err == nil && step > r.recipe.Train.Steps {
			return fault.Inputf("run folder %s: %d steps are done already, more than train.steps=%d", f.Path, step, r.recipe.Train.Steps)
		}
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
		r.observer.Note(fmt.Sprintf("%v; trying the checkpoint before it", err))
	}
	if first != nil {
		return fault.Inputf("run folder %s: no checkpoint can be used: %w", f.Path, first)
	}
	r.observer.Note(fmt.Sprintf("run folder %s has no checkpoint yet: beginning at step 0", f.Path))
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
	s := torch.NewScope()
	defer s.Close()
	state, err := r.state(s)
	if err != nil {
		return err
	}
	if err := state.Load(file); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for i, d := range r.generators() {
		bytes, err := state[len(state)-len(r.generators())+i].Tensor.ReadBytes()
		if err != nil {
			return err
		}
		if err := torch.SetGeneratorState(d, bytes); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	r.step = step
	return nil
}
