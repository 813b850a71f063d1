package tensorio

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"roadmap/pkg/fault"
	"roadmap/pkg/registry"
)

// Format is what kind of file tensors came from.
type Format string

// The formats that Open tells apart, by content, never by name alone.
const (
	NPY         Format = "npy"
	NPZ         Format = "npz" // a zip file of .npy, uncompressed
	Safetensors Format = "safetensors"
	Torch       Format = "torch"       // torch.save's zip file
	TorchScript Format = "torchscript" // torch.jit.save's zip file
)

// Single is the name of the only tensor of a file that does not name it:
// an .npy, or a .pth that is one bare tensor.
const Single = "tensor"

// Entry is one tensor of a file. Nested names are joined by dots
// ("state_dict.conv1.weight").
type Entry struct {
	Name string
	*Stored
}

// File is an open file of tensors. Close it when neither it nor any Tensor
// read from it is needed any more. It may be read from several goroutines.
type File struct {
	Path     string
	Format   Format
	Metadata map[string]string // of a .safetensors, without the digest; else nil
	Digest   string            // that a .safetensors of ours carries; "" if there is none
	Object   any               // of a .pth: the pickled object, see Unpickle; else nil

	entries []Entry
	byName  map[string]int
	whole   func() error // compares all of it with its checksums; nil: there are none
	pickled int          // bytes of a .pth's pickle
	mapping *mapping
}

// Open opens a file of tensors: .npy, .npz, .safetensors, what torch.save wrote,
// before PyTorch 1.6 too, or torch.jit.save. Its kind is told by its content.
func Open(path string) (*File, error) {
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(path, m.data)
	if err != nil {
		m.close() // the error that led here says more than a failing unmap would
		return nil, err
	}
	f.Path, f.mapping = path, m
	return f, nil
}

// parse tells the format of data and reads its directory of tensors.
func parse(path string, data []byte) (*File, error) {
	var f *File
	var err error
	switch {
	case len(data) == 0:
		err = damagedf("the file is empty; write or download it again")
	case bytes.HasPrefix(data, npyMagic):
		f, err = parseNPY(data)
		err = damaged(err)
	case bytes.HasPrefix(data, zipMagic):
		f, err = parseZip(data)
	case isLegacyTorch(data):
		f, err = parseLegacy(data)
	case looksLikeSafetensors(data) || strings.EqualFold(filepath.Ext(path), ".safetensors"):
		f, err = parseSafetensors(data)
		err = damaged(err)
	default:
		err = unknownContent(path, data)
	}
	if err != nil {
		return nil, fault.Inputf("%s: %w", path, err)
	}
	f.Path = path
	f.byName = make(map[string]int, len(f.entries))
	for i, e := range f.entries {
		if _, double := f.byName[e.Name]; double {
			return nil, fault.Inputf("%s: two tensors are called %q; rename one where the file is made", path, clip(e.Name))
		}
		f.byName[e.Name] = i
	}
	return f, nil
}

// unknownContent says what a file is that is none of ours, and the way out.
func unknownContent(path string, data []byte) error {
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case len(data) > 262 && string(data[257:262]) == "ustar":
		return fmt.Errorf("a tar file: torch.save wrote such before PyTorch 0.2; save it again with a newer one, or unpack it")
	case bytes.HasPrefix(data, []byte("\x89HDF")):
		return fmt.Errorf("an HDF5 file, which is not read; write its tensors with numpy.save or safetensors")
	case bytes.HasPrefix(data, []byte("\x1f\x8b")):
		return fmt.Errorf("neither .npy nor .safetensors nor a file of torch.save, but one packed with gzip: gunzip it")
	case ext == ".npy":
		return fmt.Errorf("byte 0: begins with %q, not with %q: not written by numpy.save, or damaged", clip(string(data[:min(6, len(data))])), npyMagic)
	case ext == ".pth" || ext == ".pt":
		return fmt.Errorf("byte 0: begins with %q, not with %q: neither torch.save nor torch.jit.save wrote this, or it was damaged on the way", clip(string(data[:min(4, len(data))])), zipMagic)
	}
	return fmt.Errorf("neither .npy nor .safetensors nor a zip file of torch.save (it begins with %q); write embeddings with numpy.save", clip(string(data[:min(8, len(data))])))
}

// clip shortens a name that a file brings along, for an error.
func clip(name string) string {
	const most = 80
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}

// only is the name of the tensor to read where one of that name is meant: of a
// file with a single tensor that nobody named, that one.
func (f *File) only(name string) string {
	if len(f.entries) == 1 && (f.entries[0].Name == Single || f.Format == NPZ) {
		return f.entries[0].Name
	}
	return name
}

// Close ends the mapping; every Tensor that shares it becomes invalid.
func (f *File) Close() error {
	if f.mapping == nil {
		return nil
	}
	m := f.mapping
	f.mapping, f.entries, f.byName, f.Object = nil, nil, nil, nil
	return m.close()
}

// Size is the file's length in bytes.
func (f *File) Size() int {
	if f.mapping == nil {
		return 0
	}
	return len(f.mapping.data)
}

// Verify compares the whole file with the checksums that it carries: the digest
// of a .safetensors of ours, the CRC-32 of each record of a zip file. What does
// not agree is ErrDamaged. A file without checksums passes.
func (f *File) Verify() error {
	if f.whole == nil {
		return nil
	}
	if err := f.whole(); err != nil {
		return fault.Inputf("%s: %w", f.Path, err)
	}
	return nil
}

// Entries lists the tensors in the file's order. The slice is the caller's.
func (f *File) Entries() []Entry { return slices.Clone(f.entries) }

// Names lists the tensors' names in the file's order.
func (f *File) Names() []string {
	names := make([]string, len(f.entries))
	for i, e := range f.entries {
		names[i] = e.Name
	}
	return names
}

// Has reports whether the file holds a tensor of that name.
func (f *File) Has(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// Tensor reads the tensor of that name: a view of the file where it lies there
// as a Tensor does, else a copy.
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.byName[name]
	if !ok {
		hint := ""
		if near, found := registry.Nearest(name, f.Names()); found {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return Tensor{}, fault.Inputf("%s: no tensor %q among %d%s", f.Path, name, len(f.entries), hint)
	}
	t, err := f.entries[i].Read()
	if err != nil {
		return Tensor{}, fault.Inputf("%s: tensor %q: %w", f.Path, clip(name), err)
	}
	return t, nil
}
