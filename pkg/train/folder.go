package train

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

// The files of a run folder.
const (
	configFile    = "config.yaml"  // the recipe, resolved: every key with its value
	logFile       = "log.jsonl"    // one object a line: steps, evaluations, notes
	logSumFile    = ".log.sha256"  // what the log was when the last checkpoint was saved
	metricsFile   = "metrics.json" // the last evaluation of each kind
	weightsFile   = "weights.safetensors"
	lockFile      = ".lock"       // held while a process works in the folder
	checkpointDir = "checkpoints" // step-00000600.safetensors
	checkpointExt = ".safetensors"
	checkpointPre = "step-"
	damagedExt    = ".damaged" // behind a checkpoint that cannot be read
)

// Folder is where a run keeps its files. One process at a time works in it.
type Folder struct {
	Path string

	lock  *os.File
	fresh bool         // made or emptied for a run that begins
	whole map[int]bool // checkpoints that this process has written, or read without finding damage
}

// CreateFolder makes the folder of a new run. A folder that holds files
// already is refused; force empties it, provided that it is a run's.
func CreateFolder(path string, force bool) (*Folder, error) {
	entries, err := os.ReadDir(path)
	switch {
	case err == nil && !unbegun(entries) && !force:
		return nil, fault.Inputf("run folder %s: there are files in it; continue that run with --resume %s, choose another folder with --out, or replace it with --force", path, path)
	case err == nil && !unbegun(entries) && isRun(path) != nil:
		return nil, fault.Inputf("run folder %s: it is not empty and not a run's (it has no %s), so --force does not empty it; choose another folder with --out", path, configFile)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fault.Inputf("run folder %s: %w; choose another folder with --out", path, pathCause(err))
	}
	if err := os.MkdirAll(filepath.Join(path, checkpointDir), 0o755); err != nil {
		return nil, fault.Inputf("run folder %s cannot be made: %w; choose another folder with --out", path, pathCause(err))
	}
	f := &Folder{Path: path, fresh: true}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	if err := f.clear(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Vacant says whether a new run can be made at a path without force: nothing
// is there, or what a run left that was killed before it began.
func Vacant(path string) bool {
	entries, err := os.ReadDir(path)
	return err != nil || unbegun(entries)
}

// OpenFolder opens the folder of a run that was begun before.
func OpenFolder(path string) (*Folder, error) {
	if err := isRun(path); err != nil {
		return nil, err
	}
	f := &Folder{Path: path}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	tensorio.RemovePartial(f.Path)
	tensorio.RemovePartial(f.file(checkpointDir))
	return f, nil
}

// unbegun says whether a folder holds nothing, or nothing but what a run leaves
// that is killed before its config.yaml is written.
func unbegun(entries []fs.DirEntry) bool {
	return !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() != lockFile && e.Name() != checkpointDir && !tensorio.IsPartial(e.Name())
	})
}

// isRun asks whether a folder is a run's: whether it has a config.yaml. The error
// says why not.
func isRun(path string) error {
	_, err := os.Stat(filepath.Join(path, configFile))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fault.Inputf("run folder %s: there is no %s in it; give the folder that `roadmap train` printed", path, configFile)
	}
	return fault.Inputf("run folder %s: %w", path, err)
}

// ReadRecipe reads the recipe of a run folder and lays overrides over it.
func ReadRecipe(folder string, overrides []string) (*Recipe, error) {
	if err := isRun(folder); err != nil {
		return nil, err
	}
	f := &Folder{Path: folder}
	text, err := os.ReadFile(f.ConfigPath())
	if err != nil {
		return nil, fault.Inputf("run folder %s: %w; make that file readable", folder, err)
	}
	tree, err := config.Parse(f.ConfigPath(), text)
	if err != nil {
		return nil, err
	}
	return LoadRecipe(tree, overrides)
}

// pathCause drops the path that an error of package os repeats.
func pathCause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// acquire takes the folder's lock, which the system gives back when the
// process ends, however it ends.
func (f *Folder) acquire() error {
	lock, err := os.OpenFile(f.file(lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fault.Inputf("run folder %s cannot be written: %w; choose another folder", f.Path, pathCause(err))
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fault.Inputf("run folder %s: another process is working in it; wait for it to end", f.Path), lock.Close())
	}
	f.lock = lock
	return nil
}

