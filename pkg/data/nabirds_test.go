package data

import (
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestNABirdsOfficialCounts(t *testing.T) {
	lists := map[string]string{}
	for _, name := range []string{"images.txt.gz", "image_class_labels.txt.gz", "train_test_split.txt.gz", "classes.txt", "hierarchy.txt"} {
		lists[name] = "nabirds-lists/" + name
	}
	root := rootOf(t, nil, lists)
	splits := checkOfficial(t, &NABirds{Official: Official{Root: root, OnError: Fail}, Protocol: "official"})
	if s := splits[All].Stats(); s.Categories != 22 || s.Classes != 555 {
		t.Errorf("%v", s)
	}
	classes := &NABirds{Official: Official{Root: root, OnError: Fail}, Protocol: "classes"}
	checkSplits(t, classes)
	if d := open(t, classes, Train); len(d.Classes) != 555/2 {
		t.Errorf("%d classes train, want half of 555, rounded down", len(d.Classes))
	}
}

func TestNABirdsHierarchy(t *testing.T) {
	files := map[string][]byte{
		"images.txt":             []byte("a 7/a.png\nb 8/b.png\n"),
		"image_class_labels.txt": []byte("a 7\nb 8\n"),
		"train_test_split.txt":   []byte("a 1\nb 0\n"),
		"classes.txt":            []byte("0 Birds\n1 Ducks, Geese, and Swans\n7 Mallard\n8 Mallard\n"),
		"hierarchy.txt":          []byte("1 0\n3 1\n7 3\n8 1\n"),
		"images/8/b.png":         pngOf(t, picture(4, 4, 9)),
	}
	n := &NABirds{Official: Official{Root: write(t, files), OnError: Fail}, Protocol: "official"}
	d := open(t, n, Test)
	if it := d.Items[0]; it.Class != "Mallard (8)" || it.Category != "Ducks, Geese, and Swans" {
		t.Errorf("%+v", it)
	}
	shows(t, &d.Items[0], picture(4, 4, 9))
	files["hierarchy.txt"] = []byte("7 3\n3 7\n8 0\n")
	_, err := (&NABirds{Official: Official{Root: write(t, files), OnError: Fail}, Protocol: "official"}).Open(Test)
	faulttest.Refused(t, err, "class 7 does not lead to the root")
}
