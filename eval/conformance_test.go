package eval

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"roadmap/eval/knn"
	"roadmap/pkg/datatest"
	"roadmap/pkg/rng"
	"roadmap/pkg/tensorio"
)

// The environment variables of TestConformance: the Python that has the
// peers, and the folder in which its second process finds the embeddings.
const (
	pythonVariable = "ROADMAP_PYTHON"
	peerVariable   = "ROADMAP_TEST_EVALUATE"
)

// measured is what either program prints.
type measured struct {
	R1      float64 `json:"r@1"`
	RP      float64 `json:"rp"`
	MAPR    float64 `json:"map@r"`
	Seconds float64 `json:"seconds"`
	Peak    int64   `json:"peak_bytes"`
	Float32 float64 `json:"product_float32"`  // seconds of the bare product
	BFloat  float64 `json:"product_bfloat16"` // likewise
}

// TestConformance evaluates as many embeddings as the test split of Stanford
// Online Products has, in its classes, with this package and with
// pytorch-metric-learning over faiss-cpu, in the same minutes: the figures agree, and ours
// come in a fifth of the time at most, in under 600 MB.
func TestConformance(t *testing.T) {
	python := os.Getenv(pythonVariable)
	if python == "" {
		t.Skipf("%s does not name a Python with pytorch-metric-learning and faiss-cpu; make conformance does", pythonVariable)
	}
	dir := t.TempDir()
	writeRows(t, dir, products(t))
	ours := evaluateApart(t, dir)
	peer := evaluateByPeer(t, python, dir)
	again := evaluateApart(t, dir)
	ours.Seconds = math.Max(ours.Seconds, again.Seconds)
	t.Logf("seconds: %.2f here, %.2f AccuracyCalculator with faiss-cpu (%.1f times as long); bare products: float32 %.2f, bfloat16 %.2f",
		ours.Seconds, peer.Seconds, peer.Seconds/ours.Seconds, peer.Float32, peer.BFloat)
	t.Logf("peak of memory: %d MB here, %d MB there", ours.Peak/1e6, peer.Peak/1e6)
	for name, pair := range map[string][2]float64{"r@1": {ours.R1, peer.R1}, "rp": {ours.RP, peer.RP}, "map@r": {ours.MAPR, peer.MAPR}} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 { // scores that differ by less than float32's rounding may be swapped there
			t.Errorf("%s is %v, the peer's %v", name, pair[0], pair[1])
		}
	}
	if knn.Processor() >= knn.AMX && peer.Seconds < 5*ours.Seconds {
		t.Errorf("only %.1f times as fast", peer.Seconds/ours.Seconds)
	}
	if ours.Peak > 600e6 {
		t.Errorf("peak of memory: %d bytes", ours.Peak)
	}
}

// evaluateByPeer evaluates with pytorch-metric-learning, to the depth of the
// largest class.
func evaluateByPeer(t testing.TB, python, dir string) measured {
	t.Helper()
	var m measured
	out, err := exec.Command(python, "testdata/peer.py", filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy"), "0").Output()
	if err == nil {
		err = json.Unmarshal(out, &m)
	}
	if err != nil {
		t.Fatalf("peer: %v\n%s", err, out)
	}
	return m
}

// class is one of a set's, with so many rows.
type class struct {
	label    int64
	category string
	rows     int
}

// writeRows writes x.npy [N, 512] and y.npy, never holding more than a row: each
// is its class's centre, which lies near its category's, and noise of its own strength,
// so that recall@1 is about 0.92 and some rows are lost among the others.
func writeRows(t testing.TB, dir string, classes []class) {
	t.Helper()
	const dim = 512
	r := rng.New(12)
	normal := func(v []float32) {
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
	}
	file, err := tensorio.CreateNPY(filepath.Join(dir, "x.npy"), tensorio.Float32, []int{dim}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Discard()
	categories, centre, row := map[string][]float32{}, make([]float32, dim), make([]float32, dim)
	var labels []int64
	for _, c := range classes {
		if categories[c.category] == nil {
			categories[c.category] = make([]float32, dim)
			normal(categories[c.category])
		}
		normal(centre)
		for k, v := range categories[c.category] {
			centre[k] += 0.55 * v
		}
		for range c.rows {
			normal(row)
			spread, length := float32(1.6*math.Exp(0.6*r.NormFloat64())), float32(0)
			for k := range row {
				row[k] = centre[k] + spread*row[k]
				length += row[k] * row[k]
			}
			for k := range row {
				row[k] /= float32(math.Sqrt(float64(length)))
			}
			labels = append(labels, c.label)
			if err := file.Append(tensorio.Of(row, 1, dim)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := file.Commit(); err != nil {
		t.Fatal(err)
	}
	err = tensorio.Save(filepath.Join(dir, "y.npy"), false, func(w io.Writer) error { return tensorio.WriteNPY(w, tensorio.Of(labels, len(labels))) })
	if err != nil {
		t.Fatal(err)
	}
}

// products is the classes of the test split of Stanford Online Products, whose
// list is sorted by class: label,category/file.
func products(t testing.TB) []class {
	t.Helper()
	list, err := os.Open(datatest.Shared(t, "sop-lists/stanford_online_test.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	var all []class
	rows := 0
	for lines := bufio.NewScanner(list); lines.Scan(); rows++ {
		number, path, _ := strings.Cut(lines.Text(), ",")
		category, _, _ := strings.Cut(path, "/")
		label, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 || all[len(all)-1].label != label {
			all = append(all, class{label: label, category: category})
		}
		all[len(all)-1].rows++
	}
	if rows != 60502 {
		t.Fatalf("%d products", rows)
	}
	return all
}

// evaluateApart evaluates in a process of its own, whose memory is counted.
func evaluateApart(t testing.TB, dir string) measured {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestEvaluateApart$", "-test.v")
	cmd.Env = append(os.Environ(), peerVariable+"="+dir)
	out, err := cmd.Output()
	_, text, found := strings.Cut(string(out), "measured ")
	var m measured
	if err == nil && found {
		err = json.NewDecoder(strings.NewReader(text)).Decode(&m)
	}
	if err != nil || !found {
		t.Fatalf("%v\n%s", err, out)
	}
	return m
}

// TestEvaluateApart is the second process of TestConformance and BenchmarkRows.
func TestEvaluateApart(t *testing.T) {
	dir := os.Getenv(peerVariable)
	if dir == "" {
		t.Skip("runs within TestConformance and BenchmarkRows")
	}
	e, err := tensorio.OpenEmbeddings(filepath.Join(dir, "x.npy"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	labels, err := tensorio.ReadLabels(filepath.Join(dir, "y.npy"))
	if err != nil {
		t.Fatal(err)
	}
	numbers, _ := labels.Numbers()
	begin := time.Now()
	found, err := Run(context.Background(), Input{Query: Stored(e.Path, e.Tensor), QueryLabels: numbers},
		Options{Metrics: metrics("r@1", "r@10", "r@1000", "rp", "map@r", "map", "mrr")})
	if err != nil {
		t.Fatal(err)
	}
	m := measured{R1: found.Metrics["r@1"], RP: found.Metrics["rp"], MAPR: found.Metrics["map@r"], Seconds: time.Since(begin).Seconds(), Peak: peakMemory(t)}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("measured %s\n", text)
}

// peakMemory is the most this process has held.
func peakMemory(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kilobytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes * 1024
}
