package tensorio

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// trained is a file like those of a run: a few tensors of several types, and
// metadata.
func trained(t testing.TB) (data []byte, tensors []Named, metadata map[string]string) {
	t.Helper()
	weights := make([]float32, 300)
	for i := range weights {
		weights[i] = float32(i) / 7
	}
	tensors = []Named{
		{"conv.weight", Of(weights, 3, 4, 5, 5)}, {"steps", Of([]int64{7})}, {"none", Of([]float32{}, 0, 3)}, {"mask", Of([]bool{true, false}, 2)},
	}
	metadata = map[string]string{"kind": "weights", "step": "40"}
	var out bytes.Buffer
	if err := WriteSafetensors(&out, tensors, metadata); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), tensors, metadata
}

// same reports whether the file holds these tensors and metadata.
func same(f *File, tensors []Named, metadata map[string]string) bool {
	if !maps.Equal(f.Metadata, metadata) || len(f.Names()) != len(tensors) {
		return false
	}
	for _, want := range tensors {
		got, err := f.Tensor(want.Name)
		if err != nil || got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
			return false
		}
	}
	return true
}

// TestEveryBitIsNoticed flips each bit of a file in turn: it is an error to
// open it, or to read any tensor of it. A bit of the digest's own name makes the
// file one of another program, whose tensors are whole.
func TestEveryBitIsNoticed(t *testing.T) {
	data, tensors, metadata := trained(t)
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		f, err := parse("a.safetensors", data)
		if err == nil {
			err = f.Verify()
			var read error
			for _, name := range f.Names() {
				_, one := f.Tensor(name)
				read = cmp.Or(read, one)
			}
			if (read == nil) != (err == nil) {
				t.Fatalf("bit %d: Verify says %v, the tensors %v", bit, err, read)
			}
		}
		if err == nil && f.Digest == "" {
			maps.DeleteFunc(f.Metadata, func(_, value string) bool { return strings.HasPrefix(value, digestPrefix) })
		}
		switch {
		case err == nil && !same(f, tensors, metadata):
			t.Fatalf("bit %d of byte %d is not noticed", bit%8, bit/8)
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Fatalf("bit %d of byte %d: %v is not ErrDamaged", bit%8, bit/8, err)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

func TestDigest(t *testing.T) {
	data, tensors, metadata := trained(t)
	f, err := parse("a.safetensors", data)
	if err != nil || f.Verify() != nil || !same(f, tensors, metadata) {
		t.Fatalf("%v, %v", f, err)
	}
	if !strings.HasPrefix(f.Digest, digestPrefix) || len(f.Digest) != len(digestPrefix)+16*(1+len(tensors)) {
		t.Errorf("digest %q", f.Digest)
	}
	// The order of the tensors does not matter; the digest of another file is
	// not kept.
	slices.Reverse(tensors)
	var again bytes.Buffer
	if err := WriteSafetensors(&again, tensors, map[string]string{"step": "40", "kind": "weights", digestKey: "xxh3:00"}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), data) {
		t.Error("the same tensors gave other bytes")
	}
	spelled := bytes.Replace(data, []byte(`"kind":"weights"`), []byte(`"kind":"wei\u0067hts"`), 1)
	binary.LittleEndian.PutUint64(spelled, binary.LittleEndian.Uint64(spelled)+5)
	if f, err := parse("a.safetensors", spelled); err != nil || f.Verify() != nil || f.Digest == "" {
		t.Errorf("the same metadata, spelled another way: %v", err)
	}
	// Each of these is another file, with another digest.
	digests := map[string]string{f.Digest: "as it is"}
	for name, change := range map[string]func(x []Named, m map[string]string){
		"name":            func(x []Named, _ map[string]string) { x[0].Name = "other" },
		"shape":           func(x []Named, _ map[string]string) { x[3].Shape = []int{4, 3, 5, 5} },
		"type":            func(x []Named, _ map[string]string) { x[0].DType = Uint8 },
		"element":         func(x []Named, _ map[string]string) { x[2].Tensor = Of([]int64{8}) },
		"empty tensor":    func(x []Named, _ map[string]string) { x[1].Shape = []int{3, 0} },
		"metadata":        func(_ []Named, m map[string]string) { m["step"] = "41" },
		"more metadata":   func(_ []Named, m map[string]string) { m["x"] = "" },
		"order of names":  func(x []Named, _ map[string]string) { x[0].Tensor, x[2].Tensor = x[2].Tensor, x[0].Tensor },
		"end of a word":   func(_ []Named, m map[string]string) { delete(m, "kind"); m["kindw"] = "eights" },
		"lacking a datum": func(_ []Named, m map[string]string) { delete(m, "kind") },
	} {
		x, m := slices.Clone(tensors), maps.Clone(metadata)
		change(x, m)
		var out bytes.Buffer
		if err := WriteSafetensors(&out, x, m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		other, err := parse("a.safetensors", out.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if twin := digests[other.Digest]; twin != "" {
			t.Errorf("%s: the digest is that of the file %s", name, twin)
		}
		digests[other.Digest] = "with another " + name
	}
}

// TestUnknownDigest: a digest of a kind that is not known cannot be passed over.
func TestUnknownDigest(t *testing.T) {
	f, err := parse("a.safetensors", safetensorsFile(`{"__metadata__":{"roadmap.digest":"md5:0"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Tensor("x")
	faulttest.Refused(t, err, `a.safetensors: tensor "x": its digest`, `none of 1 tensors: "md5:0"`)
	if err := f.Verify(); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v is not ErrDamaged", err)
	}
}

// TestEmbeddingsAreChecked: the doors that evaluation comes in by.
func TestEmbeddingsAreChecked(t *testing.T) {
	tensors := []Named{{EmbeddingsName, Of([]float32{1, 2, 3, 4}, 2, 2)}, {LabelsName, Of([]int64{0, 1}, 2)}}
	path := filepath.Join(t.TempDir(), "e.safetensors")
	if err := Save(path, false, func(w io.Writer) error { return WriteSafetensors(w, tensors, nil) }); err != nil {
		t.Fatal(err)
	}
	e, err := OpenEmbeddings(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := WriteSafetensors(&out, tensors, nil); err != nil {
		t.Fatal(err)
	}
	data := out.Bytes()
	data[len(data)-1] ^= 1 // of the last embedding: the labels, being wider, come first
	path = write(t, "e.safetensors", data)
	_, err = OpenEmbeddings(path)
	faulttest.Refused(t, err, path, "the elements are not those that were written")
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%v is not ErrDamaged", err)
	}
	if labels, err := ReadLabels(path); err != nil || labels.Len() != 2 {
		t.Errorf("labels, which are whole: %v, %v", labels, err)
	}
}

// TestZipChecksums flips a bit in each record of PyTorch's files in turn: a
// tensor whose bytes they are is refused, other tensors are read.
func TestZipChecksums(t *testing.T) {
	for _, name := range []string{"every.pth", "script.pt"} {
		data := bytes.Clone(readGolden(t, name))
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range z.File {
			at, err := record.DataOffset()
			if err != nil {
				t.Fatal(err)
			}
			if record.Method != zip.Store || record.UncompressedSize64 == 0 {
				continue
			}
			data[at] ^= 1
			f, err := parse(name, data)
			refused := 0
			if err == nil {
				for _, e := range f.Entries() {
					if _, one := e.Read(); one != nil {
						refused++
						err = one
					}
				}
				if f.Verify() == nil {
					t.Errorf("%s: %s is not noticed by Verify", name, record.Name)
				}
			}
			tensor := strings.Contains(record.Name, "/data/")
			if tensor && refused != 1 || strings.HasSuffix(record.Name, "/data.pkl") && err == nil || err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: with %s damaged, %d tensors are refused, %v", name, record.Name, refused, err)
			}
			data[at] ^= 1
		}
	}
}

// TestNoChecksum: torch.save writes 0 where it is told not to compute one.
func TestNoChecksum(t *testing.T) {
	data := bytes.Clone(readGolden(t, "bare.pth"))
	for magic, crc := range map[string]int{"PK\x01\x02": 16, "PK\x03\x04": 14} {
		for at := bytes.Index(data, []byte(magic)); at >= 0; {
			copy(data[at+crc:], "\x00\x00\x00\x00")
			next := bytes.Index(data[at+4:], []byte(magic))
			if next < 0 {
				break
			}
			at += 4 + next
		}
	}
	f, err := parse("bare.pth", data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor(Single); err != nil || f.Verify() != nil {
		t.Errorf("%v", err)
	}
}

// BenchmarkLoad is what the digest costs: a network's weights, 102 MB in 160
// tensors as a ResNet-50's, copied out of the mapped file.
func BenchmarkLoad(b *testing.B) {
	const tensors, size = 160, 160_000
	var all []Named
	for i := range tensors {
		all = append(all, Named{fmt.Sprint("layer", i), Of(make([]float32, size), size)})
	}
	for _, digested := range []bool{true, false} {
		path := filepath.Join(b.TempDir(), "w.safetensors")
		if err := Save(path, false, func(w io.Writer) error { return writeSafetensors(w, all, nil, digested) }); err != nil {
			b.Fatal(err)
		}
		into := make([]float32, size)
		b.Run(fmt.Sprintf("digest=%v", digested), func(b *testing.B) {
			b.SetBytes(4 * tensors * size)
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				for _, name := range f.Names() {
					t, err := f.Tensor(name)
					if err != nil {
						b.Fatal(err)
					}
					if err := t.CopyFloat32s(into); err != nil {
						b.Fatal(err)
					}
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
