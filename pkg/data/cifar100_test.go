package data

import (
	"encoding/binary"
	"fmt"
	"image"
	"strings"
	"testing"

	"roadmap/pkg/datatest"
	"roadmap/pkg/fault/faulttest"
)

// planes is a picture as the official files hold it.
func planes(img *image.NRGBA) []byte {
	p := make([]byte, cifarPixels)
	for i := range 32 * 32 {
		for c := range 3 {
			p[1024*c+i] = img.Pix[4*i+c]
		}
	}
	return p
}

// python2 is a string as Python 2 pickles it.
func python2(s string) string {
	if len(s) < 256 {
		return "U" + string(rune(len(s)))[:1] + s
	}
	return "T" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// cifarPickle is a file of the official form: what Python 2 wrote of a dict
// with a NumPy array.
func cifarPickle(fine, coarse []byte, pixels string) []byte {
	numbers := func(of []byte) string {
		var b strings.Builder
		b.WriteString("](")
		for _, n := range of {
			b.WriteString("K" + string([]byte{n}))
		}
		return b.String() + "e"
	}
	array := "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2("b") + "\x87R" +
		"(K\x01K" + string([]byte{byte(len(fine))}) + "M\x00\x0c\x86cnumpy\ndtype\n" + python2("u1") + "K\x00K\x01\x87R" +
		"(K\x03" + python2("|") + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89" + python2(pixels) + "tb"
	return []byte("\x80\x02}(" + python2("data") + array + python2("fine_labels") + numbers(fine) + python2("coarse_labels") + numbers(coarse) + "u.")
}

func TestCIFAR100Forms(t *testing.T) {
	a, b, c := picture(32, 32, 1), picture(32, 32, 2), picture(32, 32, 3)
	record := func(coarse, fine byte, img *image.NRGBA) []byte { return append([]byte{coarse, fine}, planes(img)...) }
	forms := map[string]map[string][]byte{
		"binary": {
			"cifar-100-binary/train.bin":              append(record(1, 0, a), record(0, 1, b)...),
			"cifar-100-binary/test.bin":               record(1, 0, c),
			"cifar-100-binary/fine_label_names.txt":   []byte("apple\nbee\n"),
			"cifar-100-binary/coarse_label_names.txt": []byte("insects\nfruit\n"),
		},
		"python": {
			"cifar-100-python/train": cifarPickle([]byte{0, 1}, []byte{1, 0}, string(planes(a))+string(planes(b))),
			"cifar-100-python/test":  cifarPickle([]byte{0}, []byte{1}, string(planes(c))),
			"cifar-100-python/meta":  []byte("\x80\x02}(" + python2("fine_label_names") + "](" + python2("apple") + python2("bee") + "e" + python2("coarse_label_names") + "](" + python2("insects") + python2("fruit") + "eu."),
		},
		"folders": {
			"train/apple/1.png": pngOf(t, a), "train/bee/1.png": pngOf(t, b), "test/apple/2.png": pngOf(t, c),
			"classes.csv": []byte("fine_id,fine_name,coarse_id,coarse_name\n0,apple,1,fruit\n1,bee,0,insects\n"),
		},
	}
	for name, files := range forms {
		t.Run(name, func(t *testing.T) {
			d := &CIFAR100{Official: Official{Root: write(t, files), OnError: Fail}, Protocol: "official"}
			train, test := open(t, d, Train), open(t, d, Test)
			if train.Len() != 2 || test.Len() != 1 || train.Items[1].Class != "bee" || train.Items[1].Category != "insects" || test.Items[0].Class != "apple" {
				t.Fatalf("%+v, %+v", train.Items, test.Items)
			}
			shows(t, &train.Items[0], a)
			shows(t, &train.Items[1], b)
			shows(t, &test.Items[0], c)
			if faults := fmt.Sprint(train.Miscounted()); !strings.Contains(faults, "images: 2, expected 50000") {
				t.Error(faults)
			}
		})
	}
	for _, c := range []struct{ form, file, content, says string }{
		{"binary", "cifar-100-binary/test.bin", "x", "no whole number of records"},
		{"binary", "cifar-100-binary/test.bin", string(record(2, 0, a)), "record 0: class 0 of 2 and super-class 2 of 2"},
		{"python", "cifar-100-python/test", string(cifarPickle([]byte{0}, []byte{1}, "short")), "of one length"},
		{"python", "cifar-100-python/meta", "\x80\x02}.", "fine_label_names"},
		{"python", "cifar-100-python/train", "cos\nsystem\n(U\x02lstR.", "os.system"},
	} {
		files := map[string][]byte{}
		for name, content := range forms[c.form] {
			files[name] = content
		}
		files[c.file] = []byte(c.content)
		_, err := (&CIFAR100{Official: Official{Root: write(t, files), OnError: Fail}, Protocol: "official"}).Open(Test)
		faulttest.Refused(t, err, c.says)
	}
}

// The real images, a third of them: 100 a class train and 100 test.
func TestCIFAR100Images(t *testing.T) {
	root := datatest.Shared(t, "cifar100")
	official := &CIFAR100{Official: Official{Root: root, OnError: Fail}, Protocol: "official"}
	for _, split := range []string{Train, Test} {
		d := open(t, official, split)
		if s := d.Stats(); s.Images != 10000 || s.Classes != 100 || s.Categories != 20 || s.Min != 100 || s.Max != 100 {
			t.Errorf("%v", s)
		}
	}
	classes := &CIFAR100{Official: Official{Root: root, OnError: Fail}, Protocol: "classes"}
	checkSplits(t, classes)
	if d := open(t, classes, Train); d.Len() != 10000 || len(d.Classes) != 50 {
		t.Errorf("%v", d.Stats())
	}
}
