package data

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// The official validation list has three images of each of the 8,142 classes.
// The lists of Smooth-AP are not at hand: divided in two, its numbers show.
func TestINat2018OnTheValidationList(t *testing.T) {
	f, err := os.Open(datatest.Shared(t, "inat2018-lists/iNaturalist18_val.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lists [2]strings.Builder
	for s := bufio.NewScanner(f); s.Scan(); {
		path, class, _ := strings.Cut(s.Text(), " ")
		i := 0
		if len(class) < 4 {
			i = 1
		}
		lists[i].WriteString(path + "\n")
	}
	n := &INat2018{Official{Root: write(t, map[string][]byte{
		"Inat_dataset_splits/Inaturalist_train_set1.txt": []byte(lists[0].String()),
		"Inat_dataset_splits/Inaturalist_test_set1.txt":  []byte(lists[1].String()),
	}), OnError: Fail}}
	checkSplits(t, n)
	all := open(t, n, All)
	if s := all.Stats(); s.Images != 24426 || s.Classes != 8142 || s.Categories != 14 || s.Min != 3 || s.Max != 3 {
		t.Errorf("%v", s)
	}
	if faults := all.Miscounted(); len(faults) != 1 || faults[0] != "images: 24426, expected 461939" {
		t.Errorf("%v", faults)
	}
	if it := all.Items[0]; it.Class != "Plantae/7291" || it.Category != "Plantae" {
		t.Errorf("%+v", it)
	}
}

func TestINat2018Images(t *testing.T) {
	files := map[string][]byte{
		"Inaturalist_train_set1.txt":   []byte("train_val2018/Aves/3/a.jpg\n"),
		"Inaturalist_test_set1.txt":    []byte("train_val2018/Fungi/12/b.jpg\n"),
		"train_val2018/Fungi/12/b.jpg": pngOf(t, picture(6, 4, 2)),
	}
	d := open(t, &INat2018{Official{Root: write(t, files), OnError: Fail}}, Test)
	shows(t, &d.Items[0], picture(6, 4, 2))
	files["Inaturalist_test_set1.txt"] = []byte("b.jpg\n")
	_, err := (&INat2018{Official{Root: write(t, files), OnError: Fail}}).Open(Test)
	faulttest.Refused(t, err, "Inaturalist_test_set1.txt:1:", "no path of the form")
}
