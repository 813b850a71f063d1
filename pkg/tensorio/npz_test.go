package tensorio

import (
	"archive/zip"
	"bytes"
	"errors"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// npzOf packs .npy files as numpy.savez does: uncompressed, in no folder.
func npzOf(t testing.TB, method uint16, arrays ...Named) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, a := range arrays {
		w, err := z.CreateHeader(&zip.FileHeader{Name: a.Name + ".npy", Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteNPY(w, a.Tensor); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestNPZ(t *testing.T) {
	rows, numbers := Of([]float32{1, 2, 3, 4}, 2, 2), Of([]int64{7, 8}, 2)
	data := npzOf(t, zip.Store, Named{"embeddings", rows}, Named{"labels", numbers})
	f, err := parse("a.npz", data)
	if err != nil || f.Format != NPZ || !slices.Equal(f.Names(), []string{"embeddings", "labels"}) || f.Verify() != nil {
		t.Fatalf("%v, %v", f, err)
	}
	e, err := OpenEmbeddings(write(t, "a.npz", data))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	labels, err := e.Labels()
	if err != nil || !bytes.Equal(e.Data, rows.Data) || labels == nil || labels.Len() != 2 || labels.Text(1) != "8" {
		t.Errorf("%v, %v, %v", e.Data, labels, err)
	}
	// A lone array is meant, whatever numpy.savez called it.
	alone := write(t, "b.npz", npzOf(t, zip.Store, Named{"arr_0", numbers}))
	if labels, err := ReadLabels(alone); err != nil || labels.Text(0) != "7" {
		t.Errorf("%v, %v", labels, err)
	}
	_, err = parse("a.npz", npzOf(t, zip.Deflate, Named{"x", rows}))
	faulttest.Refused(t, err, `a.npz: array "x.npy" is compressed`, "numpy.savez, not savez_compressed")
	_, err = parse("a.npz", npzOf(t, zip.Store, Named{"x", rows}, Named{"x", rows}))
	faulttest.Refused(t, err, `two tensors are called "x"`)
	at := bytes.Index(data, rows.Data)
	data[at] ^= 1
	if f, err = parse("a.npz", data); err != nil {
		t.Fatal(err)
	}
	_, err = f.Tensor("embeddings")
	faulttest.Refused(t, err, `a.npz: tensor "embeddings": record "embeddings.npy" is not what was written`)
	if _, whole := f.Tensor("labels"); whole != nil || !errors.Is(f.Verify(), ErrDamaged) {
		t.Errorf("%v, %v", whole, f.Verify())
	}
}

func FuzzNPZ(f *testing.F) {
	f.Add(npzOf(f, zip.Store, Named{"embeddings", Of([]float32{1, 2}, 2, 1)}, Named{"labels", Of([]int64{7, 8}, 2)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if file, err := parseZip(data); err == nil {
			checkPromises(t, file)
		}
	})
}
