package data

import (
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// The official lists and reduced images, read in the archive.
func TestGroceryOfficialCounts(t *testing.T) {
	root := datatest.Shared(t, "grocerystore/grocerystore-96px.zip")
	splits := checkOfficial(t, &Grocery{Official: Official{Root: root, OnError: Fail}, Protocol: "official"})
	levels := splits[Train].Levels()
	if len(levels) != 3 || levels[2].Name != "group" || len(levels[2].Names) != 3 {
		t.Errorf("levels %v", levels)
	}
	it := &splits[Train].Items[0]
	if it.Class != "Golden-Delicious" || it.Category != "Apple" || it.Further[0] != "Fruit" {
		t.Errorf("%+v", it)
	}
	if img, err := it.Image(); err != nil || min(img.Bounds().Dx(), img.Bounds().Dy()) != 96 {
		t.Errorf("%v", err)
	}
	classes := &Grocery{Official: Official{Root: root, OnError: Fail}, Protocol: "classes"}
	checkSplits(t, classes)
	if d := open(t, classes, Train); len(d.Classes) != 40 {
		t.Errorf("%d classes train, want half of 81, rounded down", len(d.Classes))
	}
}

func TestGroceryBadLists(t *testing.T) {
	for line, says := range map[string]string{
		"train/a.jpg, 7, 0":  "class 7 is not in classes.csv",
		"train/a.jpg, 0":     "2 fields",
		"../train/a.jpg,0,0": "leads out of",
	} {
		root := write(t, map[string][]byte{"classes.csv": []byte("name,id,coarse,id\nApple,0,Fruit,0\n"), "train.txt": []byte(line + "\n"), "val.txt": nil, "test.txt": nil})
		_, err := (&Grocery{Official: Official{Root: root, OnError: Fail}, Protocol: "official"}).Open(Train)
		faulttest.Refused(t, err, "train.txt:1:", says)
	}
	faulttest.Refused(t, (&Grocery{Official: Official{OnError: Fail}}).Validate(), "protocol is")
}
