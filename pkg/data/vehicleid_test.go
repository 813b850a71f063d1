package data

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// vehicleLists makes the official test lists of their published JSON form.
func vehicleLists(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for _, set := range []struct{ json, list string }{{"small", "800"}, {"median", "1600"}, {"large", "2400"}} {
		f, err := os.Open(datatest.Shared(t, "vehicleid-lists/vehicleid_test_"+set.json+".json.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		var images []struct {
			Filename string
			VID      int
		}
		if err := json.NewDecoder(z).Decode(&images); err != nil {
			t.Fatal(err)
		}
		var list strings.Builder
		for _, i := range images {
			fmt.Fprintln(&list, strings.TrimSuffix(i.Filename, ".jpg"), i.VID)
		}
		files["VehicleID_V1.0/train_test_split/test_list_"+set.list+".txt"] = []byte(list.String())
	}
	return files
}

func TestVehicleIDOfficialCounts(t *testing.T) {
	root := rootOf(t, vehicleLists(t), map[string]string{"VehicleID_V1.0/train_test_split/train_list.txt": "vehicleid-lists/train_50000.txt"})
	v := &VehicleID{Official: Official{Root: root, OnError: Fail}, Test: "medium"}
	for split, want := range map[string][2]int{"small": {6493, 800}, "medium": {13377, 1600}, "large": {19777, 2400}, Test: {13377, 1600}} {
		d := open(t, v, split)
		if d.Len() != want[0] || len(d.Classes) != want[1] || d.Protocol != "vehicleid" || d.Miscounted() != nil {
			t.Errorf("%s: %v, protocol %q, %v", split, d.Stats(), d.Protocol, d.Miscounted())
		}
	}
	// A part of the training list alone is at hand.
	train := open(t, v, Train)
	if train.Len() != 49999 || train.Protocol != "" || !slices.Equal(train.Miscounted(), []string{
		"images: 49999, expected 113346", "classes: 5055, expected 13164 (the list as its authors revised it after the paper)"}) {
		t.Errorf("%v, %v", train.Stats(), train.Miscounted())
	}
	// An image in several sets has one id.
	ids := map[string]int{}
	for _, it := range open(t, v, All).Items {
		if _, double := ids[it.Path]; double {
			t.Fatalf("%s is there twice", it.Path)
		}
		ids[it.Path] = it.ID
	}
	for _, split := range v.Splits() {
		for _, it := range open(t, v, split).Items {
			if ids[it.Path] != it.ID {
				t.Fatalf("%s is %d in %s and %d in all", it.Path, it.ID, split, ids[it.Path])
			}
		}
	}
}

func TestVehicleIDModels(t *testing.T) {
	files := map[string][]byte{
		"train_test_split/train_list.txt":    []byte("0000001 7\n0000002 7\n0000003 8"),
		"train_test_split/test_list_800.txt": []byte("0000004 9\n"),
		"attribute/model_attr.txt":           []byte("7 249\n9 0\n"),
		"attribute/color_attr.txt":           []byte("7 3\n"),
		"image/0000003.jpg":                  pngOf(t, picture(6, 4, 2)),
	}
	v := &VehicleID{Official: Official{Root: write(t, files), OnError: Fail}, Test: "small"}
	d := open(t, v, Train)
	if got := d.Categories(); !slices.Equal(got, []int64{0, 0, -1}) || d.Items[0].Category != "249" || d.Items[0].Further[0] != "3" {
		t.Errorf("categories %v, %+v", got, d.Items)
	}
	if s := d.Stats(); s.Categories != 1 || s.Without != 1 || len(d.Levels()) != 1 {
		t.Errorf("%v, %d levels; the category is no level for images without one", s, len(d.Levels()))
	}
	shows(t, &d.Items[2], picture(6, 4, 2))
	_, err := v.Open("large")
	faulttest.Refused(t, err, "test_list_2400.txt", "no such file")
	files["train_test_split/test_list_800.txt"] = []byte("0000001 9\n")
	_, err = (&VehicleID{Official: Official{Root: write(t, files), OnError: Fail}, Test: "small"}).Open(Test)
	faulttest.Refused(t, err, "test_list_800.txt:1:", "car 9 here and of car 7")
	faulttest.Refused(t, (&VehicleID{Official: Official{OnError: Fail}, Test: "tiny"}).Validate(), `test is "tiny"`)
}
