package data

import (
	"os"
	"path/filepath"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A pickle as Python writes it (testdata/official_reference.py).
func TestSfM120k(t *testing.T) {
	files := map[string][]byte{
		"retrieval-SfM-120k/retrieval-SfM-120k.pkl":        testdata(t, "sfm.pkl"),
		"retrieval-SfM-120k/ims/03/01/00/ffffffffff000103": jpegOf(t, picture(30, 4, 1)),
		"retrieval-SfM-120k/ims/11/10/0f/0a0b0c0d0e0f1011": pngOf(t, picture(4, 30, 2)),
	}
	s := &SfM120k{Official{Root: write(t, files), OnError: Fail}}
	checkSplits(t, s)
	train, test := open(t, s, Train), open(t, s, Test)
	if train.Len() != 3 || len(train.Classes) != 2 || train.Items[2].Class != "train 9" || test.Items[0].Class != "val 4" || len(train.Miscounted()) != 2 {
		t.Errorf("%+v, %+v", train.Items, test.Items)
	}
	shows(t, &test.Items[0], picture(4, 30, 2))
	if _, err := train.Items[2].Image(); err != nil {
		t.Error(err)
	}
	for content, says := range map[string]string{
		"no pickle":                "retrieval-SfM-120k.pkl",
		"\x80\x02]q\x00.":          "no dict",
		"\x80\x02}q\x00.":          "no dict train",
		"\x80\x02}(U\x05train}us.": "retrieval-SfM-120k.pkl",
		"\x80\x02}(U\x05train}u.":  "no list cids",
		"\x80\x02}(U\x05train}(U\x04cids]U\x03../aU\x07cluster]uu.":                 "retrieval-SfM-120k.pkl",
		"\x80\x02}(U\x05train}(U\x04cids](U\x0b/../../../xeU\x07cluster](K\x01euu.": "leads out of",
		"\x80\x02}(U\x05train}(U\x04cids](U\x03abceU\x07cluster](K\x01euu.":         "at least 6 letters",
		"\x80\x02}(U\x05train}(U\x04cids](U\x08abcdefgheU\x07cluster]uu.":           "1 cids, but 0 of cluster",
	} {
		root := write(t, map[string][]byte{"retrieval-SfM-120k.pkl": []byte(content)})
		_, err := (&SfM120k{Official{Root: root, OnError: Fail}}).Open(Train)
		faulttest.Refused(t, err, says)
	}
}
