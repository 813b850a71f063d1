package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/tensorio"
)

// npy writes an array into the test's folder.
func npy[E tensorio.Element](t *testing.T, dir, name string, data []E, shape ...int) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := tensorio.Save(path, true, func(w io.Writer) error { return tensorio.WriteNPY(w, tensorio.Of(data, shape...)) }); err != nil {
		t.Fatal(err)
	}
	return path
}

func textFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// line is embeddings (1, v): by cosine, rows rank each other by how near they
// are, for small v. Row 0 has its positive second, row 2 first … see wanted.
var line = []float32{1, 0, 1, 0.1, 1, 0.3, 1, 0.7}

// figures reads a map of numbers out of a JSON object.
func figures(t *testing.T, o map[string]any, key string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	inner, ok := o[key].(map[string]any)
	if !ok {
		t.Fatalf("no %s in %v", key, o)
	}
	for k, v := range inner {
		out[k] = v.(float64)
	}
	return out
}

func close64(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

func TestEval(t *testing.T) {
	dir := t.TempDir()
	embeddings := npy(t, dir, "e.npy", line, 4, 2)
	labels := textFile(t, dir, "l.csv", "row,path,label,class,kind\r\n0,a.png,cat,cat,x\r\n1,b.png,dog,dog,x\r\n2,c.png,cat,cat,y\r\n3,d.png,emu,emu,y\r\n")
	// Row 0 ranks 1, 2+, 3. Row 2 ranks 1, 0+ or 3, as 0.3-0 < 0.7-0.3 in angles: atan 0.3 = 0.291, atan 0.7 - atan 0.3 = 0.319: 1, 0+, 3.
	mrr := (1./2 + 1./2) / 2
	perQuery := filepath.Join(dir, "q.csv")
	stdout, stderr, code := roadmap(t, "eval", "--embeddings", embeddings, "--labels", labels, "--level", "kind", "--metrics", "r@1,r@2,mrr",
		"--per-query", perQuery, "--bootstrap", "50", "--json")
	if code != codeDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	o := object(t, stdout)
	got := figures(t, o, "metrics")
	// By kind (x, x, y, y): row 0: 1+ first. Row 1: 0+ first. Row 2: 1, 0, 3+. Row 3: 2+ first.
	for name, want := range map[string]float64{"r@1": 0, "r@2": 1, "mrr": mrr, "r@1/kind": 3. / 4, "mrr/kind": (1 + 1 + 1./3 + 1) / 4} {
		if !close64(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for name, want := range map[string]any{"queries": 4., "gallery": 4., "lone": 2., "dim": 2., "ties": "index", "distance": "cosine"} {
		if o[name] != want {
			t.Errorf("%s is %v, want %v", name, o[name], want)
		}
	}
	if seconds, ok := o["seconds"].(float64); !ok || seconds <= 0 {
		t.Errorf("seconds: %v", o["seconds"])
	}
	if interval := o["confidence"].(map[string]any)["r@2"].([]any); interval[0] != 1. || interval[1] != 1. {
		t.Errorf("confidence of r@2: %v", interval)
	}
	table, err := os.ReadFile(perQuery)
	if err != nil {
		t.Fatal(err)
	}
	const want = "row,label,relevant,first,r@1,r@2,mrr,relevant/kind,first/kind,r@1/kind,r@2/kind,mrr/kind\r\n" +
		"0,cat,1,2,0,1,0.5,1,1,1,1,1\r\n" +
		"1,dog,0,,,,,1,1,1,1,1\r\n" +
		"2,cat,1,2,0,1,0.5,1,3,0,0,0.3333333333333333\r\n" +
		"3,emu,0,,,,,1,1,1,1,1\r\n"
	if string(table) != want {
		t.Errorf("per query:\n%s\nwant\n%s", table, want)
	}
	// Nothing is lone by kind; rows 0, 1 and 3 find their other first, row 2 third.
	level := o["levels"].([]any)[0].(map[string]any)
	if first := level["first"].([]any)[3].(map[string]any); len(o["levels"].([]any)) != 1 || level["name"] != "kind" || level["lone"] != 0. || first["share"] != 0.9 || first["rank"] != 3. {
		t.Errorf("levels %v", o["levels"])
	}
	stdout, _, code = roadmap(t, "eval", "--embeddings", embeddings, "--labels", labels, "--level", "kind", "--level", "path="+textFile(t, dir, "p.txt", "a\nb\nc\nb\n"))
	for _, want := range []string{"lone queries: 2, by kind 0, by path 2;", "  by kind: 25 % ≤ 1, 50 % ≤ 1, 75 % ≤ 1, 90 % ≤ 3", "  by path: 25 % ≤ 2, 50 % ≤ 2"} {
		if code != codeDone || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %q in\n%s", code, want, stdout)
		}
	}
	stdout, _, code = roadmap(t, "eval", "--embeddings", embeddings, "--labels", labels)
	for _, want := range []string{"r@1", "map@r", "0.5000", "lone queries: 2", "4 queries, 4 in the gallery, 2 dimensions"} {
		if code != codeDone || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %q in\n%s", code, want, stdout)
		}
	}
}

// TestEvalGallery: queries of their own, labels as words and numbers, other
// policies, and an .npy and a .safetensors of the same rows.
func TestEvalGallery(t *testing.T) {
	dir := t.TempDir()
	query := npy(t, dir, "q.npy", []float64{0, 10, 3}, 3, 1)
	gallery := filepath.Join(dir, "g.safetensors")
	named := []tensorio.Named{
		{Name: tensorio.EmbeddingsName, Tensor: tensorio.Of([]float32{1, -1, 9}, 3, 1)},
		{Name: tensorio.LabelsName, Tensor: tensorio.Of([]int64{7, 5, 5}, 3)},
	}
	if err := tensorio.Save(gallery, false, func(w io.Writer) error { return tensorio.WriteSafetensors(w, named, nil) }); err != nil {
		t.Fatal(err)
	}
	labels := npy(t, dir, "q_labels.npy", []int32{5, 5, 8}, 3)
	for _, test := range []struct {
		args []string
		mrr  float64
	}{
		// Query 0 is 1 away from item 0 (label 7) and item 1 (5): tied. Query 1 finds item 2 first. Query 2 is lone.
		{nil, (1./2 + 1) / 2},
		{[]string{"--ties", "optimistic"}, 1},
		{[]string{"--ties", "pessimistic"}, (1./2 + 1) / 2},
		{[]string{"--lone", "zero"}, (1./2 + 1) / 3},
		{[]string{"--ties", "optimistic", "--lone", "zero", "--precision", "float32"}, 2. / 3},
	} {
		args := append([]string{"eval", "--embeddings", query, "--labels", labels, "--gallery", gallery, "--metrics", "mrr,r@3", "--distance", "l2", "--json"}, test.args...)
		stdout, stderr, code := roadmap(t, args...)
		if code != codeDone {
			t.Fatalf("%v: code %d: %s", test.args, code, stderr)
		}
		if got := figures(t, object(t, stdout), "metrics")["mrr"]; !close64(got, test.mrr) {
			t.Errorf("%v: mrr is %v, want %v", test.args, got, test.mrr)
		}
	}
}

func TestEvalGapAndCurve(t *testing.T) {
	dir := t.TempDir()
	embeddings := npy(t, dir, "e.npy", line, 4, 2)
	labels := textFile(t, dir, "l.txt", "cat\ndog\ncat\ndog\n")
	batches := npy(t, dir, "b.npy", []int64{0, 1, 2, 3, -1, -1}, 2, 3)
	stdout, stderr, code := roadmap(t, "eval", "--embeddings", embeddings, "--labels", labels, "--gap", "batches="+batches, "--batch-curve", "3,4", "--draws", "5", "--json")
	if code != codeDone {
		t.Fatalf("code %d: %s", code, stderr)
	}
	o := object(t, stdout)
	// Rows 0 and 2 share batch 0, where 1 stands between them for row 0 (1, 2+) and first for row 2 (1, 0+): AP 1/2 as
	// over all. Row 1 (0, 2, 3+: 1/3) and row 3 (2, 1+: 1/2) have their positive in the other's batch: row 3 alone with 1.
	gap := figures(t, o, "gap")
	if want := (1./2 + 1./2 + 1./3 + 1./2) / 4; !close64(gap["ap"], want) || gap["batches"] != 2 || gap["alpha"] != 0.9 || gap["beta"] != 0.6 {
		t.Errorf("gap %v, want AP %v", gap, want)
	}
	// In batch 1 row 1 meets row 3 alone: 1. Row 3 meets 0, 1+, 2 in batch 0: 2, 1+, 0: 1/2.
	if want := (1./2+1./2+1+1./2)/4 - gap["ap"]; !close64(gap["dg"], want) {
		t.Errorf("dg %v, want %v", gap["dg"], want)
	}
	curve := o["curve"].([]any)
	last := curve[1].(map[string]any)
	if len(curve) != 2 || last["batch"] != 4. || last["draws"] != 5. || !close64(last["mean"].(float64), gap["ap"]) || last["sd"].(float64) > 1e-12 {
		t.Errorf("curve %v", curve)
	}
	// No draw of 2 rows has two of one label, if there are three labels of 4 and one draw: a mean of nothing is none.
	other := textFile(t, dir, "o.txt", "cat\ndog\ncat\nemu\n")
	lone := []string{"eval", "--embeddings", embeddings, "--labels", other, "--batch-curve", "2", "--draws", "1", "--seed", "1"}
	stdout, stderr, code = roadmap(t, append(lone, "--json")...)
	if code != codeDone {
		t.Fatal(stderr)
	}
	if p := object(t, stdout)["curve"].([]any)[0].(map[string]any); p["mean"] != nil || p["sd"] != nil || p["draws"] != 0. || p["lone"] != 1. {
		t.Errorf("no usable draw: %v", p)
	}
	if stdout, _, _ = roadmap(t, lone...); !strings.Contains(stdout, "│     2 │ -") {
		t.Errorf("no dash in\n%s", stdout)
	}
	stdout, _, code = roadmap(t, "eval", "--embeddings", embeddings, "--labels", labels, "--gap", "random=2", "--batch-curve", "4")
	if code != codeDone || !strings.Contains(stdout, "decomposability gap over 2 batches") || !strings.Contains(stdout, "may be the looser one") || !strings.Contains(stdout, "without relevant pairs") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}

func TestEvalProtocols(t *testing.T) {
	dir := t.TempDir()
	var rows []float32
	var labels strings.Builder
	for c := range 12 {
		for i := range 3 {
			angle := float64(c) + 0.01*float64(i)
			rows = append(rows, float32(math.Cos(angle/4)), float32(math.Sin(angle/4)))
			fmt.Fprintf(&labels, "v%02d\n", c)
		}
	}
	embeddings := npy(t, dir, "e.npy", rows, 36, 2)
	stdout, stderr, code := roadmap(t, "eval", "--embeddings", embeddings, "--labels", textFile(t, dir, "l.txt", labels.String()), "--protocol", "vehicleid",
		"--repeats", "4", "--metrics", "r@1,r@5", "--json")
	if code != codeDone {
		t.Fatal(stderr)
	}
	o := object(t, stdout)
	if m, sd := figures(t, o, "metrics"), figures(t, o, "sd"); m["r@1"] != 1 || sd["r@1"] != 0 || o["queries"] != 24. || o["gallery"] != 12. || o["repeats"] != 4. {
		t.Errorf("%v", o)
	}
	truth := datatest.Shared(t, "revisitop/gnd_rparis6k.pkl")
	query, gallery := npy(t, dir, "q.npy", make16(70, 4), 70, 4), npy(t, dir, "g.npy", make16(6322, 4), 6322, 4)
	stdout, stderr, code = roadmap(t, "eval", "--embeddings", query, "--gallery", gallery, "--protocol", "revisited", "--ground-truth", truth, "--json")
	if code != codeDone {
		t.Fatal(stderr)
	}
	o = object(t, stdout)
	if m := figures(t, o, "metrics"); len(m) != 12 || m["map/medium"] <= 0 || m["mp@10/hard"] < 0 {
		t.Errorf("%v", m)
	}
	stdout, stderr, code = roadmap(t, "eval", "--embeddings", query, "--gallery", gallery, "--protocol", "revisited", "--ground-truth", truth)
	if code != codeDone || !strings.Contains(stdout, "lone queries: easy 0, medium 0, hard 0;") {
		t.Errorf("code %d, %s, %s", code, stderr, stdout)
	}
	if _, stderr, code = roadmap(t, "eval", "--embeddings", gallery, "--gallery", query, "--protocol", "revisited", "--ground-truth", truth); code != codeInput || !strings.Contains(stderr, "70 queries") {
		t.Errorf("query and gallery the wrong way round: code %d, %s", code, stderr)
	}
}

// make16 is rows that are all different.
func make16(n, dim int) []float32 {
	rows := make([]float32, n*dim)
	for i := range rows {
		rows[i] = float32(math.Sin(float64(i*i%7919) + 0.5))
	}
	return rows
}

func TestEvalRefuses(t *testing.T) {
	dir := t.TempDir()
	good := npy(t, dir, "e.npy", line, 4, 2)
	labels := textFile(t, dir, "l.txt", "a\nb\na\nb\n")
	file := func(name string, data []float32, width int) string {
		return npy(t, dir, name, data, len(data)/width, width)
	}
	nan := float32(math.NaN())
	plain := []string{"--embeddings", good, "--labels", labels}
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "what is to be evaluated?"},
		{[]string{"--embeddings", good}, "e.npy holds no labels; give them with --labels"},
		{[]string{"--embeddings", filepath.Join(dir, "none.npy"), "--labels", labels}, "none.npy"},
		{[]string{"--embeddings", good, "--labels", filepath.Join(dir, "none.txt")}, "none.txt"},
		{[]string{"--embeddings", good, "--labels", textFile(t, dir, "short.txt", "a\nb\n")}, "short.txt: 2 labels, but"},
		{[]string{"--embeddings", file("nan.npy", []float32{1, 2, 3, nan, 5, 6, 7, 8}, 2), "--labels", labels}, "nan.npy: row 1 has a NaN"},
		{[]string{"--embeddings", file("zero.npy", []float32{1, 2, 0, 0, 5, 6, 7, 8}, 2), "--labels", labels}, "zero.npy: row 1 is all zeros"},
		{append(plain, "--gallery", file("wide.npy", []float32{1, 2, 3}, 3), "--gallery-labels", textFile(t, dir, "one.txt", "a\n")), "rows of 2 numbers"},
		{append(plain, "--gallery", good), "e.npy holds no labels; give them with --gallery-labels"},
		{append(plain, "--gallery-labels", labels), "--gallery-labels needs --gallery"},
		{append(plain, "--metrics", "r@0"), "r@0"},
		{append(plain, "--metrics", "r@4"), "only 3 candidates"},
		{append(plain, "--metrics", "recal"), "recal"},
		{append(plain, "--lone", "maybe"), "give skip or zero"},
		{append(plain, "--ties", "coin"), "ties"},
		{append(plain, "--distance", "l3"), "l3"},
		{append(plain, "--precision", "half"), "--precision"},
		{append(plain, "--memory", "0"), "--memory"},
		{append(plain, "--device", "cuda:77"), "cuda:77"},
		{append(plain, "--level", "kind"), "is no .csv"},
		{append(plain, "--level", "kind="+labels+","+labels), "give 1 file"},
		{append(plain, "--level", "="+labels), "the level has no name"},
		{append(plain, "--level", ""), "the level has no name"},
		{append(plain, "--level", "kind="), "give 1 file"},
		{append(plain, "--level", "kind="+labels, "--level", "kind="+labels), "given twice"},
		{append(plain, "--level", "kind="+textFile(t, dir, "few.txt", "a\nb\na\n")), "few.txt has 3 labels, but"},
		{append(plain, "--per-query", good), "e.npy"},
		{append(plain, "--gap", "all"), "--gap all"},
		{append(plain, "--gap", "random=1"), "from 2 on"},
		{append(plain, "--gap", "random=5"), "from 2 to 4"},
		{append(plain, "--gap", "batches="), "give batches=FILE.npy"},
		{append(plain, "--gap", "random=2", "--distance", "l2"), "not defined for l2"},
		{append(plain, "--gap", "random=2", "--alpha", "1.5"), "alpha 1.5"},
		{append(plain, "--gap", "random=2", "--beta", "-1.1"), "beta -1.1"},
		{append(plain, "--alpha", "0.5"), "need --gap"},
		{append(plain, "--beta", "0.5"), "need --gap"},
		{append(plain, "--draws", "5"), "--draws needs --batch-curve"},
		{append(plain, "--batch-curve", "2", "--draws", "0"), "--draws: 0; give"},
		{append(plain, "--repeats", "5"), "--repeats needs --protocol vehicleid"},
		{append(plain, "--protocol", "vehicleid", "--repeats", "9999999999999999"), "--repeats: 9999999999999999; give a number from 1 to 100000"},
		{append(plain, "--bootstrap", "99999999999999"), "bootstrap: 99999999999999 resamples; give a number up to 1000000"},
		{append(plain, "--per-query", filepath.Join(dir, "none", "q.csv")), "none does not exist"},
		{append(plain, "--per-query", dir, "--force"), "is a folder"},
		{append(plain, "--memory", "99999999999999"), "-memory"},
		{append(plain, "--gap", "batches="+good), "whole numbers"},
		{append(plain, "--batch-curve", "2,x"), `"x" is no size`},
		{append(plain, "--batch-curve", "9"), "batches of 9"},
		{append(plain, "--protocol", "market"), "--protocol"},
		{append(plain, "--protocol", "vehicleid", "--gap", "random=2"), "--protocol vehicleid has no use for --gap"},
		{append(plain, "--ground-truth", good), "--ground-truth needs --protocol revisited"},
		{append(plain, "--protocol", "revisited"), "--ground-truth: give the official file"},
		{append(plain, "--protocol", "revisited", "--ground-truth", good), "--protocol revisited has no use for --labels"},
		{[]string{"--embeddings", good, "--protocol", "revisited", "--ground-truth", good}, "needs --gallery"},
		{append(plain, "--protocol", "vehicleid", "--gallery", good), "drop --gallery"},
		{append(plain, "--model", "convnet"), "what is to be evaluated?"},
		{append(plain, "extra"), "extra"},
		{[]string{"--embeddings", good, "--labels", textFile(t, dir, "lone.txt", "a\nb\nc\nd\n")}, "all 4 queries are lone"},
		{[]string{"--embeddings", good, "--gallery", good, "--protocol", "revisited", "--ground-truth", labels}, "l.txt"},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"eval"}, test.args...)...)
		if code != codeInput || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("%v: code %d, %q, want code %d and %q", test.args, code, stderr, codeInput, test.want)
		}
	}
}

