package data

import (
	"os"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

func cubLists(t *testing.T) string {
	t.Helper()
	lists := map[string]string{}
	for _, name := range []string{"images.txt", "image_class_labels.txt", "classes.txt", "train_test_split.txt"} {
		lists["CUB_200_2011/"+name] = "cub200-lists/" + name
	}
	return rootOf(t, nil, lists)
}

func TestCUBOfficialCounts(t *testing.T) {
	root := cubLists(t)
	classes := &CUB{Official: Official{Root: root, OnError: Fail}, Protocol: "classes"}
	splits := checkOfficial(t, classes)
	checkSplits(t, classes)
	// The published lists of the split by classes.
	for split, name := range map[string]string{Train: "cub_train.csv", Test: "cub_test.csv"} {
		content, err := os.ReadFile(datatest.Shared(t, "cub200-lists/"+name))
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, line := range strings.Fields(string(content)) {
			_, path, _ := strings.Cut(line, ",")
			listed[path] = true
		}
		for _, it := range splits[split].Items {
			path := it.Path[strings.Index(it.Path, "images/")+len("images/"):]
			if !listed[path] {
				t.Fatalf("%s: %s is not in %s", split, path, name)
			}
		}
	}
	checkOfficial(t, &CUB{Official: Official{Root: root, OnError: Fail}, Protocol: "official"})
}

// A dataset in CUB's format: classes without names, of numbers with gaps.
func TestCUBFormat(t *testing.T) {
	files := map[string][]byte{
		"images.txt":             []byte("a x/1.png\nb x/2.png\nc y/1.png\nd y/2.png\ne z/1.png\n"),
		"image_class_labels.txt": []byte("a 10\nb 10\nc 9\nd 9\ne 30\n"),
		"train_test_split.txt":   []byte("a 1\nb 0\nc 1\nd 0\ne 0\n"),
		"images/y/2.png":         pngOf(t, picture(4, 4, 9)),
	}
	root := write(t, files)
	half := &CUB{Official: Official{Root: root, OnError: Fail}, Protocol: "classes"}
	d := open(t, half, Train)
	if d.Len() != 2 || d.Items[0].Class != "9" || d.Official != nil {
		t.Errorf("half of 3 classes, rounded down, is class 9: %+v, said %v", d.Items, d.Official)
	}
	shows(t, &d.Items[1], picture(4, 4, 9))
	half.TrainClasses = 2
	if d := open(t, half, Test); d.Len() != 1 || d.Items[0].Class != "30" {
		t.Errorf("%+v", d.Items)
	}
	checkSplits(t, half)
	official := &CUB{Official: Official{Root: root, OnError: Fail}, Protocol: "official"}
	if train, test := open(t, official, Train), open(t, official, Test); train.Len() != 2 || test.Len() != 3 || test.Items[0].Class != "10" {
		t.Errorf("%+v, %+v", train.Items, test.Items)
	}
	for name, c := range map[string]struct{ file, content, says string }{
		"no label":    {"image_class_labels.txt", "a 10\n", "images.txt:2: image b has no line in image_class_labels.txt"},
		"label twice": {"image_class_labels.txt", "a 10\na 9\n", "image_class_labels.txt:2: image a is listed twice"},
		"image twice": {"images.txt", "a x/1.png\na x/2.png\n", "images.txt:2: image a is listed twice"},
		"traversal":   {"images.txt", "a ../../x.png\n", "images.txt:1: the path"},
		"split":       {"train_test_split.txt", "a 2\n", "1 is for training"},
		"no split":    {"train_test_split.txt", "a 1\n", "image b, 2.png, is not listed"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := map[string][]byte{}
			for file, content := range files {
				bad[file] = content
			}
			bad[c.file] = []byte(c.content)
			_, err := (&CUB{Official: Official{Root: write(t, bad), OnError: Fail}, Protocol: "official"}).Open(Train)
			faulttest.Refused(t, err, c.says)
		})
	}
	faulttest.Refused(t, (&CUB{Official: Official{OnError: Fail}, Protocol: "half"}).Validate(), `protocol is "half"`)
	faulttest.Refused(t, (&CUB{Official: Official{OnError: Fail}, Protocol: "classes", TrainClasses: -1}).Validate(), "train_classes is -1")
}
