package main

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// photos writes a folder with classes of images; the last of class b is cut.
func photos(t *testing.T, cut bool) string {
	t.Helper()
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 9, 7))); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, name := range []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png", "c/1.png"} {
		content := picture.Bytes()
		if cut && name == "b/2.png" {
			content = content[:len(content)/2]
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// object reads standard output, which must be one JSON object on one line.
func object(t *testing.T, stdout string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(stdout), &o); err != nil || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("%v in %q", err, stdout)
	}
	return o
}

func TestDataList(t *testing.T) {
	stdout, stderr, code := roadmap(t, "data", "list", "--json")
	if code != codeDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	settings := map[string]any{}
	for _, d := range object(t, stdout)["datasets"].([]any) {
		settings[d.(map[string]any)["name"].(string)] = d.(map[string]any)["settings"]
	}
	if got := settings["omniglot"].(map[string]any)["protocol"]; got != "official" {
		t.Errorf("omniglot's protocol is %v", got)
	}
	table, _, _ := roadmap(t, "data", "list")
	for name := range settings {
		if !strings.Contains(table, "│ "+name+" ") {
			t.Errorf("no %s in\n%s", name, table)
		}
	}
}

func TestDataStats(t *testing.T) {
	root := photos(t, true) // a broken image does not matter: none is opened
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{root}, `{"splits":[{"name":"folder","split":"all","images":5,"classes":3,"categories":0,"min":1,"median":2,"max":2,"lone":1,"skipped":0}]}`},
		{[]string{"folder", "--root", root, "--set", "train_share=0.7"}, `{"splits":[` +
			`{"name":"folder","split":"train","images":4,"classes":2,"categories":0,"min":2,"median":2,"max":2,"lone":0,"skipped":0},` +
			`{"name":"folder","split":"test","images":1,"classes":1,"categories":0,"min":1,"median":1,"max":1,"lone":1,"skipped":0},` +
			`{"name":"folder","split":"all","images":5,"classes":3,"categories":0,"min":1,"median":2,"max":2,"lone":1,"skipped":0}]}`},
		{[]string{"folder:test", "--set", "train_share=0", "--set", "on_error=skip", "--root", root},
			`{"splits":[{"name":"folder","split":"test","images":4,"classes":3,"categories":0,"min":1,"median":1,"max":2,"lone":2,"skipped":1}]}`},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"data", "stats", "--json"}, c.args...)...)
		if code != codeDone || stderr != "" || stdout != c.want+"\n" {
			t.Errorf("%v: code %d, stderr %q\n got %swant %s", c.args, code, stderr, stdout, c.want)
		}
	}
}

func TestDataValidate(t *testing.T) {
	stdout, stderr, code := roadmap(t, "data", "validate", photos(t, false), "--json", "-q")
	if code != codeDone || stderr != "" || len(object(t, stdout)["broken"].([]any)) != 0 {
		t.Errorf("whole images: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	root := photos(t, true)
	for _, args := range [][]string{{root}, {"folder", "--root", root, "--set", "on_error=skip"}} {
		stdout, stderr, code = roadmap(t, append([]string{"data", "validate", "--json"}, args...)...)
		if code != codeInput {
			t.Errorf("%v: code %d", args, code)
		}
		broken := object(t, stdout)["broken"].([]any)
		if len(broken) != 1 {
			t.Fatalf("%v: broken %v, want b/2.png alone", args, broken)
		}
		image := broken[0].(map[string]any)
		if image["path"] != filepath.Join(root, "b", "2.png") || !strings.Contains(image["error"].(string), "EOF") {
			t.Errorf("%v: broken %v", args, image)
		}
		if !strings.HasSuffix(stderr, "roadmap: "+args[0]+": 1 of 5 images are broken; replace or remove them, or set data.on_error=skip in a recipe\n") {
			t.Errorf("%v: stderr %q", args, stderr)
		}
	}
	stdout, _, _ = roadmap(t, "data", "validate", root)
	if !strings.HasPrefix(stdout, filepath.Join(root, "b", "2.png")+": ") || !strings.HasSuffix(stdout, "\nbroken images: 1\n") {
		t.Errorf("stdout %q", stdout)
	}
}

func TestDataErrors(t *testing.T) {
	root := photos(t, false)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"stats", filepath.Join(root, "none")}, "is neither a dataset (folder, glyphs, list, omniglot), nor a folder, an archive or a list"},
		{[]string{"stats", "glyph"}, "did you mean glyphs?"},
		{[]string{"stats", "glyphs:tset"}, `unknown split "tset"; did you mean "test"?`},
		{[]string{"stats", "glyphs", "--set", "sied=3"}, `override "sied=3": unknown key sied; did you mean side?`},
		{[]string{"stats", "glyphs", "--set", "side=3"}, "side is 3; give 8 to 512 pixels"},
		{[]string{"stats", root, "--set", "side=3"}, "is not a dataset with settings"},
		{[]string{"stats", "omniglot", "--root", root}, "images_background"},
		{[]string{"stats"}, "want DATASET[:SPLIT], got 0 arguments (see roadmap data stats --help)"},
		{[]string{"validate", "folder", "--set", "root=" + filepath.Join(root, "a")}, "no image under"},
		{[]string{"vaildate"}, `unknown verb "vaildate"; did you mean "validate"? (see roadmap data --help)`},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"data"}, c.args...)...)
		if code != codeInput || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("data %v: code %d, stdout %q, stderr %q; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
