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

	"roadmap/pkg/data"
)

// photos writes a folder with classes of images, each of its own shade; the
// last of class b is cut.
func photos(t *testing.T, cut bool) string {
	t.Helper()
	root := t.TempDir()
	for i, name := range []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png", "c/1.png"} {
		shade := image.NewGray(image.Rect(0, 0, 9, 7))
		for p := range shade.Pix {
			shade.Pix[p] = uint8(40*i + p)
		}
		var picture bytes.Buffer
		if err := png.Encode(&picture, shade); err != nil {
			t.Fatal(err)
		}
		if cut && name == "b/2.png" {
			picture.Truncate(picture.Len() / 2)
		}
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
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
	for _, args := range [][]string{{root}, {"folder", "--root", root, "--set", "on_error=skip"}, {root, "--set", "data.on_error=skip"}} {
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
		if !strings.HasSuffix(stderr, "roadmap: "+args[0]+": 1 of 5 images are broken; replace or remove them, or leave them out with data.on_error=skip, in a recipe or behind --set\n") {
			t.Errorf("%v: stderr %q", args, stderr)
		}
	}
	stdout, _, _ = roadmap(t, "data", "validate", root)
	if !strings.HasPrefix(stdout, filepath.Join(root, "b", "2.png")+": ") || !strings.HasSuffix(stdout, "\nbroken images: 1\n") {
		t.Errorf("stdout %q", stdout)
	}
}

// What a message about a broken image advises does help.
func TestEmbedLeavesBrokenImagesOut(t *testing.T) {
	args := []string{"embed", "--model", "convnet", "--data", photos(t, true), "--device", "cpu", "-q", "--out", filepath.Join(t.TempDir(), "e.npy"), "--json"}
	const advice = "data.on_error=skip"
	if _, stderr, code := roadmap(t, args...); code != codeInput || !strings.Contains(stderr, advice) {
		t.Errorf("code %d, want the advice %s\n%s", code, advice, stderr)
	}
	stdout, stderr, code := roadmap(t, append(args, "--set", advice)...)
	if code != codeDone || object(t, stdout)["images"] != 4.0 {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

// What data make writes is a dataset with the same pixels.
func TestDataMake(t *testing.T) {
	root, out := photos(t, false), filepath.Join(t.TempDir(), "made")
	stdout, stderr, code := roadmap(t, "data", "make", "folder", "--root", root, "--set", "train_share=0.7", "--out", out, "--json")
	if code != codeDone {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	if folder := object(t, stdout)["folder"]; folder != out {
		t.Errorf("folder %v", folder)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	original := &data.Folder{Root: root, TrainShare: 0.7, OnError: data.Fail}
	for _, split := range []string{data.Train, data.Test} {
		want, err := original.Open(split)
		if err != nil {
			t.Fatal(err)
		}
		defer want.Close()
		got, err := data.Find(filepath.Join(out, split+".csv"), "")
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if got.Len() != want.Len() || want.Len() == 0 {
			t.Fatalf("%s: %d images, want %d", split, got.Len(), want.Len())
		}
		for i := range want.Items {
			g, w := &got.Items[i], &want.Items[i]
			if g.Class != w.Class || g.Category != w.Category || !bytes.Equal(pixels(t, g), pixels(t, w)) {
				t.Errorf("%s: image %d is %q of %q, want %q of %q, with the same pixels", split, i, g.Class, g.Category, w.Class, w.Category)
			}
		}
	}
	_, stderr, code = roadmap(t, "data", "make", "glyphs", "--out", out)
	if code != codeInput || !strings.Contains(stderr, "there is something of that name") {
		t.Errorf("over a folder that exists: code %d, stderr %q", code, stderr)
	}
	_, stderr, code = roadmap(t, "data", "make", photos(t, true), "--out", out+"2")
	if code != codeInput || !strings.Contains(stderr, "broken image") {
		t.Errorf("a broken image: code %d, stderr %q", code, stderr)
	}
	if _, err := os.Stat(out + "2"); !os.IsNotExist(err) {
		t.Errorf("half a dataset has the name of a whole one: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func pixels(t *testing.T, item *data.Item) []byte {
	t.Helper()
	img, err := item.Image()
	if err != nil {
		t.Fatal(err)
	}
	grey, ok := img.(*image.Gray)
	if !ok {
		t.Fatalf("%s is %T, want grey", item.Path, img)
	}
	return grey.Pix
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
		{[]string{"stats", "glyphs", "--set", "sied=3"}, `parameter "sied=3": unknown key sied; did you mean side?`},
		{[]string{"stats", "glyphs", "--set", "side=3"}, "side is 3; give 8 to 512 pixels"},
		{[]string{"stats", root, "--set", "side=3"}, "unknown key side"},
		{[]string{"stats", filepath.Join(root, "none"), "--set", "nested=true"}, "is neither a dataset"},
		{[]string{"stats", root, "--root", root, "--set", "nested=true"}, "drop the root"},
		{[]string{"stats", "omniglot", "--root", root}, "images_background"},
		{[]string{"stats"}, "want DATASET[:SPLIT], got 0 arguments (see roadmap data stats --help)"},
		{[]string{"validate", "folder", "--set", "root=" + filepath.Join(root, "a")}, "no image under"},
		{[]string{"make", "glyphs"}, "Required flag \"out\" not set (see roadmap data make --help)"},
		{[]string{"make", "glyphs", "--out", filepath.Join(root, "no", "folder")}, "--out: "},
		{[]string{"vaildate"}, "unknown verb vaildate; did you mean validate? (see roadmap data --help)"},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"data"}, c.args...)...)
		if code != codeInput || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("data %v: code %d, stdout %q, stderr %q; want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
