package main

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Embeddings that are not finite are not written.
func TestEmbedRefusesNaN(t *testing.T) {
	out := filepath.Join(t.TempDir(), "e.npy")
	_, stderr, code := roadmap(t, "embed", "--model", "convnet", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--device", "cpu",
		"--transform", "resize=28,channels=1,mean=0,std=1e-36", "--precision", "float16", "--out", out)
	if code != codeInput || !strings.Contains(stderr, "regular/0.7/0 has NaN or infinity") || !strings.Contains(stderr, "use bfloat16 or float32") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(files) > 0 {
		t.Errorf("left %v", files)
	}
}

// In 16 bits the verb says how far from float32 the embeddings are; in float32
// there is nothing to say.
func TestEmbedSaysHowItDeviates(t *testing.T) {
	base := []string{"embed", "--model", "convnet", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--device", "cpu", "--batch", "32"}
	embed := func(precision string, more ...string) string {
		t.Helper()
		out := filepath.Join(t.TempDir(), "e.npy")
		stdout, stderr, code := roadmap(t, append(append(base, "--precision", precision, "--out", out), more...)...)
		if code != codeDone {
			t.Fatalf("%s: code %d, %s", precision, code, stderr)
		}
		return stdout
	}
	d, _ := object(t, embed("bfloat16", "--json"))["deviation"].(map[string]any)
	if d == nil || d["images"] != 32.0 || !(d["least"].(float64) > 0.99) || !(d["mean"].(float64) >= d["least"].(float64)) || !(d["least"].(float64) < 1) {
		t.Errorf("deviation %v", d)
	}
	if text := embed("bfloat16"); !strings.Contains(text, "cosine to float32, over the first 32: 0.99") {
		t.Errorf("printed %q", text)
	}
	if _, there := object(t, embed("float32", "--json"))["deviation"]; there {
		t.Error("float32 deviates from itself")
	}
}

// A dataset with queries and a gallery: the .csv says which is which, the splits
// can be embedded one by one, and evaluated as they are or in one go.
func TestEmbedQueriesAndGallery(t *testing.T) {
	root := t.TempDir()
	list := "6\nimage_name item_id evaluation_status\n"
	for i, status := range []string{"query", "gallery", "gallery", "query", "gallery", "train"} {
		item := fmt.Sprintf("img/MEN/Denim/id_%d/", i/3)
		list += fmt.Sprintf("%s%d.jpg id_%d %s\n", item, i, i/3, status)
		if err := os.MkdirAll(filepath.Join(root, item), 0o755); err != nil {
			t.Fatal(err)
		}
		shade := image.NewGray(image.Rect(0, 0, 28, 28))
		for p := range shade.Pix {
			shade.Pix[p] = uint8(p * (i + 1))
		}
		var picture bytes.Buffer
		if err := png.Encode(&picture, shade); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, item, fmt.Sprintf("%d.jpg", i)), picture.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "list_eval_partition.txt"), []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	network := []string{"--model", "convnet", "--root", root, "--device", "cpu", "--transform", "resize=28,channels=1", "-q"}
	for split, images := range map[string]float64{"test": 5, "query": 2, "gallery": 3} {
		stdout, stderr, code := roadmap(t, append([]string{"embed", "--data", "inshop:" + split, "--out", filepath.Join(dir, split+".npy"), "--json"}, network...)...)
		if code != codeDone || object(t, stdout)["images"] != images {
			t.Fatalf("%s: code %d, %s%s", split, code, stdout, stderr)
		}
	}
	table, err := os.ReadFile(filepath.Join(dir, "test.csv"))
	if err != nil || !strings.HasPrefix(string(table), "row,path,label,class,category,is_query,is_gallery\r\n") || strings.Count(string(table), ",true,false\r\n") != 2 || strings.Count(string(table), ",false,true\r\n") != 3 {
		t.Errorf("%v\n%s", err, table)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	apart, stderr, code := roadmap(t, "eval", "--embeddings", at("query.npy"), "--labels", at("query.csv"), "--gallery", at("gallery.npy"), "--gallery-labels", at("gallery.csv"), "--metrics", "r@1,map", "--json")
	if code != codeDone {
		t.Fatalf("code %d, %s", code, stderr)
	}
	at1, stderr, code := roadmap(t, append([]string{"eval", "--data", "inshop:test", "--metrics", "r@1,map", "--json"}, network...)...)
	if code != codeDone {
		t.Fatalf("code %d, %s", code, stderr)
	}
	x, y := object(t, apart), object(t, at1)
	if x["queries"] != 2.0 || y["queries"] != 2.0 || y["gallery"] != 3.0 || x["metrics"].(map[string]any)["map"] != y["metrics"].(map[string]any)["map"] {
		t.Errorf("apart %s, in one go %s", apart, at1)
	}
}

// A batch for which there is not the memory is refused before it is embedded,
// with the size of one that fits.
func TestEmbedRefusesABatchBeyondMemory(t *testing.T) {
	limited := func(batch string) (string, int) {
		t.Helper()
		plain := program(t, "embed", "--model", "resnet18", "--data", "glyphs:test", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--device", "cpu", "--workers", "1",
			"--transform", "resize=224,channels=3", "--batch", batch, "--out", filepath.Join(t.TempDir(), "e.npy"), "-q")
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -v 5000000; exec "$0" "$@"`}, plain.Args...)...)
		cmd.Env = plain.Env
		output, _ := cmd.CombinedOutput() // the code is what is asked for
		return string(output), cmd.ProcessState.ExitCode()
	}
	output, code := limited("690")
	said := regexp.MustCompile(`a batch of 690 images takes about [\d.]+GiB of memory, and [\d.]+[MG]iB are free; one of (\d+) fits`).FindStringSubmatch(output)
	if code != codeInput || said == nil || strings.Contains(output, "goroutine") {
		t.Fatalf("code %d, %s", code, output)
	}
}