// clear removes what an earlier run left, except its config.yaml: that is
// replaced at once when the new run begins, and until then says whose folder
// it is.
func (f *Folder) clear() error {
	tensorio.RemovePartial(f.Path)
	for _, name := range []string{checkpointDir, logSumFile, logFile, metricsFile, weightsFile} {
		if err := os.RemoveAll(f.file(name)); err != nil {
			return fmt.Errorf("run folder %s: remove the old %s: %w", f.Path, name, pathCause(err))
		}
	}
	if err := os.MkdirAll(f.file(checkpointDir), 0o755); err != nil {
		return fmt.Errorf("run folder %s: %w", f.Path, pathCause(err))
	}
	return errors.Join(tensorio.SyncFolder(f.Path), tensorio.SyncFolder(filepath.Dir(f.Path)))
}

// Close gives the folder free for other processes.
func (f *Folder) Close() error { return f.lock.Close() }

func (f *Folder) file(name string) string { return filepath.Join(f.Path, name) }

// ConfigPath is the file with the resolved recipe.
func (f *Folder) ConfigPath() string { return f.file(configFile) }

// WeightsPath is the file with the trained network's weights.
func (f *Folder) WeightsPath() string { return f.file(weightsFile) }

func (f *Folder) checkpoint(step int) string {
	return filepath.Join(f.Path, checkpointDir, fmt.Sprintf("%s%08d%s", checkpointPre, step, checkpointExt))
}

// checkpoints lists the steps of the regular checkpoints, the newest first.
func (f *Folder) checkpoints() ([]int, error) {
	entries, err := os.ReadDir(f.file(checkpointDir))
	if err != nil {
		return nil, fault.Inputf("run folder %s: its %s/ cannot be read: %w; put it back, or make it empty to begin at step 0", f.Path, checkpointDir, pathCause(err))
	}
	var steps []int
	for _, e := range entries {
		name, ends := strings.CutSuffix(e.Name(), checkpointExt)
		digits, begins := strings.CutPrefix(name, checkpointPre)
		if step, err := strconv.Atoi(digits); begins && ends && err == nil {
			steps = append(steps, step)
		}
	}
	slices.Sort(steps)
	slices.Reverse(steps)
	return steps, nil
}

// discardAfter puts checkpoints of later steps aside, under a name that none of
// them has.
func (f *Folder) discardAfter(step int) error {
	steps, err := f.checkpoints()
	if err != nil {
		return err
	}
	for _, later := range steps {
		if later <= step {
			break
		}
		if err := f.putAside(later); err != nil {
			return err
		}
	}
	return nil
}

func (f *Folder) putAside(step int) error {
	if err := os.Rename(f.checkpoint(step), f.checkpoint(step)+damagedExt); err != nil {
		return fmt.Errorf("run folder %s: put a damaged checkpoint aside: %w", f.Path, err)
	}
	return nil
}

// intact notes that a checkpoint is whole.
func (f *Folder) intact(step int) {
	if f.whole == nil {
		f.whole = map[int]bool{}
	}
	f.whole[step] = true
}

// prune removes all but the newest checkpoints that are whole. Damaged ones are
// put aside.
func (f *Folder) prune(keep int) error {
	steps, err := f.checkpoints()
	if err != nil {
		return err
	}
	kept := 0
	for _, step := range steps {
		switch {
		case kept == keep:
			if err := os.Remove(f.checkpoint(step)); err != nil {
				return fmt.Errorf("remove an old checkpoint: %w", err)
			}
		case f.whole[step] || f.check(step):
			kept++
		default:
			if err := f.putAside(step); err != nil {
				return err
			}
		}
	}
	return nil
}

// check says whether the checkpoint of a step is whole.
func (f *Folder) check(step int) bool {
	file, err := f.openCheckpoint(step)
	if err != nil {
		return false
	}
	_ = file.Close() // read only
	return true
}

// write replaces one of the folder's files.
func (f *Folder) write(name string, text []byte) error {
	return tensorio.Save(f.file(name), true, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
