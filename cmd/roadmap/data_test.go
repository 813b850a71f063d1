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
	"roadmap/pkg/datatest"
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
	const whole = `{"name":"folder","split":"all","images":5,"classes":3,"categories":0,"min":1,"median":2,"max":2,"lone":1,"skipped":0,"histogram":[{"from":1,"to":1,"classes":1},{"from":2,"to":2,"classes":2}]}`
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{root + ":all"}, `{"splits":[` + whole + `]}`},
		// The splits that training would see.
		{[]string{root}, `{"splits":[` +
			`{"name":"folder","split":"train","images":2,"classes":1,"categories":0,"min":2,"median":2,"max":2,"lone":0,"skipped":0,"histogram":[{"from":2,"to":2,"classes":1}]},` +
			`{"name":"folder","split":"test","images":3,"classes":2,"categories":0,"min":1,"median":1.5,"max":2,"lone":1,"skipped":0,"histogram":[{"from":1,"to":1,"classes":1},{"from":2,"to":2,"classes":1}]},` +
			whole + `]}`},
		{[]string{"folder", "--root", root, "--set", "train_share=1"}, `{"splits":[` + strings.Replace(whole, "all", "train", 1) + `,` + whole + `]}`},
		{[]string{"folder:test", "--set", "train_share=0", "--set", "on_error=skip", "--root", root},
			`{"splits":[{"name":"folder","split":"test","images":4,"classes":3,"categories":0,"min":1,"median":1,"max":2,"lone":2,"skipped":1,"histogram":[{"from":1,"to":1,"classes":2},{"from":2,"to":2,"classes":1}]}]}`},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"data", "stats", "--json"}, c.args...)...)
		if code != codeDone || stderr != "" || stdout != c.want+"\n" {
			t.Errorf("%v: code %d, stderr %q\n got %swant %s", c.args, code, stderr, stdout, c.want)
		}
	}
}

// The batches of FastAP and of RaMBO on Online Products' official list: 66
// pairs of categories, 5 and 10 batches each.
func TestDataStatsOfASampler(t *testing.T) {
	root := datatest.Shared(t, "sop-lists")
	for _, c := range []struct {
		settings []string
		batches  float64
	}{
		{[]string{"--set", "sampler.batch=256", "--set", "sampler.batches_per_pair=5"}, 330},
		{[]string{"--set", "sampler.batch=128", "--set", "sampler.samples=4", "--set", "sampler.batches_per_pair=10"}, 660},
	} {
		stdout, stderr, code := roadmap(t, append([]string{"data", "stats", "sop:train", "--root", root, "--sampler", "hard", "--json"}, c.settings...)...)
		if code != codeDone {
			t.Fatalf("code %d, stderr %q", code, stderr)
		}
		coverage := object(t, stdout)["coverage"].(map[string]any)
		if coverage["batches"] != c.batches || coverage["category_pairs"] != 66.0 || coverage["classes_seen"] != 11318.0 || coverage["copies"] != 0.0 {
			t.Errorf("%v: %v", c.settings, coverage)
		}
	}
	stdout, _, code := roadmap(t, "data", "stats", "glyphs", "--sampler", "confusion", "--set", "sampler.clusters=4", "--set", "copies=1")
	if code != codeDone || !strings.Contains(stdout, "30 (6 pairs of 4 categories × 5 batches)") || !strings.Contains(stdout, "glyphs  │ test") {
		t.Errorf("code %d, %s", code, stdout)
	}
}

