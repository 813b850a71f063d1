package data

import (
	"bytes"
	"image"
	"testing"
)

func TestSOPOfficialCounts(t *testing.T) {
	// The lists in their published CSV form; the official form is made of them.
	root := rootOf(t, nil, map[string]string{
		"stanford_online_train.csv": "sop-lists/stanford_online_train.csv",
		"stanford_online_test.csv":  "sop-lists/stanford_online_test.csv",
	})
	s := &SOP{Official{Root: root, OnError: Fail}}
	checkOfficial(t, s)
	checkSplits(t, s)
	if d := open(t, s, Train); d.Items[0].Class != "1" || d.Items[0].Category != "bicycle_final" || d.Categories()[0] != 0 {
		t.Errorf("%+v", d.Items[0])
	}
}

func TestSOPImages(t *testing.T) {
	s := &SOP{Official{Root: write(t, tinySOP(t)), OnError: Fail}}
	checkSplits(t, s)
	d := open(t, s, Train)
	if d.Len() != 2 || len(d.Classes) != 1 {
		t.Fatalf("%+v", d.Items)
	}
	want, _, err := image.Decode(bytes.NewReader(jpegOf(t, picture(8, 8, 2))))
	if err != nil {
		t.Fatal(err)
	}
	shows(t, &d.Items[1], want)
}
