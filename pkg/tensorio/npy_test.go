package tensorio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// TestWriteNPYAsNumPy rewrites what numpy.save wrote, byte for byte.
func TestWriteNPYAsNumPy(t *testing.T) {
	for _, name := range []string{
		"c_b1.npy", "c_u1.npy", "c_i1.npy", "c_u2.npy", "c_i2.npy", "c_u4.npy", "c_i4.npy", "c_u8.npy", "c_i8.npy",
		"c_f2.npy", "c_f4.npy", "c_f8.npy", "scalar.npy", "vector.npy", "empty.npy",
	} {
		want := readGolden(t, name)
		f, err := parse(name, want)
		if err != nil {
			t.Fatal(err)
		}
		x, err := f.Tensor(Single)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := WriteNPY(&got, x); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got.Bytes(), want)
		}
	}
	err := WriteNPY(&bytes.Buffer{}, Tensor{BFloat16, []int{0}, nil})
	faulttest.Refused(t, err, "bfloat16", ".safetensors")
}

func TestNPYWriterOfRows(t *testing.T) {
	path := t.TempDir() + "/e.npy"
	w, err := CreateNPY(path, Float32, []int{4}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Discard()
	x := Of([]float32{-6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5}, 3, 4) // c_f4.npy
	if err := w.Append(x.Rows(0, 2)); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(Of([]float32{1, 2, 3}, 1, 3)); err == nil {
		t.Error("a row of 3 joined rows of 4")
	}
	if err := w.Append(x.Rows(2, 3)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.mapping.data; !bytes.Equal(got, readGolden(t, "c_f4.npy")) {
		t.Errorf("%q", got)
	}
}

// npyFile is a version 1 file with the given header and elements.
func npyFile(header string, elements int) []byte {
	out := append([]byte("\x93NUMPY\x01\x00"), binary.LittleEndian.AppendUint16(nil, uint16(len(header)))...)
	return append(append(out, header...), make([]byte, elements)...)
}

func TestNPYHeaders(t *testing.T) {
	good := map[string]string{
		"as numpy.save": "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n",
		"other order":   "{'shape': (2, 3), 'descr': '<f4', 'fortran_order': True}",
		"double quotes": `{"descr":"<f4","fortran_order":False,"shape":(2,3)}`,
		"Python 2":      "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }",
		"native order":  "{'descr': '=f4', 'fortran_order': False, 'shape': (2, 3), }",
		"scalar":        "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", // 8 bytes
	}
	for name, header := range good {
		size := 24
		if name == "scalar" {
			size = 8
		}
		f, err := parse("a.npy", npyFile(header, size))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkPromises(t, f)
	}
	const rest = ", 'fortran_order': False, 'shape': (2, 3), }"
	for header, part := range map[string]string{
		"":                                       "'{' is missing",
		"{}":                                     `lacks "descr"`,
		"{'descr': '<f4'}":                       `lacks "fortran_order"`,
		"{'descr': '<c8'" + rest:                 `"<c8" cannot be read; convert with .astype`,
		"{'descr': '|O'" + rest:                  `"|O" cannot be read`,
		"{'descr': '<U3'" + rest:                 `"<U3" cannot be read`,
		"{'descr': '<<f4'" + rest:                `"<<f4" cannot be read`,
		"{'descr': [('a', '<f4')]" + rest:        "records",
		"{'descr': '<f4', 'descr': '<f4'" + rest: "twice",
		"{'descr': '<f4', 'other': 1" + rest:     `unknown key "other"`,
		"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2, 3), }":                                     "neither True nor False",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }":                                    `"-2" is not a size`,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3), }":                                   `"2.0" is not a size`,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }":                    "is not a size",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904), }": "beyond any memory",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 30), }":                        "beyond any memory",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }":                                     "24 bytes of elements where float32[2 4] needs 32",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }":                                     "8 bytes follow the array",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x":                                   "after the closing brace",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3":                                         "is missing",
		"{'descr': '<f4": "does not end",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 65) + ")}": "65 dimensions",
	} {
		_, err := parse("a.npy", npyFile(header, 24))
		faulttest.Refused(t, err, "a.npy: byte ", part)
	}
}

func TestNPYPreamble(t *testing.T) {
	for _, c := range []struct {
		data []byte
		part string
	}{
		{[]byte("\x93NUMPY\x04\x00\x10\x00"), "byte 6: format version 4"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "byte 8: a header of 4294967295 bytes"},
		{[]byte("\x93NUMPY\x01\x00\xff\xff{}"), "cut short"},
		{[]byte("\x93NUMPX\x01\x00"), "byte 0: begins with"},
	} {
		var err error
		if got := allocated(func() { _, err = parse("a.npy", c.data) }); got > 1<<20 {
			t.Errorf("%q: %d bytes allocated", c.data, got)
		}
		faulttest.Refused(t, err, "a.npy: ", c.part)
	}
}

// TestGigabytesAreMapped opens 8 GiB (a file of holes) and reads its last row.
func TestGigabytesAreMapped(t *testing.T) {
	const rows, width = 1 << 22, 512
	preamble, err := npyPreamble(Float32, []int{rows, width})
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, "big.npy", preamble)
	if err := os.Truncate(path, int64(len(preamble))+rows*width*4); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	got := allocated(func() {
		e, err := OpenEmbeddings(path)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		last, err := e.Rows(rows-1, rows).Float32s()
		if err != nil || len(last) != width || last[width-1] != 0 {
			t.Errorf("last row: %d numbers, %v", len(last), err)
		}
	})
	if got > 1<<20 {
		t.Errorf("%d bytes allocated for a mapped file", got)
	}
}

func FuzzNPY(f *testing.F) {
	for _, name := range []string{"c_f2.npy", "big_i8.npy", "fortran_3d.npy", "scalar.npy", "empty.npy", "version3.npy"} {
		f.Add(readGolden(f, name))
	}
	f.Add(npyFile("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2L,), }", 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseNPY(data)
		if err != nil {
			return
		}
		file.Path = "fuzz.npy"
		checkPromises(t, file)
		x, err := file.entries[0].Read()
		if err != nil {
			t.Fatalf("accepted, then: %v", err)
		}
		var again bytes.Buffer
		if err := WriteNPY(&again, x); err != nil {
			t.Fatal(err)
		}
		second, err := parseNPY(again.Bytes())
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		y, err := second.entries[0].Read()
		if err != nil || fmt.Sprint(x.DType, x.Shape) != fmt.Sprint(y.DType, y.Shape) || !bytes.Equal(x.Data, y.Data) {
			t.Fatalf("round trip: %v%v became %v%v, %v", x.DType, x.Shape, y.DType, y.Shape, err)
		}
	})
}
