package tensorio

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
)

// described is a tensor as testdata/make_goldens.py describes it.
type described struct {
	DType string
	Shape []int
	Bytes string
}

func golden(name string) string { return filepath.Join("testdata", "golden", name) }

func readGolden(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(golden(name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func expectations(t *testing.T) map[string]map[string]described {
	t.Helper()
	var all map[string]map[string]described
	if err := json.Unmarshal(readGolden(t, "expected.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGoldens reads every file that NumPy, safetensors and PyTorch wrote and
// compares each tensor's type, shape and bytes.
func TestGoldens(t *testing.T) {
	for name, tensors := range expectations(t) {
		t.Run(name, func(t *testing.T) {
			f, err := Open(golden(name))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for key, want := range tensors {
				if want.DType == "float8_e4m3fn" {
					continue // see TestTypesBeyondOurs
				}
				got, err := f.Tensor(key)
				if err != nil {
					t.Error(err)
					continue
				}
				if got.DType.String() != want.DType || !slices.Equal(got.Shape, want.Shape) || hex.EncodeToString(got.Data) != want.Bytes {
					t.Errorf("%q: got %v%v %x\nwant %s%v %s", key, got.DType, got.Shape, got.Data, want.DType, want.Shape, want.Bytes)
				}
			}
			for _, key := range f.Names() {
				if _, ok := tensors[key]; !ok && name != "complex.pth" {
					t.Errorf("the file has no tensor %q, the reader finds one", key)
				}
			}
		})
	}
}

func TestFormats(t *testing.T) {
	for name, want := range map[string]Format{
		"c_f4.npy": NPY, "every.safetensors": Safetensors, "every.pth": Torch, "script.pt": TorchScript, "trace.pt": TorchScript,
	} {
		f, err := Open(golden(name))
		if err != nil {
			t.Fatal(err)
		}
		if f.Format != want {
			t.Errorf("%s: format %s, want %s", name, f.Format, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTypesBeyondOurs(t *testing.T) {
	for name, typ := range map[string]string{"float8.safetensors": "F8_E4M3", "complex.pth": "ComplexFloat"} {
		f, err := Open(golden(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := f.Entries()[0].Type(); got != typ {
			t.Errorf("%s: type %s, want %s", name, got, typ)
		}
		_, err = f.Tensor("x")
		faulttest.Refused(t, err, name, `"x"`, typ, "convert the tensor to float32")
	}
}

// allocated is the memory that run asks for, in bytes.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// write puts a file into a temporary folder and returns its path.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTruncation cuts every golden at every byte: each gives an error, never
// a panic, and never a tensor.
func TestTruncation(t *testing.T) {
	for name := range expectations(t) {
		data := readGolden(t, name)
		for n := range len(data) {
			if f, err := parse(name, data[:n]); err == nil {
				t.Fatalf("%s: %d of its %d bytes were read as %v", name, n, len(data), f.Names())
			} else if !fault.IsInput(err) || !strings.HasPrefix(err.Error(), name+": ") {
				t.Fatalf("%s cut to %d bytes: %v", name, n, err)
			}
		}
	}
}

// TestDamage flips one bit in every byte of every golden: whatever the reader makes of
// it, what it returns keeps its own promises.
func TestDamage(t *testing.T) {
	for name := range expectations(t) {
		data := bytes.Clone(readGolden(t, name))
		for i := range data {
			flip := byte(1) << (i % 8)
			data[i] ^= flip
			if f, err := parse(name, data); err == nil {
				checkPromises(t, f)
			}
			data[i] ^= flip
		}
	}
}

// checkPromises reads every tensor of a file and checks its size.
func checkPromises(t testing.TB, f *File) {
	t.Helper()
	for _, e := range f.Entries() {
		x, err := e.Read()
		if err != nil {
			continue
		}
		if len(x.Data) != x.Len()*x.DType.Size() {
			t.Fatalf("%s: %q: %d bytes for %v%v", f.Path, e.Name, len(x.Data), x.DType, x.Shape)
		}
	}
}
