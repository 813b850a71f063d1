package tensorio

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestLabelFiles(t *testing.T) {
	numbers := []int64{7, -1, 7}
	for name, content := range map[string]string{
		"a.txt":            "7\n-1\n7\n",
		"no last line.txt": "7\n-1\n7",
		"blank end.txt":    "7\n-1\n7\n\n\n",
		"windows.txt":      "\xef\xbb\xbf7\r\n-1\r\n7\r\n",
		"savetxt.txt":      "7.000000000000000000e+00\n-1.000000000000000000e+00\n7.000000000000000000e+00\n",
		"a.csv":            "7\n-1\n7\n",
		"header.csv":       "label\n7\n-1\n7\n",
		"tabs.tsv":         "path\tlabel\na,b.png\t7\nc.png\t-1\nd.png\t7\n",
		"sorted.csv":       "row,path,label\n2,a,7\n1,b,-1\n0,c,7\n",
		"embed.csv":        "row,path,label,class,genus\n0,\"a,b.png\",7,x,p\n1,c.png,-1,y,q\n2,d.png,7,x,p\n",
	} {
		labels, err := ReadLabels(write(t, name, []byte(content)))
		if err != nil {
			t.Error(err)
			continue
		}
		if got, ok := labels.Numbers(); !ok || !slices.Equal(got, numbers) {
			t.Errorf("%s: %v, %v", name, got, ok)
		}
	}
	for name, content := range map[string]string{
		"words.txt": "cat\ndog\ncat\n",
		"words.csv": "label,row\ncat,0\ndog,1\ncat,2\n",
	} {
		labels, err := ReadLabels(write(t, name, []byte(content)))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, ok := labels.Numbers(); ok || labels.Len() != 3 || labels.Text(0) != "cat" || labels.Text(1) != "dog" {
			t.Errorf("%s: %v", name, labels)
		}
	}
}

