package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/losses"
	"roadmap/pkg/tensorio"
)

// saveNPY writes a matrix or vector to a file of the test's folder.
func saveNPY[E tensorio.Element](t *testing.T, name string, data []E, shape ...int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := tensorio.WriteNPY(file, tensorio.Of(data, shape...)); err != nil {
		t.Fatal(err)
	}
	return path
}

func readNPY(t *testing.T, path string) tensorio.Tensor {
	t.Helper()
	file, err := tensorio.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	tensor, err := file.Tensor(tensorio.Single)
	if err != nil {
		t.Fatal(err)
	}
	tensor.Data = append([]byte(nil), tensor.Data...)
	return tensor
}

// Two classes at right angles but for one stray row: cosines and losses are
// simple fractions.
func TestLossVerb(t *testing.T) {
	embeddings := saveNPY(t, "E.npy", []float64{2, 0, 3, 0, 0, 1, 0, 5, 1, 0}, 5, 2)
	labels := saveNPY(t, "L.npy", []int64{1, 1, 2, 2, 2}, 5)
	grad := filepath.Join(t.TempDir(), "G.npy")
	out, _, code := roadmap(t, "loss", "ap", "--embeddings", embeddings, "--labels", labels, "--json")
	var r lossResult
	if code != 0 || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("code %d, output %q", code, out)
	}
	// Row 0 (and row 1): its positive scores 1 and so does the stray: 1/2. Row 2
	// (and 3): one positive at 1, then the stray at 0, tied with two negatives:
	// (1 + 2/4)/2. The stray: two positives at 0 tied, two negatives at 1: 2/4.
	want := 1 - (2*0.5+2*(1+2./4)/2+2./4)/5
	if math.Abs(r.Value-want) > 1e-15 || r.Queries != 5 || r.Lone != 0 || r.Positives != 8 || r.Loss != "ap" {
		t.Errorf("%+v, want value %.17g", r, want)
	}
	if r.Seconds <= 0 || r.PeakBytes < 0 || r.Parameters["self"] != "exclude" {
		t.Errorf("%+v: seconds, peak or parameters are missing", r)
	}

	if _, stderr, code := roadmap(t, "loss", "smoothap", "--set", "tau=0.1", "--embeddings", embeddings, "--labels", labels, "--grad", grad); code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	g := readNPY(t, grad)
	if g.DType != tensorio.Float64 || g.Shape[0] != 5 || g.Shape[1] != 2 {
		t.Errorf("gradient is %v %v, want float64 [5 2]", g.DType, g.Shape)
	}
	rows, err := g.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	if rows[0] != 0 || rows[1] == 0 { // lengths do not matter, so nothing along the row
		t.Errorf("gradient of row 0 is %v, want it across the row", rows[:2])
	}
	if _, stderr, code := roadmap(t, "loss", "smoothap", "--embeddings", embeddings, "--labels", labels, "--grad", grad); code != 2 || !strings.Contains(stderr, "G.npy") {
		t.Errorf("an existing file: code %d, %q", code, stderr)
	}
}

func TestLossVerbWithGallery(t *testing.T) {
	query := saveNPY(t, "Q.npy", []float32{1, 0, 0, 1}, 2, 2)
	gallery := saveNPY(t, "G.npy", []float32{1, 1, 1, 0, 0, 1}, 3, 2)
	dir := t.TempDir()
	queryLabels, galleryLabels := filepath.Join(dir, "q.txt"), filepath.Join(dir, "g.csv")
	for path, text := range map[string]string{queryLabels: "cat\ndog\n", galleryLabels: "path,label\na,cat\nb,dog\nc,mouse\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	grad := filepath.Join(dir, "grad.npy")
	out, stderr, code := roadmap(t, "loss", "calibration", "--embeddings", query, "--labels", queryLabels, "--gallery", gallery, "--gallery-labels", galleryLabels,
		"--dtype", "float64", "--grad-gallery", grad, "--json")
	var r lossResult
	if code != 0 || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("code %d, output %q, %s", code, out, stderr)
	}
	s := math.Sqrt(0.5)
	// The cat: 0.9 − √½ short; negatives 1 (0.4 over) and 0. The dog: 0.9 short
	// of 0; negatives √½ and 1.
	want := ((0.9 - s) + 0.4/2 + 0.9 + (s-0.6+0.4)/2) / 2
	if math.Abs(r.Value-want) > 1e-12 {
		t.Errorf("value = %.15f, want %.15f", r.Value, want)
	}
	if g := readNPY(t, grad); g.DType != tensorio.Float64 || g.Shape[0] != 3 {
		t.Errorf("gradient of the gallery is %v %v", g.DType, g.Shape)
	}
}

