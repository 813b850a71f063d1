package data

import (
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func TestVGGFace2(t *testing.T) {
	files := map[string][]byte{
		"data/train/n000002/0001_01.jpg": pngOf(t, picture(4, 4, 1)),
		"data/train/n000002/0002_01.jpg": pngOf(t, picture(4, 4, 2)),
		"data/train/n000003/0001_01.jpg": pngOf(t, picture(4, 4, 3)),
		"data/test/n000001/0001_01.jpg":  pngOf(t, picture(4, 4, 4)),
	}
	v := &VGGFace2{Official{Root: write(t, files), OnError: Fail}}
	checkSplits(t, v)
	d := open(t, v, Train)
	if d.Len() != 3 || len(d.Classes) != 2 || d.Classes[0] != "n000002" || len(d.Miscounted()) != 2 {
		t.Errorf("%v, %v", d.Stats(), d.Miscounted())
	}
	files["data/train_list.txt"] = []byte("n000002/0002_01.jpg\n")
	v = &VGGFace2{Official{Root: write(t, files), OnError: Fail}}
	if d = open(t, v, Train); d.Len() != 1 {
		t.Errorf("a list of one image gives %d", d.Len())
	}
	shows(t, &d.Items[0], picture(4, 4, 2))
	files["data/train_list.txt"] = []byte("../x.jpg\n")
	_, err := (&VGGFace2{Official{Root: write(t, files), OnError: Fail}}).Open(Test)
	faulttest.Refused(t, err, "train_list.txt:1:", "leads out of")
}
