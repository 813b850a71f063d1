package data

import (
	"image"
	"path/filepath"
	"testing"
)

// The official ground truth of both.
func TestRevisitedOfficialCounts(t *testing.T) {
	for _, name := range []string{"roxford5k", "rparis6k"} {
		root := rootOf(t, nil, map[string]string{name + "/gnd_" + name + ".pkl": "revisitop/gnd_" + name + ".pkl"})
		c, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		c.(*Revisited).Root = root
		splits := checkOfficial(t, c)
		test := splits[Test]
		if len(test.Queries()) != 70 || len(test.Gallery()) != test.Len()-70 || test.Protocol != "revisited" ||
			test.GroundTruth != filepath.Join(root, name, "gnd_"+name+".pkl") {
			t.Errorf("%s: %v, protocol %q, ground truth %s", name, test.Stats(), test.Protocol, test.GroundTruth)
		}
		for i, it := range test.Items {
			if (i < 70) != (it.Role == QueryOnly) || (i < 70) == it.Box.Empty() {
				t.Fatalf("%s: item %d: %+v", name, i, it)
			}
		}
	}
}

// A query is its box of the photograph; the edges are rounded as Pillow's crop
// does. The first of Oxford is 136.5, 34.1, 648.5, 955.7.
func TestRevisitedBoxes(t *testing.T) {
	root := rootOf(t, nil, map[string]string{"gnd_roxford5k.pkl": "revisitop/gnd_roxford5k.pkl"})
	d := open(t, &Revisited{Official: Official{Root: root, OnError: Fail}, dataset: "roxford5k"}, Query)
	it := &d.Items[0]
	if it.Class != "all_souls" || it.Box != image.Rect(136, 34, 648, 956) {
		t.Fatalf("%+v", it)
	}
	photo := picture(768, 1024, 3)
	name := filepath.Base(it.Path)
	root = rootOf(t, map[string][]byte{"jpg/" + name: pngOf(t, photo)}, map[string]string{"gnd_roxford5k.pkl": "revisitop/gnd_roxford5k.pkl"})
	d = open(t, &Revisited{Official: Official{Root: root, OnError: Fail}, dataset: "roxford5k"}, Query)
	shows(t, &d.Items[0], photo.SubImage(image.Rect(136, 34, 648, 956)))
}