func TestLossVerbOnScores(t *testing.T) {
	scores := saveNPY(t, "S.npy", []float64{0.9, 0.5, 0.5, 0.1, 0.2, 0.3}, 2, 3)
	relevance := saveNPY(t, "Y.npy", []uint8{1, 0, 1, 0, 0, 0}, 2, 3)
	for _, c := range []struct {
		flatten string
		want    float64
		lone    int
	}{
		{"false", 1 - (1+2./3)/2, 1}, // 0.5 ties with the negative 0.5
		{"true", 1 - (1+2./3)/2, 0},
	} {
		out, stderr, code := roadmap(t, "loss", "ap", "--scores", scores, "--relevance", relevance, "--set", "flatten="+c.flatten, "--json")
		var r lossResult
		if code != 0 || json.Unmarshal([]byte(out), &r) != nil {
			t.Fatalf("code %d, output %q, %s", code, out, stderr)
		}
		if math.Abs(r.Value-c.want) > 1e-15 || r.Lone != c.lone {
			t.Errorf("flatten=%s: %+v, want %.17g with %d lone", c.flatten, r, c.want, c.lone)
		}
	}
}

func TestLossVerbLists(t *testing.T) {
	out, _, code := roadmap(t, "loss", "--list", "--json")
	var listed struct {
		Losses []listedLoss `json:"losses"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &listed) != nil {
		t.Fatalf("code %d, output %q", code, out)
	}
	if len(listed.Losses) != len(losses.Names()) {
		t.Errorf("%d losses are listed, there are %d", len(listed.Losses), len(losses.Names()))
	}
	for _, l := range listed.Losses {
		if !strings.Contains(l.Source, ", eq. ") && !strings.Contains(l.Source, "published program") || l.Parameters["self"] == nil {
			t.Errorf("%+v: paper, equation or parameters are missing", l)
		}
	}
	text, _, code := roadmap(t, "loss", "--list")
	if code != 0 || !strings.Contains(text, "supap\n    ROADMAP (Ramzi et al., NeurIPS 2021), eq. 3-5\n") || !strings.Contains(text, "tau=0.01") {
		t.Errorf("code %d, list %q", code, text)
	}
}

func TestLossVerbRefuses(t *testing.T) {
	embeddings := saveNPY(t, "E.npy", []float32{1, 0, 0, 0, 1, 1}, 3, 2)
	labels := saveNPY(t, "L.npy", []int64{1, 1, 2}, 3)
	halves := saveNPY(t, "H.npy", []float32{1, 1.5, 2}, 3)
	few := saveNPY(t, "F.npy", []int64{1, 1}, 2)
	fine := saveNPY(t, "fine.npy", []float32{1, 0, 0, 1, 1, 1}, 3, 2)
	long := saveNPY(t, "long.npy", []float32{1, 0, 1e30, 0, 1, 1}, 3, 2)
	nan := saveNPY(t, "nan.npy", []float32{1, 0, 1, 0, 1, float32(math.NaN())}, 3, 2)
	wide := saveNPY(t, "wide.npy", []float32{1, 0, 1, 0, 0, 1}, 2, 3)
	hundreds := saveNPY(t, "hundreds.npy", []int64{100, 200}, 2)
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "NAME"},
		{[]string{"supapp"}, `did you mean "supap"`},
		{[]string{"supap"}, "--embeddings"},
		{[]string{"supap", "--embeddings", embeddings}, "--labels"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels}, "row 1 is all zeros"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", few}, "2 labels"},
		{[]string{"supap", "--embeddings", nan, "--labels", labels}, "nan.npy: row 2 holds NaN"},
		{[]string{"supap", "--embeddings", long, "--labels", labels, "--set", "normalize=false"}, "long.npy: the scores of row 1 are beyond float32"},
		{[]string{"smoothap", "--embeddings", fine, "--labels", labels, "--set", "tau=1e-39"}, "tau is 1e-39"},
		{[]string{"supap", "--embeddings", fine, "--labels", labels, "--gallery", wide, "--gallery-labels", hundreds}, "wide.npy has 3"},
		{[]string{"supap", "--embeddings", nan, "--labels", labels, "--gallery", fine, "--gallery-labels", labels}, "nan.npy: row 2 holds NaN"},
		{[]string{"supap", "--embeddings", fine, "--labels", labels, "--gallery", nan, "--gallery-labels", labels}, "nan.npy: row 2 holds NaN"},
		{[]string{"normsoftmax", "--embeddings", fine, "--labels", labels, "--gallery", fine, "--gallery-labels", labels}, "row 0 has label 1, which comes 2 times in"},
		{[]string{"normsoftmax", "--embeddings", wide, "--labels", hundreds, "--gallery", wide, "--gallery-labels", few}, "wide.npy: row 0 has label 100, which comes 0 times in"},
		{[]string{"supap", "--scores", nan, "--relevance", fine}, "nan.npy: row 2 holds NaN"},
		{[]string{"supap", "--scores", fine, "--relevance", long}, "long.npy: row 1, column 0 is 1.0000"},
		{[]string{"supap", "--embeddings", fine, "--labels", labels, "--set", "tau"}, `parameter "tau": want key=value`},
		{[]string{"supap", "--embeddings", fine, "--labels", labels, "--chunk", "some"}, `parameter "chunk=some"`},
		{[]string{"supap", "--embeddings", embeddings, "--labels", halves}, "H.npy"},
		{[]string{"supap", "--embeddings", "missing.npy", "--labels", labels}, "missing.npy"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels, "--set", "tau=-1"}, "tau"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels, "--set", "taau=1"}, "did you mean tau"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels, "--gallery-labels", labels}, "--gallery"},
		{[]string{"supap", "--embeddings", embeddings, "--scores", embeddings}, "not both"},
		{[]string{"supap", "--scores", embeddings}, "--relevance"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels, "--grad-gallery", "x.npy"}, "--gallery"},
		{[]string{"ap", "--embeddings", embeddings, "--labels", labels, "--grad", "x.npy"}, "no gradient"},
		{[]string{"supap", "--embeddings", embeddings, "--labels", labels, "--device", "tpu"}, "tpu"},
	} {
		lossRefuses(t, c.says, c.args...)
	}
}

func lossRefuses(t *testing.T, says string, args ...string) {
	t.Helper()
	out, stderr, code := roadmap(t, append([]string{"loss"}, args...)...)
	if code != 2 || out != "" || !strings.Contains(stderr, says) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%v: code %d, output %q, error %q; want 2 and %q", args, code, out, stderr, says)
	}
}

// Names that gradients cannot go to are refused before either is written.
func TestLossVerbGradientFiles(t *testing.T) {
	embeddings := saveNPY(t, "E.npy", []float32{1, 0, 0, 1, 1, 1}, 3, 2)
	labels := saveNPY(t, "L.npy", []int64{1, 1, 2}, 3)
	first, second := filepath.Join(t.TempDir(), "first.npy"), filepath.Join(t.TempDir(), "second.npy")
	args := []string{"calibration", "--embeddings", embeddings, "--labels", labels, "--gallery", embeddings, "--gallery-labels", labels, "--grad", first, "--grad-gallery"}
	for _, c := range []struct{ path, says string }{
		{first, "each a file of its own"},
		{filepath.Dir(first) + "/./first.npy", "each a file of its own"},
		{filepath.Join(t.TempDir(), "second.txt"), "--grad-gallery"},
		{filepath.Join(t.TempDir(), "missing", "second.npy"), "does not exist"},
		{embeddings, "E.npy would be written, but it is also read"},
	} {
		lossRefuses(t, c.says, append(args, c.path)...)
		if c.path != embeddings {
			lossRefuses(t, c.says, append(args, c.path, "--force")...)
		}
		if entries, err := os.ReadDir(filepath.Dir(first)); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v is left, %v", c.path, entries, err)
		}
	}
	if _, stderr, code := roadmap(t, append([]string{"loss"}, append(args, second)...)...); code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if shape := readNPY(t, second).Shape; shape[0] != 3 {
		t.Errorf("gradient of the gallery has the shape %v", shape)
	}
	lossRefuses(t, "first.npy exists already", append(args, second)...)
}

// Labels that are given stand for those in the file, right or wrong.
func TestLossVerbLabelsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.safetensors")
	named := []tensorio.Named{{Name: "embeddings", Tensor: tensorio.Of([]float32{1, 0, 0, 1, 1, 1}, 3, 2)}, {Name: "labels", Tensor: tensorio.Of([]int64{1, 1}, 2)}}
	if err := tensorio.Save(path, false, func(w io.Writer) error { return tensorio.WriteSafetensors(w, named, nil) }); err != nil {
		t.Fatal(err)
	}
	lossRefuses(t, "e.safetensors: 2 labels for 3 embeddings", "supap", "--embeddings", path)
	if _, stderr, code := roadmap(t, "loss", "supap", "--embeddings", path, "--labels", saveNPY(t, "L.npy", []int64{1, 1, 2}, 3)); code != 0 {
		t.Errorf("code %d: %s", code, stderr)
	}
}
