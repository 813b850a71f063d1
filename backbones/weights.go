package backbones

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

// Weights says what a network starts from: random values, or a file with a
// state_dict (.pth, .pt or .safetensors) or a TorchScript archive.
type Weights struct {
	Name   string   `yaml:"name"`   // random; pretrained, which needs a file; empty: pretrained if there is a file
	File   string   `yaml:"file"`   // state_dict or TorchScript archive to read them from
	Key    string   `yaml:"key"`    // part of a checkpoint that holds them; empty: the customary one
	Strict bool     `yaml:"strict"` // names and shapes must agree in full
	Drop   []string `yaml:"drop"`   // tensors of the file to leave out, by name
}

// The values of Weights.Name.
const (
	Random     = "random"
	Pretrained = "pretrained"
)

// Validate refuses words that stand for nothing.
func (w Weights) Validate() error {
	switch {
	case w.Name == Random && w.File != "":
		return config.Invalid("name", "is random, but there is a file, %s; leave one of them out, or give weights=pretrained", w.File)
	case w.Name != "" && w.Name != Random && w.Name != Pretrained:
		return config.Invalid("name", "is %q; give random, or pretrained with weights.file", w.Name)
	}
	return nil
}

// Loaded says what became of a file of weights.
type Loaded struct {
	Tensors    int      // read into the network
	Prefix     string   // that every name of the file began with, taken off
	Dropped    []string // of the file, left out: the classifier, and what the options name
	Initial    []string // of the network, not in the file and not asked for: a new head, counters of old files
	Resampled  []string // position embeddings brought to another grid
	Unlike     []string // without Strict: what did not fit and was passed over
	Classifier bool     // the file had a classifier
}

// String sums it up in a line.
func (l Loaded) String() string {
	text := fmt.Sprintf("%d tensors read", l.Tensors)
	for _, part := range []struct {
		names []string
		what  string
	}{
		{l.Dropped, "of the file left out"}, {l.Initial, "not in the file, so as initialised"},
		{l.Resampled, "brought to another grid"}, {l.Unlike, "passed over as they do not fit"},
	} {
		if n := len(part.names); n > 0 {
			text += fmt.Sprintf("; %d %s (%s)", n, part.what, abridged(part.names))
		}
	}
	return text
}