// TestEvalChecksFirst: what cannot be done is refused before anything is compared
// or written.
func TestEvalChecksFirst(t *testing.T) {
	dir := t.TempDir()
	nan := npy(t, dir, "e.npy", []float32{1, 2, float32(math.NaN()), 4, 5, 6, 7, 8}, 4, 2) // an evaluation would say so
	labels := textFile(t, dir, "l.txt", "a\nb\na\nb\n")
	far := npy(t, dir, "b.npy", []int64{0, 9}, 1, 2)
	for want, args := range map[string][]string{
		"--gap foo":     {"--gap", "foo"},
		"names row 9":   {"--gap", "batches=" + far},
		"batches of 99": {"--batch-curve", "2,99"},
		`"x" is no`:     {"--batch-curve", "2,x"},
		"--draws: -1":   {"--batch-curve", "2", "--draws", "-1"},
		"is also read":  {"--per-query", labels},
		"row 1 has":     nil,
	} {
		out := filepath.Join(dir, "q.csv")
		if want != "is also read" {
			args = append(args, "--per-query", out)
		}
		_, stderr, code := roadmap(t, append([]string{"eval", "--embeddings", nan, "--labels", labels}, args...)...)
		if code != codeInput || !strings.Contains(stderr, want) {
			t.Errorf("%v: code %d, %q, want %q", args, code, stderr, want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*q.csv*")); left != nil {
			t.Errorf("%v left %v", args, left)
		}
	}
}

func TestSearch(t *testing.T) {
	dir := t.TempDir()
	queries := npy(t, dir, "e.npy", line, 4, 2)
	out := filepath.Join(dir, "found.npy")
	stdout, stderr, code := roadmap(t, "search", "--queries", queries, "--k", "2", "--out", out, "--json")
	if code != codeDone {
		t.Fatal(stderr)
	}
	if o := object(t, stdout); o["queries"] != 4. || o["k"] != 2. || len(o["out"].([]any)) != 2 {
		t.Errorf("%v", o)
	}
	items, scores := read[int64](t, out), read[float32](t, strings.TrimSuffix(out, ".npy")+".scores.npy")
	want := []int64{1, 2, 0, 2, 1, 0, 2, 1}
	if fmt.Sprint(items) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v", items, want)
	}
	if c := 1 / math.Sqrt(1+0.1*0.1); math.Abs(float64(scores[0])-c) > 1e-6 {
		t.Errorf("score %v, want %v", scores[0], c)
	}
	list := filepath.Join(dir, "found.csv")
	paths := textFile(t, dir, "p.csv", "row,path,label\r\n0,a.png,1\r\n1,b.png,1\r\n2,\"c,d.png\",1\r\n3,e.png,1\r\n")
	if _, stderr, code = roadmap(t, "search", "--queries", queries, "--k", "1", "--out", list, "--query-paths", paths, "--distance", "l2"); code != codeDone {
		t.Fatal(stderr)
	}
	content, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\r\n")
	if len(lines) != 6 || lines[0] != "query,rank,item,score,query_path,path" || !strings.HasPrefix(lines[4], "3,1,2,-0.15999") || !strings.HasSuffix(lines[4], `,e.png,"c,d.png"`) {
		t.Errorf("%q", lines)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--queries", queries, "--out", out}, "is there already"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.txt")}, ".npy or .csv"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "4"}, "3 candidates"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "0"}, "3 candidates"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "1", "--query-paths", paths}, "give --out X.csv"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.csv"), "--k", "1", "--query-paths", textFile(t, dir, "few.csv", "path,label\r\na,1\r\n")}, "1 paths for 4"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "1", "--device", "cuda:3"}, "--device"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "1", "--memory", "99999999999999"}, "-memory"},
		{[]string{"--queries", queries, "--out", filepath.Join(dir, "x.npy"), "--k", "1", "--precision", "half"}, "give exact or float32"},
		{[]string{"--queries", filepath.Join(dir, "none.npy"), "--out", filepath.Join(dir, "x.npy")}, "none.npy"},
	} {
		_, stderr, code := roadmap(t, append([]string{"search"}, test.args...)...)
		if code != codeInput || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: code %d, %q, want %q", test.args, code, stderr, test.want)
		}
		if _, err := os.Stat(filepath.Join(dir, "x.npy")); err == nil {
			t.Fatalf("%v left a file", test.args)
		}
	}
	if _, stderr, code = roadmap(t, "search", "--queries", queries, "--k", "1", "--out", out, "--force"); code != codeDone {
		t.Errorf("--force: code %d, %s", code, stderr)
	}
}

func read[E tensorio.Element](t *testing.T, path string) []E {
	t.Helper()
	f, err := tensorio.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensor, err := f.Tensor(tensorio.Single)
	if err != nil {
		t.Fatal(err)
	}
	values, err := tensorio.View[E](tensor)
	if err != nil {
		t.Fatal(err)
	}
	return append([]E(nil), values...)
}
