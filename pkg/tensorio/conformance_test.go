package tensorio

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// python finds an interpreter with NumPy, safetensors and PyTorch: the one
// that ROADMAP_PYTHON names, or that of .venv at the project's root.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ROADMAP_PYTHON")
	if path == "" {
		path = filepath.Join("..", "..", ".venv", "bin", "python")
	}
	if err := exec.Command(path, "-c", "import numpy, safetensors, torch").Run(); err != nil {
		t.Skipf("%s has no numpy, safetensors and torch (%v); name a Python that has in ROADMAP_PYTHON", path, err)
	}
	return path
}

// conformanceTensors are the tensors that testdata/conformance.py expects.
func conformanceTensors() []Named {
	const n = 24
	var (
		bools   [n]bool
		bytes   [n]uint8
		int8s   [n]int8
		int16s  [n]int16
		int32s  [n]int32
		int64s  [n]int64
		floats  [n]float32
		doubles [n]float64
		halves  [n]uint16
		brains  [n]uint16
	)
	for i := range n {
		bools[i], bytes[i], int8s[i], int16s[i] = i%3 == 0, uint8(i), int8(i-12), int16(i*1000-12000)
		int32s[i], int64s[i] = int32(i*100_000_000-1_200_000_000), int64(i-12)<<58
		floats[i], doubles[i] = float32(i-12)/8, float64(i-12)/1024
		halves[i], brains[i] = halfOf(floats[i]), brainOf(floats[i])
	}
	flat := []Tensor{
		Of(bools[:], n), Of(bytes[:], n), Of(int8s[:], n), Of(int16s[:], n), Of(int32s[:], n), Of(int64s[:], n),
		Of(floats[:], n), Of(doubles[:], n), {Float16, []int{n}, Of(halves[:], n).Data}, {BFloat16, []int{n}, Of(brains[:], n).Data},
	}
	tensors := []Named{
		{"scalar", Of([]float32{0.125})}, {"empty", Of([]float32{}, 0, 3)}, {"näme \"x\"\n", Of([]float32{1}, 1)},
	}
	for _, x := range flat {
		for _, shape := range [][]int{{24}, {2, 3, 4}, {1, 24, 1, 1}} {
			form := strings.ReplaceAll(strings.Trim(fmt.Sprint(shape), "[]"), " ", "x")
			tensors = append(tensors, Named{x.DType.String() + "/" + form, Tensor{x.DType, shape, x.Data}})
		}
	}
	slices.SortFunc(tensors, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return tensors
}

// halfOf finds the float16 equal to x, which has one.
func halfOf(x float32) uint16 {
	for bits := range 1 << 16 {
		if halfToFloat(uint16(bits)) == x {
			return uint16(bits)
		}
	}
	panic("not a float16")
}

// brainOf finds the bfloat16 equal to x, which has one.
func brainOf(x float32) uint16 {
	for bits := range 1 << 16 {
		if brainToFloat(uint16(bits)) == x {
			return uint16(bits)
		}
	}
	panic("not a bfloat16")
}

// TestConformance writes every type in every format; NumPy, safetensors and
// PyTorch load the files and find the same numbers.
func TestConformance(t *testing.T) {
	interpreter := python(t)
	dir := t.TempDir()
	save := func(name string, fill func(io.Writer) error) {
		t.Helper()
		if err := Save(filepath.Join(dir, name), false, fill); err != nil {
			t.Fatal(err)
		}
	}
	tensors := conformanceTensors()
	save("all.pth", func(w io.Writer) error { return WriteTorch(w, tensors) })
	metadata := map[string]string{"made by": "a test", "é": "\u2028"}
	save("all.safetensors", func(w io.Writer) error { return WriteSafetensors(w, tensors, metadata) })
	for i, x := range tensors {
		if x.DType != BFloat16 {
			save(fmt.Sprintf("%d.npy", i), func(w io.Writer) error { return WriteNPY(w, x.Tensor) })
		}
	}
	weight := make([]float32, 18)
	for i := range weight {
		weight[i] = float32(i)
	}
	pair := []float32{1, 2}
	net := []Named{
		{"0.weight", Of(weight, 2, 1, 3, 3)}, {"0.bias", Of(pair, 2)}, {"1.weight", Of(pair, 2)}, {"1.bias", Of(pair, 2)},
		{"1.running_mean", Of(pair, 2)}, {"1.running_var", Of(pair, 2)}, {"1.num_batches_tracked", Of([]int64{7})},
	}
	save("net.pth", func(w io.Writer) error { return WriteTorch(w, net) })
	save("net.safetensors", func(w io.Writer) error { return WriteSafetensors(w, net, nil) })
	out, err := exec.Command(interpreter, filepath.Join("testdata", "conformance.py"), dir).CombinedOutput()
	if want := fmt.Sprintf("%d tensors agree\n", len(tensors)); err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}