// abridged is the first few of some names.
func abridged(names []string) string {
	const few = 3
	if len(names) > few {
		return strings.Join(names[:few], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// naming is what a family's files have beside the network's own names.
type naming struct {
	classifier []string          // tensors of the original's classifier
	children   map[string]string // the parts by their numbers, where a program kept them in an nn.Sequential
	positions  string            // tensor of position embeddings; empty: none
	tokens     int64             // entries of it before those of the places
	distilled  string            // token that the distilled sister has
}

// Load reads weights into the network. Names are those of torchvision or timm,
// or of a program that kept such a network under a prefix ("module.", "net.")
// or, as ROADMAP's does, as "backbone" beside a projection "fc". The original's
// classifier is left out. A file without a head leaves the head as it is.
func (m *Model) Load(w Weights) (Loaded, error) {
	file, err := tensorio.Open(w.File)
	if err != nil {
		return Loaded{}, err
	}
	defer file.Close()
	entries, err := file.StateDict(w.Key)
	if err != nil {
		return Loaded{}, err
	}
	var loaded Loaded
	source, err := m.rename(entries, w, &loaded)
	if err != nil {
		return Loaded{}, fault.Inputf("%s: %w", w.File, err)
	}
	want := m.wanted(source, &loaded)
	if err := want.Load(source); err != nil {
		var miss *nn.MismatchError
		if !errors.As(err, &miss) || w.Strict {
			return Loaded{}, fmt.Errorf("%s: %w%s", w.File, err, m.hint(miss, entries, loaded.Prefix))
		}
		loaded.Unlike = slices.Concat(miss.Missing, miss.Unexpected, miss.Misshapen)
		if want, err = common(want, source, miss); err != nil {
			return Loaded{}, fmt.Errorf("%s: %w", w.File, err)
		}
	}
	loaded.Tensors = len(want)
	return loaded, nil
}

// rename gives the entries of a file the network's names.
func (m *Model) rename(entries []tensorio.Entry, w Weights, loaded *Loaded) (*renamed, error) {
	unused := slices.Clone(w.Drop)
	drop := func(name string) bool {
		i := slices.Index(unused, name)
		if i >= 0 {
			unused = slices.Delete(unused, i, i+1)
		}
		return i >= 0
	}
	entries = slices.DeleteFunc(entries, func(e tensorio.Entry) bool {
		gone := drop(e.Name)
		if gone {
			loaded.Dropped = append(loaded.Dropped, e.Name)
		}
		return gone
	})
	loaded.Prefix = commonPrefix(entries)
	toOurs := m.names.ours(entries, loaded.Prefix)
	source := &renamed{model: m, state: map[string]nn.Named{}, entries: map[string]tensorio.Entry{}, loaded: loaded}
	for _, n := range m.State() {
		source.state[n.Name] = n
	}
	for _, e := range entries {
		name := e.Name
		if _, own := source.state[name]; !own {
			name = toOurs(strings.TrimPrefix(e.Name, loaded.Prefix))
		}
		switch {
		case name == "" || drop(name):
			loaded.Dropped = append(loaded.Dropped, e.Name)
			loaded.Classifier = loaded.Classifier || name == ""
			continue
		case source.entries[name].Stored != nil:
			return nil, fmt.Errorf("two tensors stand for %q", name)
		}
		source.order = append(source.order, name)
		source.entries[name] = e
	}
	if len(unused) > 0 {
		return nil, fmt.Errorf("there is no tensor %q to leave out", unused[0])
	}
	source.distilled = slices.Contains(loaded.Dropped, m.names.distilled) || slices.Contains(loaded.Dropped, loaded.Prefix+m.names.distilled)
	return source, nil
}

// wrappers are what programs put before the names of a network they keep.
var wrappers = []string{"module.", "_orig_mod.", "model.", "net.", "backbone."}

// commonPrefix is the wrappers that every name begins with.
func commonPrefix(entries []tensorio.Entry) (prefix string) {
	for again := len(entries) > 0; again; {
		again = false
		for _, w := range wrappers {
			if !slices.ContainsFunc(entries, func(e tensorio.Entry) bool { return !strings.HasPrefix(e.Name, prefix+w) }) {
				prefix, again = prefix+w, true
			}
		}
	}
	return prefix
}

// ours returns the map from a file's names, prefix off, to the network's. It
// gives "" for the classifier. A file with names below "backbone." or "net." has
// projection and pooling beside it, as "fc" and "pooling".
func (n naming) ours(entries []tensorio.Entry, prefix string) func(string) string {
	trunk := ""
	for _, usual := range []string{"net.", "backbone."} {
		if slices.ContainsFunc(entries, func(e tensorio.Entry) bool { return strings.HasPrefix(e.Name, prefix+usual) }) {
			trunk = usual
		}
	}
	return func(name string) string {
		if trunk != "" {
			if rest, ok := strings.CutPrefix(name, "fc."); ok {
				return headPath + ".projection." + rest
			}
			if rest, ok := strings.CutPrefix(name, "pooling."); ok {
				return headPath + ".pool." + rest
			}
			name = strings.TrimPrefix(name, trunk)
		}
		first, rest, _ := strings.Cut(name, ".")
		if part, ok := n.children[first]; ok {
			return part + "." + rest
		}
		if slices.Contains(n.classifier, name) {
			return ""
		}
		return name
	}
}

// wanted is the tensors that the file must hold: all but a head it has nothing
// of, other names of a tensor that it has, and the counters of batches, which
// PyTorch began to save in 0.4.1.
func (m *Model) wanted(source *renamed, loaded *Loaded) nn.State {
	headless := !slices.ContainsFunc(source.order, m.IsHead)
	return slices.DeleteFunc(m.State(), func(n nn.Named) bool {
		_, there := source.entries[n.Name]
		_, twin := source.entries[n.Twin]
		free := !there && (headless && m.IsHead(n.Name) || strings.HasSuffix(n.Name, ".num_batches_tracked") || twin)
		if free && !twin {
			loaded.Initial = append(loaded.Initial, n.Name)
		}
		return free
	})
}

// common loads what fits and returns it.
func common(want nn.State, source *renamed, miss *nn.MismatchError) (nn.State, error) {
	unfit := map[string]bool{}
	for _, name := range slices.Concat(miss.Missing, miss.Unexpected) {
		unfit[name] = true
	}
	for _, line := range miss.Misshapen {
		name, _, _ := strings.Cut(line, ":")
		unfit[name] = true
	}
	want = slices.DeleteFunc(want, func(n nn.Named) bool { return unfit[n.Name] })
	source.order = slices.DeleteFunc(source.order, func(name string) bool { return unfit[name] })
	return want, want.Load(source)
}

// hint says what to do about a file that does not fit.
func (m *Model) hint(miss *nn.MismatchError, entries []tensorio.Entry, prefix string) string {
	switch {
	case miss == nil:
		return ""
	case m.names.distilled != "" && slices.Contains(miss.Unexpected, m.names.distilled):
		return fmt.Sprintf(". The weights are of a distilled network: choose it, or leave its token out with drop=[%s].", m.names.distilled)
	}
	if like := resembles(entries, prefix); like != "" {
		return fmt.Sprintf(". The file looks like %s: choose the network that the weights were made for, or leave tensors of the file out with drop.", like)
	}
	return ". Choose the network that the weights were made for, or leave tensors of the file out with drop."
}

// renamed is a file's tensors under the network's names.
type renamed struct {
	model     *Model
	state     map[string]nn.Named // of the network, by name
	order     []string
	entries   map[string]tensorio.Entry
	loaded    *Loaded
	distilled bool // the distillation token was left out, its position is to be, too
}

// Names lists the tensors in the file's order.
func (r *renamed) Names() []string { return r.order }

// maxPositions bounds the position embeddings that are resampled: a grid of
// 256x256 places, for images of 4,096 pixels.
const maxPositions = 1<<16 + 2

// Tensor reads one, position embeddings brought to the network's grid. Of one
// that cannot fit only type and shape are given, for Load to refuse: a hostile
// file may let it repeat into more than it holds.
func (r *renamed) Tensor(name string) (tensorio.Tensor, error) {
	e := r.entries[name]
	want := r.shape(name)
	positions := name != "" && name == r.model.names.positions && len(e.Shape) == 3 && len(want) == 3 &&
		e.Shape[0] == 1 && e.Shape[1] <= maxPositions && e.Shape[2] == want[2]
	if !positions && !slices.Equal(e.Shape, want) {
		return tensorio.Tensor{DType: e.DType, Shape: e.Shape}, nil
	}
	t, err := e.Read()
	if err == nil {
		err = r.sound(name, t)
	}
	if err != nil {
		return t, fault.Inputf("tensor %q: %w", e.Name, err)
	}
	if !positions {
		return t, nil
	}
	t, err = r.positions(t)
	if err != nil {
		return t, fmt.Errorf("tensor %q: %w", e.Name, err)
	}
	return t, nil
}

// sound refuses NaN, and infinities in a parameter; a mask may have them.
func (r *renamed) sound(name string, t tensorio.Tensor) error {
	if !t.DType.IsFloat() {
		return nil
	}
	s := torch.NewScope()
	defer s.Close()
	x := nn.FromStored(s, t)
	fit := x.IsFinite()
	if !r.state[name].Parameter {
		fit = x.Eq(x) // but for NaN
	}
	all, err := fit.All().Item()
	if err == nil && all == 0 {
		err = errors.New("it holds NaN or infinity: the training that wrote it had failed")
	}
	return err
}

// positions drops the entry of a distillation token that was left out, and
// resamples those of the places if the file has another number of them. What
// does not look like position embeddings of this network is returned as it is,
// for Load to refuse.
func (r *renamed) positions(t tensorio.Tensor) (tensorio.Tensor, error) {
	if !t.DType.IsFloat() {
		return t, nil
	}
	prefix, dropped := r.model.names.tokens, int64(0)
	if r.distilled {
		dropped = 1
	}
	s := torch.NewScope()
	defer s.Close()
	var result *torch.Tensor
	var err error
	torch.NoGrad(func() {
		x := nn.FromStored(s, t)
		places := x.Size(1) - prefix - dropped
		from, notSquare := squareGrid(places)
		to, _ := squareGrid(int64(r.shape(r.model.names.positions)[1]) - prefix)
		if notSquare != nil || from == to && dropped == 0 {
			return
		}
		if dropped > 0 { // [class, distillation, places…]
			x = torch.Cat([]*torch.Tensor{x.Narrow(1, 0, prefix), x.Narrow(1, prefix+dropped, places)}, 1)
		}
		if from != to && !slices.Contains(r.loaded.Resampled, r.model.names.positions) {
			r.loaded.Resampled = append(r.loaded.Resampled, r.model.names.positions)
		}
		result = resample(x, prefix, from, from, to, to)
	})
	if result == nil {
		return t, s.Err()
	}
	t, err = nn.ToStored(result)
	return t, err
}

// shape is that of the network's tensor; nil if it has none of that name.
func (r *renamed) shape(name string) []int {
	n, there := r.state[name]
	if !there {
		return nil
	}
	shape := []int{}
	for _, size := range n.Tensor.Shape() {
		shape = append(shape, int(size))
	}
	return shape
}

// Save writes the network's tensors to path, as .pth (which torch.load reads)
// or .safetensors. Without the head the file loads into torchvision's or timm's
// network, its classifier removed, with strict=True.
func (m *Model) Save(path string, head, overwrite bool) error {
	state := m.State()
	if !head {
		state = slices.DeleteFunc(state, func(n nn.Named) bool { return m.IsHead(n.Name) })
	}
	tensors, err := state.Snapshot()
	if err != nil {
		return err
	}
	return WriteWeights(path, tensors, overwrite)
}

// WriteWeights writes named tensors in the format that path's ending asks for.
func WriteWeights(path string, tensors []tensorio.Named, overwrite bool) error {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".pth", ".pt":
		return tensorio.Save(path, overwrite, func(w io.Writer) error { return tensorio.WriteTorch(w, tensors) })
	case ".safetensors":
		return tensorio.Save(path, overwrite, func(w io.Writer) error {
			return tensorio.WriteSafetensors(w, tensors, map[string]string{"format": "pt"})
		})
	default:
		return fault.Inputf("%s: weights are written as .pth, .pt or .safetensors, not as %q", path, ext)
	}
}
