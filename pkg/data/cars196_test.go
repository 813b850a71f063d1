package data

import (
	"maps"
	"slices"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// Files of SciPy's savemat (testdata/official_reference.py), compressed and not.
func TestMat(t *testing.T) {
	for _, name := range []string{"cars_annos.mat", "cars_annos_plain.mat"} {
		v, err := readMat(testdata(t, name))
		if err != nil {
			t.Fatal(name, err)
		}
		if x, ok := v["x"].([]float64); !ok || !slices.Equal(x, []float64{1.5, -2}) {
			t.Errorf("%s: x is %v", name, v["x"])
		}
		names, _ := v["class_names"].([]matValue)
		if len(names) != 2 || names[0] != "AM General Hummer SUV 2000" || names[1] != "Škoda Octavia 2012" {
			t.Errorf("%s: class_names is %v", name, v["class_names"])
		}
		rows, _ := v["annotations"].([]map[string]matValue)
		if len(rows) != 4 || rows[2]["relative_im_path"] != "car_ims/000003.jpg" || !slices.Equal(rows[0]["bbox_x2"].([]float64), []float64{853}) ||
			!slices.Equal(rows[2]["class"].([]float64), []float64{99}) {
			t.Errorf("%s: annotations is %v", name, v["annotations"])
		}
	}
}

// Any bytes are read or refused, never a crash.
func FuzzMat(f *testing.F) {
	plain := testdata(f, "cars_annos_plain.mat")
	f.Add(plain)
	f.Add(testdata(f, "cars_annos.mat"))
	f.Add(plain[:200])
	f.Fuzz(func(t *testing.T, content []byte) {
		if v, err := readMat(content); err == nil && len(content) < 128 {
			t.Errorf("%v of %d bytes", v, len(content))
		}
	})
}

// The first 98 classes train: of the file's four images those of classes 1 and 2.
func TestCars196(t *testing.T) {
	forms := map[string]map[string][]byte{
		"mat":        {"cars_annos.mat": testdata(t, "cars_annos.mat")},
		"csv":        {"cars_annos.csv": []byte("relative_im_path,bbox_x1,class,test\ncar_ims/000001.jpg,3,1,0\ncar_ims/000002.jpg,3,1,1\ncar_ims/000003.jpg,3,99,0\ncar_ims/000004.jpg,4,2,0\n")},
		"two lists":  {"cars_train.csv": []byte("1,car_ims/000001.jpg\n1,car_ims/000002.jpg\n2,car_ims/000004.jpg\n"), "cars_test.csv": []byte("99,000003.jpg\n")},
		"bare names": {"cars_annos.csv": []byte("image,class\n000001.jpg,1\n000002.jpg,1\n000003.jpg,99\n000004.jpg,2\n")},
	}
	for name, files := range forms {
		t.Run(name, func(t *testing.T) {
			files = maps.Clone(files)
			files["car_ims/000003.jpg"] = pngOf(t, picture(5, 5, 1))
			c := &Cars196{Official{Root: write(t, files), OnError: Fail}}
			checkSplits(t, c)
			train, test := open(t, c, Train), open(t, c, Test)
			if train.Len() != 3 || len(train.Classes) != 2 || test.Len() != 1 || test.Items[0].Class != "99" {
				t.Errorf("%+v, %+v", train.Items, test.Items)
			}
			if want := map[bool]string{true: "AM General Hummer SUV 2000", false: "1"}[name == "mat"]; train.Items[0].Class != want {
				t.Errorf("class %s, want %s", train.Items[0].Class, want)
			}
			shows(t, &test.Items[0], picture(5, 5, 1))
		})
	}
	for _, c := range []struct{ file, content, says string }{
		{"cars_annos.mat", "no MATLAB", "no MATLAB level 5 file"},
		{"cars_annos.mat", string(testdata(t, "cars_annos_plain.mat")[:300]), "cut off"},
		{"cars_annos.mat", string(testdata(t, "cars_annos.mat")[:300]), "cut off"},
		{"cars_annos.csv", "path,class\n../a.jpg,1\n", "leads out of"},
		{"cars_annos.csv", "path,class\na.jpg,one\n", `class "one"`},
	} {
		_, err := (&Cars196{Official{Root: write(t, map[string][]byte{c.file: []byte(c.content)}), OnError: Fail}}).Open(Test)
		faulttest.Refused(t, err, c.file, c.says)
	}
}
