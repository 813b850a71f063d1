package data

import (
	"bufio"
	"os"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// The official training list, with the colours and types that a list of
// images, vehicles, colours and types gives.
func TestVeRi776OfficialCounts(t *testing.T) {
	f, err := os.Open(datatest.Shared(t, "veri776-lists/train-id-col-mod.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var names, labels strings.Builder
	labels.WriteString("<?xml version=\"1.0\" encoding=\"gb2312\"?>\n<TrainingImages><Items number=\"37778\">\n<!-- \xb3\xb5 -->\n")
	for s := bufio.NewScanner(f); s.Scan(); {
		field := strings.Fields(s.Text())
		names.WriteString(field[0] + "\r\n")
		labels.WriteString(`<Item imageName="` + field[0] + `" vehicleID="` + field[0][:4] + `" cameraID="c001" colorID="` + field[2] + `" typeID="` + field[3] + "\" />\n")
	}
	labels.WriteString("</Items></TrainingImages>\n")
	root := write(t, map[string][]byte{
		"VeRi/name_train.txt": []byte(names.String()), "VeRi/train_label.xml": []byte(labels.String()),
		"VeRi/name_query.txt": []byte("0002_c002_00030600_0.jpg\n"), "VeRi/name_test.txt": []byte("0002_c001_00030600_0.jpg\n"),
	})
	d := open(t, &VeRi776{Official{Root: root, OnError: Fail}}, Train)
	if faults := d.Miscounted(); faults != nil {
		t.Error(faults)
	}
	levels := d.Levels()
	if len(levels) != 3 || len(levels[1].Names) != 9 || levels[2].Name != "colour" || len(levels[2].Names) != 10 {
		t.Errorf("%d levels; want the 9 types as categories and 10 colours", len(levels))
	}
}

// Queries and gallery, and whom a query does not meet: its own vehicle by its
// own camera.
func TestVeRi776Protocol(t *testing.T) {
	files := map[string][]byte{
		"image_train/0001_c001_00000001_0.jpg": pngOf(t, picture(4, 4, 1)),
		"image_query/0002_c002_00000002_0.jpg": pngOf(t, picture(4, 4, 2)),
		"image_test/0002_c002_00000002_0.jpg":  pngOf(t, picture(4, 4, 2)),
		"image_test/0002_c003_00000003_0.jpg":  pngOf(t, picture(4, 4, 3)),
		"image_test/0005_c002_00000003_0.jpg":  pngOf(t, picture(4, 4, 4)),
	}
	v := &VeRi776{Official{Root: write(t, files), OnError: Fail}} // without lists of names
	d := open(t, v, Test)
	if q, g := d.Queries(), d.Gallery(); !slices.Equal(q, []int{0}) || !slices.Equal(g, []int{1, 2, 3}) {
		t.Errorf("queries %v, gallery %v", q, g)
	}
	groups := d.Groups()
	if groups[0] != groups[1] || groups[0] == groups[2] || groups[0] == groups[3] {
		t.Errorf("groups %v: the query meets rows 2 and 3 alone", groups)
	}
	if train := open(t, v, Train); train.Groups() != nil || train.Categories() != nil {
		t.Errorf("%+v", train.Items)
	}
	shows(t, &d.Items[2], picture(4, 4, 3))
	files["name_train.txt"] = []byte("0001.jpg\n")
	_, err := (&VeRi776{Official{Root: write(t, files), OnError: Fail}}).Open(Train)
	faulttest.Refused(t, err, "name_train.txt:1:", "VEHICLE_CAMERA")
	files["name_train.txt"], files["train_label.xml"] = []byte("0001_c001_00000001_0.jpg\n"), []byte("<TrainingImages><Item vehicleID=\"1\"")
	_, err = (&VeRi776{Official{Root: write(t, files), OnError: Fail}}).Open(Train)
	faulttest.Refused(t, err, "train_label.xml:", "official file")
}
