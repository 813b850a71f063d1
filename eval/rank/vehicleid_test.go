package rank

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func draw(t *testing.T, labels []int64, repeats int, seed uint64) []Split {
	t.Helper()
	splits, err := VehicleID(labels, repeats, seed)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(splits)
}

func TestVehicleID(t *testing.T) {
	labels := []int64{5, 5, 5, -1, 9, 9, 5, -1, 7} // 7 has one image
	splits := draw(t, labels, 200, 3)
	drawn := map[int]int{} // how often a row was the gallery's
	for _, s := range splits {
		if len(s.Gallery) != 4 || len(s.Query) != 5 {
			t.Fatalf("%v", s)
		}
		all := slices.Concat(s.Gallery, s.Query)
		slices.Sort(all)
		if !slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) || !slices.IsSorted(s.Gallery) || !slices.IsSorted(s.Query) {
			t.Fatalf("%v", s)
		}
		classes := map[int64]bool{}
		for _, row := range s.Gallery {
			classes[labels[row]] = true
			drawn[row]++
		}
		if len(classes) != 4 || !slices.Contains(s.Gallery, 8) {
			t.Fatalf("gallery %v has %d classes", s.Gallery, len(classes))
		}
	}
	for row, want := range []int{50, 50, 50, 100, 100, 100, 50, 100, 200} { // 200 over the class's images
		if got := drawn[row]; got < want-35 || got > want+35 { // five standard deviations of Binomial(200, 1/2)
			t.Errorf("row %d was drawn %d times of 200, expected about %d", row, got, want)
		}
	}
	if again := draw(t, labels, 200, 3); len(again) != 200 || !reflect.DeepEqual(again, splits) {
		t.Error("one seed gave two series of splits")
	}
	if !reflect.DeepEqual(draw(t, labels, 5, 3), splits[:5]) {
		t.Error("a split depends on how many follow it")
	}
	if reflect.DeepEqual(draw(t, labels, 200, 4), splits) {
		t.Error("two seeds gave one series of splits")
	}
	many, err := VehicleID(labels, MaxRepeats, 3)
	if err != nil {
		t.Fatal(err)
	}
	for first := range many { // the others are not drawn
		if !reflect.DeepEqual(first, splits[0]) {
			t.Errorf("%v, want %v", first, splits[0])
		}
		break
	}
	for _, repeats := range []int{0, -1, MaxRepeats + 1, math.MaxInt} {
		_, err = VehicleID(labels, repeats, 3)
		faulttest.Refused(t, err, "repeats: ", "from 1 to 100000")
	}
	_, err = VehicleID([]int64{1, 2}, 1, 3)
	faulttest.Refused(t, err, "no class has a second image")
	_, err = VehicleID(nil, 1, 3)
	faulttest.Refused(t, err, "0 images")
}
