package eval

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault"
	"roadmap/pkg/fault/faulttest"
)

// TestOfficialGroundTruth reads the published files; the totals are those of
// the data set's documentation.
func TestOfficialGroundTruth(t *testing.T) {
	dir := datatest.Shared(t, "revisitop")
	for name, want := range map[string]struct{ gallery, easy, hard, junk, noEasy int }{
		"gnd_roxford5k.pkl": {4993, 3029, 2497, 1356, 2},
		"gnd_rparis6k.pkl":  {6322, 6874, 10350, 7153, 0},
	} {
		g, err := ReadGroundTruth(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		easy, hard, junk, noEasy := 0, 0, 0, 0
		for _, j := range g.Judgements {
			easy, hard, junk = easy+len(j.Easy), hard+len(j.Hard), junk+len(j.Junk)
			if len(j.Easy) == 0 {
				noEasy++
			}
			if j.Box[2] <= j.Box[0] || j.Box[3] <= j.Box[1] {
				t.Errorf("%s: the box %v is empty", name, j.Box)
			}
		}
		if len(g.Gallery) != want.gallery || len(g.Queries) != 70 || easy != want.easy || hard != want.hard || junk != want.junk || noEasy != want.noEasy {
			t.Errorf("%s: %d images, %d queries, %d easy, %d hard, %d junk, %d without easy ones",
				name, len(g.Gallery), len(g.Queries), easy, hard, junk, noEasy)
		}
	}
}

func TestOtherGroundTruth(t *testing.T) {
	const lists = "U\x06imlist](U\x01aU\x01bU\x01ceU\x07qimlist]U\x01qaU\x03gnd]"
	gnd := func(easy, hard, junk, box string) string {
		return "}(" + lists + "}(U\x04easy](" + easy + "eU\x04hard](" + hard + "eU\x04junk](" + junk + "eU\x03bbx](" + box + "euau."
	}
	const box = "F0.\nK\x00F1.5\nK\x02" // floats and integers
	for program, part := range map[string]string{
		"N.": "not a dict",
		"}.": "imlist is missing",
		"}U\x06imlistcnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87Rs.": "imlist: not a list; a NumPy array",
		"}U\x06imlist]K\x01as.":               "imlist[0]: of an unexpected type",
		"}(" + lists + "u.":                   "1 queries in qimlist, 0 in gnd",
		gnd("K\x03", "", "", box):             "gnd[0]: easy: image 3 of 3",
		gnd("", "J\xff\xff\xff\xff", "", box): "gnd[0]: hard: image -1 of 3",
		gnd("K\x00", "", "K\x00", box):        "gnd[0]: junk: image 0 is listed twice",
		gnd("K\x00", "", "", "F0.\n"):         "gnd[0]: bbx: not a list of 4 numbers",
		gnd("K\x00", "", "", "NNNN"):          "gnd[0]: bbx[0]: not a number",
		"cos\nsystem\n(U\x04harmtR.":          "wants os.system called",
	} {
		path := filepath.Join(t.TempDir(), "gnd.pkl")
		if err := os.WriteFile(path, []byte(program), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := ReadGroundTruth(path)
		faulttest.Refused(t, err, path, part)
	}
	path := filepath.Join(t.TempDir(), "gnd.pkl")
	if err := os.WriteFile(path, []byte(gnd("K\x02", "K\x00", "", box)), 0o644); err != nil {
		t.Fatal(err)
	}
	if g, err := ReadGroundTruth(path); err != nil || !slices.Equal(g.Judgements[0].Easy, []int{2}) || g.Judgements[0].Box != [4]float64{0, 0, 1.5, 2} || g.Gallery[2] != "c" {
		t.Errorf("%+v, %v", g, err)
	}
}

// FuzzGroundTruth: whatever a file holds, it is refused as the user's input, or
// every query has its judgement, of images that are there, each in one list.
func FuzzGroundTruth(f *testing.F) {
	f.Add([]byte("}(U\x06imlist](U\x01aU\x01beU\x07qimlist]U\x01qaU\x03gnd]}(U\x04easy]K\x01aU\x04hard]K\x00aU\x04junk]U\x03bbx](F0.\nK\x00K\x01K\x02euau."))
	f.Add([]byte("}U\x06imlist]K\x01as."))
	f.Add([]byte("cos\nsystem\n(U\x04harmtR."))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "gnd.pkl")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		g, err := ReadGroundTruth(path)
		if err != nil {
			if !fault.IsInput(err) {
				t.Fatalf("%v is no input error", err)
			}
			return
		}
		if len(g.Judgements) != len(g.Queries) {
			t.Fatalf("%d judgements of %d queries", len(g.Judgements), len(g.Queries))
		}
		for _, j := range g.Judgements {
			seen := map[int]bool{}
			for _, image := range slices.Concat(j.Easy, j.Hard, j.Junk) {
				if image < 0 || image >= len(g.Gallery) || seen[image] {
					t.Fatalf("image %d of %d, in %+v", image, len(g.Gallery), j)
				}
				seen[image] = true
			}
		}
	})
}