func TestLabelArrays(t *testing.T) {
	dir := t.TempDir()
	for name, x := range map[string]Tensor{
		"int64.npy":   Of([]int64{math.MaxInt64, math.MinInt64}, 2),
		"uint8.npy":   Of([]uint8{0, 255}, 2),
		"column.npy":  Of([]int32{3, 4}, 2, 1),
		"whole.npy":   Of([]float32{3, -4}, 2),
		"boolean.npy": Of([]bool{true, false}, 2),
	} {
		path := filepath.Join(dir, name)
		if err := Save(path, false, func(w io.Writer) error { return WriteNPY(w, x) }); err != nil {
			t.Fatal(err)
		}
		labels, err := ReadLabels(path)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := x.Int64s()
		if x.DType == Float32 {
			want, err = []int64{3, -4}, nil
		}
		if got, ok := labels.Numbers(); err != nil || !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v (%v)", name, got, want, err)
		}
	}
	for name, c := range map[string]struct {
		x    Tensor
		part string
	}{
		"half.npy":   {Of([]float64{1, 2.5}, 2), "row 1 (from 0): the label 2.5 is not a whole number"},
		"nan.npy":    {Of([]float64{math.NaN()}, 1), "row 0 (from 0): the label NaN"},
		"far.npy":    {Of([]float64{1e300}, 1), "row 0 (from 0): the label 1e+300"},
		"huge.npy":   {Of([]uint64{math.MaxUint64}, 1), "beyond the range of int64"},
		"matrix.npy": {Of([]int64{1, 2, 3, 4}, 2, 2), "have the shape [2 2]"},
		"scalar.npy": {Of([]int64{1}), "have the shape []"},
	} {
		path := filepath.Join(dir, name)
		if err := Save(path, false, func(w io.Writer) error { return WriteNPY(w, c.x) }); err != nil {
			t.Fatal(err)
		}
		_, err := ReadLabels(path)
		faulttest.Refused(t, err, path, c.part)
	}
	labels, err := ReadLabels(golden("embeddings.safetensors"))
	if got, _ := labels.Numbers(); err != nil || !slices.Equal(got, []int64{7, -1, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	_, err = ReadLabels(golden("every.safetensors"))
	faulttest.Refused(t, err, `no tensor "labels"`)
}

func TestBadLabelFiles(t *testing.T) {
	for name, c := range map[string]struct{ content, part string }{
		"empty.txt":     {"", "the file is empty"},
		"blank.csv":     {" \n\n", "the file is empty"},
		"gap.txt":       {"1\n\n2\n", ":2: a blank line"},
		"fraction.txt":  {"1.0\n2.5\n", "row 1 (from 0): the label 2.5 is not a whole number"},
		"utf16.txt":     {"1\x00\n\x00", "not UTF-8"},
		"latin.txt":     {"a\ncaf\xe9\n", `:2: "caf\xe9" is not UTF-8 text`},
		"wide.csv":      {"1,2\n3,4\n", "2 columns and no header"},
		"header.csv":    {"label,path\n", "a header without rows"},
		"ragged.csv":    {"label,path\n1,a\n2\n", "line 3"},
		"quote.csv":     {"label\n\"1\n", "line"},
		"nolabel.csv":   {"label,path\n1,a\n,b\n", "row 1 (from 0) has no label"},
		"labels.tar.gz": {"\x1f\x8b", "neither .npy nor"},
	} {
		path := write(t, name, []byte(c.content))
		_, err := ReadLabels(path)
		faulttest.Refused(t, err, path, c.part)
	}
	_, err := ReadLabels(filepath.Join(t.TempDir(), "missing.npy"))
	faulttest.Refused(t, err, "missing.npy", "no such file")
	_, err = ReadLabels(t.TempDir())
	faulttest.Refused(t, err, "not a regular file")
}

func TestTable(t *testing.T) {
	table, err := ReadTable(write(t, "e.csv", []byte("row,path,label,class,genus\n0,a.png,7,x,p\n1,c.png,8,y,p\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got := table.Levels(); !slices.Equal(got, []string{"label", "genus"}) {
		t.Errorf("levels %v", got)
	}
	genus, err := table.Labels("genus")
	if err != nil || genus.Text(1) != "p" {
		t.Errorf("%v, %v", genus, err)
	}
	paths, err := table.Column("path")
	if err != nil || !slices.Equal(paths, []string{"a.png", "c.png"}) {
		t.Errorf("%v, %v", paths, err)
	}
	_, err = table.Labels("genius")
	faulttest.Refused(t, err, "e.csv", `did you mean "genus"?`, "row, path, label, class, genus")
	bare, err := ReadTable(write(t, "bare.csv", []byte("1\n2\n")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = bare.Labels("genus")
	faulttest.Refused(t, err, "bare.csv", "has no header", "one of them genus")
	// A column that is asked for makes a header without `label`.
	listed, err := ReadTable(write(t, "paths.csv", []byte("path\na.png\nc.png\n")), "path")
	if err != nil {
		t.Fatal(err)
	}
	paths, err = listed.Column("path")
	if err != nil || !slices.Equal(paths, []string{"a.png", "c.png"}) {
		t.Errorf("%v, %v", paths, err)
	}
}

func TestTextLabels(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  []int64 // nil: they stay words
	}{
		{[]string{"1", "-2", "9223372036854775807"}, []int64{1, -2, math.MaxInt64}},
		{[]string{"9223372036854775808", "1"}, nil}, // beyond int64, and not a float's notation
		{[]string{"007", "7"}, nil},
		{[]string{"+7"}, nil},
		{[]string{"1.0", "2e3"}, []int64{1, 2000}},
		{[]string{"1.0", "x"}, nil},
		{[]string{"1.0", "2"}, nil}, // mixed: no program prints so
		{[]string{"0x1p3"}, nil},
		{[]string{"NaN", "Inf"}, nil},
		{[]string{"1e", "e1"}, nil},
	} {
		labels, err := TextLabels(c.words)
		got, isNumbers := labels.Numbers()
		if err != nil || isNumbers != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v; want %v", c.words, got, err, c.want)
		}
	}
	_, err := TextLabels([]string{"1.0", "0.5"})
	faulttest.Refused(t, err, "row 1 (from 0)", "0.5")
}

func TestNumber(t *testing.T) {
	classes, names := Number(NumberLabels([]int64{30, -5, 30}), NumberLabels([]int64{9, -5}))
	if !slices.Equal(classes[0], []int64{2, 0, 2}) || !slices.Equal(classes[1], []int64{1, 0}) || !slices.Equal(names, []string{"-5", "9", "30"}) {
		t.Errorf("%v %v", classes, names)
	}
	words, err := TextLabels([]string{"b", "10"})
	if err != nil {
		t.Fatal(err)
	}
	classes, names = Number(NumberLabels([]int64{10, 9}), words) // "10" < "9" < "b"
	if !slices.Equal(classes[0], []int64{0, 1}) || !slices.Equal(classes[1], []int64{2, 0}) || strings.Join(names, " ") != "10 9 b" {
		t.Errorf("%v %v", classes, names)
	}
}

func TestEmbeddings(t *testing.T) {
	e, err := OpenEmbeddings(golden("embeddings.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	labels, err := e.Labels()
	if err != nil || labels.Len() != 3 || !slices.Equal(e.Shape, []int{3, 4}) || e.DType != Float16 {
		t.Errorf("%v%v with labels %v, %v", e.DType, e.Shape, labels, err)
	}
	for _, name := range []string{"c_f2.npy", "big_f8.npy", "fortran_2d.npy"} {
		e, err := OpenEmbeddings(golden(name))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if labels, err := e.Labels(); labels != nil || err != nil || !slices.Equal(e.Shape, []int{3, 4}) {
			t.Errorf("%s: %v with labels %v, %v", name, e.Shape, labels, err)
		}
	}
	for name, part := range map[string]string{
		"c_i8.npy":          "holds int64; embeddings are floating-point",
		"scalar.npy":        "has the shape []",
		"empty.npy":         "has the shape [0 4], so no embeddings",
		"every.safetensors": `no tensor "embeddings"`,
	} {
		_, err := OpenEmbeddings(golden(name))
		faulttest.Refused(t, err, name, part)
	}
	path := filepath.Join(t.TempDir(), "e.safetensors")
	tensors := []Named{{"embeddings", Of([]float32{1, 2}, 2, 1)}, {"labels", Of([]int64{1}, 1)}}
	if err := Save(path, false, func(w io.Writer) error { return WriteSafetensors(w, tensors, nil) }); err != nil {
		t.Fatal(err)
	}
	if e, err = OpenEmbeddings(path); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Labels()
	faulttest.Refused(t, err, path, "1 labels for 2 embeddings")
}

// TestPyTorchEmbeddings: a bare tensor, and a dict with labels.
func TestPyTorchEmbeddings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.pth")
	tensors := []Named{{"embeddings", Of([]float32{1, 2}, 2, 1)}, {"labels", Of([]int64{5, 6}, 2)}}
	if err := Save(path, false, func(w io.Writer) error { return WriteTorch(w, tensors) }); err != nil {
		t.Fatal(err)
	}
	e, err := OpenEmbeddings(path)
	if err != nil {
		t.Fatal(err)
	}
	labels, err := e.Labels()
	if err != nil || labels.Text(1) != "6" {
		t.Errorf("labels %v, %v", labels, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if labels.Text(0) != "5" {
		t.Error("the labels went with the mapping")
	}
}

func FuzzLabels(f *testing.F) {
	for _, s := range []string{"7\n-1\n", "label,path\n1,\"a\nb\"\n", "1.0\n2.0\n", "cat\n\ndog", "\xef\xbb\xbfx\r\n"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, table bool) {
		name := "l.txt"
		if table {
			name = "l.csv"
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		labels, err := ReadLabels(path)
		if err != nil {
			faulttest.Refused(t, err, path)
			return
		}
		if labels.Len() == 0 {
			t.Fatal("no labels and no error")
		}
		classes, names := Number(labels)
		for i, c := range classes[0] {
			if names[c] != labels.Text(i) {
				t.Fatalf("row %d: %q became %q", i, labels.Text(i), names[c])
			}
		}
	})
}

// TestRowsKnowTheirPlace: a table that a spreadsheet sorted by path belongs to
// its embeddings all the same.
func TestRowsKnowTheirPlace(t *testing.T) {
	table, err := ReadTable(write(t, "e.csv", []byte("row,path,label,genus\n2,a.png,5,x\n0,b.png,6,y\n3,\"c\n.png\",7,x\n1,d.png,8,z\n")))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"row": {"0", "1", "2", "3"}, "path": {"b.png", "d.png", "a.png", "c\n.png"}, "label": {"6", "8", "5", "7"}, "genus": {"y", "z", "x", "x"},
	} {
		if got, err := table.Column(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for content, part := range map[string]string{
		"row,label\n0,1\n2,1\n":                 `:3: row is "2"; of 2 embeddings the rows are 0 to 1`,
		"row,label\n1,1\n2,1\n":                 `:3: row is "2"`,
		"row,label\n0,1\n0,1\n":                 ":3: row is 0, as in line 2",
		"row,label\n-1,1\n0,1\n":                `:2: row is "-1"`,
		"row,label\n,1\n0,1\n":                  `:2: row is ""`,
		"label,row\n\"a\nb\",0\nc,1\nd,front\n": `:5: row is "front"`,
	} {
		_, err := ReadTable(write(t, "e.csv", []byte(content)))
		faulttest.Refused(t, err, "e.csv"+part)
	}
	if _, err := ReadTable(write(t, "e.csv", []byte("a\nb\n"))); err != nil {
		t.Errorf("without a header: %v", err)
	}
}
