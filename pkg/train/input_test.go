package train

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/fault/faulttest"
)

// listed opens a list of test images, none of which is read.
func listed(t *testing.T, content string) *data.Dataset {
	t.Helper()
	name := filepath.Join(t.TempDir(), "l.csv")
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := (&data.List{Test: name, OnError: data.Fail}).Open(data.Test)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestInputIsDividedAsTheDatasetSays(t *testing.T) {
	rows := []float32{0, 1, 10, 11, 20, 21, 30, 31}
	in, err := Input(listed(t, "path,label,category\na,x,p\nb,y,p\nc,x,q\nd,y,q\n"), rows, 2)
	if err != nil || in.Gallery != nil || in.GalleryLabels != nil || !slices.Equal(in.QueryLabels, []int64{0, 1, 0, 1}) || in.Query.Rows() != 4 {
		t.Errorf("%+v, %v", in, err)
	}
	if len(in.Levels) != 1 || in.Levels[0].Gallery != nil || !slices.Equal(in.Levels[0].Query, []int64{0, 0, 1, 1}) {
		t.Errorf("levels %+v", in.Levels)
	}
	d := listed(t, "path,label,category,is_query,is_gallery\na,x,p,0,1\nb,y,p,1,0\nc,x,q,1,0\nd,z,q,0,1\n")
	if in, err = Input(d, rows, 2); err != nil || in.Query.Rows() != 2 || in.Gallery.Rows() != 2 {
		t.Fatalf("%+v, %v", in, err)
	}
	if !slices.Equal(in.QueryLabels, []int64{1, 0}) || !slices.Equal(in.GalleryLabels, []int64{0, 2}) || !slices.Equal(in.Levels[0].Query, []int64{0, 1}) || !slices.Equal(in.Levels[0].Gallery, []int64{0, 1}) {
		t.Errorf("%+v", in)
	}
	if searched(d) != 2 {
		t.Errorf("%d candidates, want the 2 of the gallery", searched(d))
	}
}

func TestInputRefusesWhatItCannotMeasure(t *testing.T) {
	for content, says := range map[string]string{
		"path,label,sequence\na,x,1\nb,x,1\n":                "its own sequence",
		"path,label,is_query,is_gallery\na,x,1,1\nb,x,0,1\n": "query and gallery, others only one",
		"path,label,is_query,is_gallery\na,x,0,1\nb,x,0,1\n": "0 queries and 2 images",
	} {
		_, err := Input(listed(t, content), make([]float32, 4), 2)
		faulttest.Refused(t, err, "list test", says)
	}
	d := listed(t, "path,label\na,x\nb,x\n")
	d.Protocol, d.GroundTruth = "revisited", "gnd.pkl"
	_, err := Input(d, make([]float32, 4), 2)
	faulttest.Refused(t, err, "--protocol revisited --ground-truth gnd.pkl")
	d.Protocol = "vehicleid"
	if _, err := Input(d, make([]float32, 4), 2); err != nil || unlike(d) == "" {
		t.Errorf("%v, %q", err, unlike(d))
	}
}

// A sampler that the run cannot serve is refused before anything is trained.
func TestConfusionIsRefused(t *testing.T) {
	r := NewRecipe()
	r.Data, r.Sampler = config.Named("glyphs"), config.Named("confusion")
	r.Transform = data.Transform{Resize: 28, Channels: 1}
	r.Train.Device = "cpu"
	_, err := New(r, Observer{})
	faulttest.Refused(t, err, "sampler confusion", "choose hard")
}