func TestDataValidate(t *testing.T) {
	stdout, stderr, code := roadmap(t, "data", "validate", photos(t, false), "--json", "-q")
	if code != codeDone || stderr != "" || len(object(t, stdout)["broken"].([]any)) != 0 {
		t.Errorf("whole images: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	root := photos(t, true)
	for _, args := range [][]string{{root}, {"folder", "--root", root}, {root, "--set", "data.on_error=skip"}} {
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
		if !strings.Contains(stderr, "roadmap: "+args[0]+": broken images: 1 (of ") || !strings.HasSuffix(stderr, "; mend them, or write a list without them with --fix\n") {
			t.Errorf("%v: stderr %q", args, stderr)
		}
	}
	stdout, _, _ = roadmap(t, "data", "validate", root)
	if !strings.HasPrefix(stdout, "broken: "+filepath.Join(root, "b", "2.png")+": ") || !strings.Contains(stdout, "\nimages read: 5; missing: 0; broken: 1; ") {
		t.Errorf("stdout %q", stdout)
	}
}

// A list with every fault, and the clean one that --fix makes of it.
func TestDataValidateFix(t *testing.T) {
	root := photos(t, true) // b/2.png is cut
	if err := os.Link(filepath.Join(root, "a", "1.png"), filepath.Join(root, "a", "copy.png")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(root, "a", "1.png"), filepath.Join(root, "b", "copy.png")); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(root, "all.csv")
	content := "path,label,split\na/1.png,a,train\na/2.png,a,train\na/copy.png,a,train\na/2.png,a,test\nb/1.png,a,train\nc/1.png,c,train\n" +
		"b/2.png,b,test\nb/gone.png,b,test\nb/1.png,b,test\nb/1.png,b,test\n"
	if err := os.WriteFile(list, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	fixed := filepath.Join(root, "clean.csv")
	stdout, stderr, code := roadmap(t, "data", "validate", list, "--json", "-q")
	if code != codeInput || !strings.Contains(stderr, "missing images: 1; broken images: 1; images that both train and test: 2") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	found := object(t, stdout)
	for key, n := range map[string]int{"missing": 1, "broken": 1, "repeated": 1, "leaked_paths": 2, "duplicates": 3} {
		if got := len(found[key].([]any)); got != n {
			t.Errorf("%s: %d, want %d: %v", key, got, n, found[key])
		}
	}
	if found["conflicts"] != 1.0 || found["leaked"] != 2.0 || found["shared"] != 1.0 {
		t.Errorf("conflicts %v, leaked %v, shared %v", found["conflicts"], found["leaked"], found["shared"])
	}
	stdout, stderr, code = roadmap(t, "data", "validate", list, "--fix", fixed, "--json", "-q")
	if code != codeDone || object(t, stdout)["kept"] != 1.0 {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	// Of a/1 and its copy one would stay, but alone in its class; a/2 trains and
	// tests, so it tests; b/1 has two classes.
	clean, err := os.ReadFile(fixed)
	if want := "label,path,split\na," + filepath.Join(root, "a", "2.png") + ",validation\n"; err != nil || string(clean) != want {
		t.Errorf("%v\n got %q\nwant %q", err, clean, want)
	}
	if _, stderr, code = roadmap(t, "data", "validate", fixed, "-q"); code != codeDone {
		t.Errorf("the clean list: code %d, %s", code, stderr)
	}
	if _, stderr, code = roadmap(t, "data", "validate", list, "--fix", list, "-q"); code != codeInput || !strings.Contains(stderr, list) {
		t.Errorf("--fix over a file that exists: code %d, %s", code, stderr)
	}
}

func TestDataShow(t *testing.T) {
	root, dir := photos(t, true), t.TempDir()
	sheet := filepath.Join(dir, "sheet.png")
	stdout, stderr, code := roadmap(t, "data", "show", root, "--out", sheet, "--side", "32", "--images", "1", "--json")
	if code != codeDone || object(t, stdout)["images"] != 3.0 {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	f, err := os.Open(sheet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 3*32 {
		t.Errorf("%v, %v", img, err)
	}
	page := filepath.Join(dir, "batch.html")
	args := []string{"data", "show", "glyphs", "--set", "copies=1", "--sampler", "balanced", "--set", "sampler.classes=3", "--set", "sampler.samples=2",
		"--transform", "resize=24,channels=1,mean=0.5,std=0.25,augment.rotate=20", "--out", page, "--json"}
	stdout, stderr, code = roadmap(t, args...)
	if o := object(t, stdout); code != codeDone || o["images"] != 6.0 || o["columns"] != 3.0 {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	first, err := os.ReadFile(page)
	if err != nil || bytes.Count(first, []byte("data:image/jpeg;base64,")) != 6 {
		t.Errorf("%v, %d pictures", err, bytes.Count(first, []byte("data:image/jpeg;base64,")))
	}
	if stdout, stderr, code = roadmap(t, append(args, "--force")...); code != codeDone {
		t.Fatalf("code %d, %s%s", code, stdout, stderr)
	}
	if again, err := os.ReadFile(page); err != nil || !bytes.Equal(first, again) {
		t.Errorf("%v, or the same command gives other bytes", err)
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
		{[]string{"stats", filepath.Join(root, "none")}, "sop, vehicleid, veri776, vggface2), nor a folder, an archive or a list"},
		{[]string{"stats", "glyph"}, "did you mean glyphs?"},
		{[]string{"stats", "glyphs:tset"}, `unknown split "tset"; did you mean "test"?`},
		{[]string{"stats", "glyphs", "--set", "sied=3"}, `parameter "sied=3": unknown key sied; did you mean side?`},
		{[]string{"stats", "glyphs", "--set", "side=3"}, "side is 3; give 8 to 512 pixels"},
		{[]string{"stats", root, "--set", "side=3"}, "unknown key side"},
		{[]string{"stats", filepath.Join(root, "none"), "--set", "nested=true"}, "is neither a dataset"},
		{[]string{"stats", root, "--root", root, "--set", "nested=true"}, "drop the root"},
		{[]string{"stats", "omniglot", "--root", root}, "images_background"},
		{[]string{"stats", "glyphs", "--set", "sampler.batch=8"}, "--set sampler.batch=8 belongs to --sampler"},
		{[]string{"stats", "glyphs", "--sampler", "hrad"}, `unknown sampler "hrad"; did you mean "hard"?`},
		{[]string{"stats", root, "--sampler", "hard"}, "folder train: sampler hard: the dataset has no categories"},
		{[]string{"stats", "glyphs", "--sampler", "hard", "--epoch", "-1"}, "--epoch is -1"},
		{[]string{"show", "glyphs", "--out", "x.gif"}, "must end in .png or .html"},
		{[]string{"show", "glyphs", "--out", filepath.Join(root, "x.png"), "--side", "2"}, "--side is 2; give 16 to 1024"},
		{[]string{"show", "glyphs", "--out", filepath.Join(root, "x.png"), "--sampler", "balanced", "--batch", "100000"}, "--batch is 100000; an epoch has the batches 0 to "},
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
