package tensorio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// legacyFile is a file as torch.save wrote it before 1.6: of an object, a list
// of keys, and what follows.
func legacyFile(object, keys string, storages ...string) []byte {
	return []byte("\x80\x02" + legacyMagic + "\x80\x02M\xe9\x03." + "\x80\x02}(U\x10protocol_versionM\xe9\x03U\x0dlittle_endian\x88u." +
		object + keys + strings.Join(storages, ""))
}

// counted is a storage as it follows: its number of elements, and the bytes.
func counted(n uint64, content string) string {
	return string(binary.LittleEndian.AppendUint64(nil, n)) + content
}

// TestLegacy: the file that PyTorch 2.11 wrote for this is read by TestGoldens,
// and cut and damaged by TestTruncation and TestDamage.
func TestLegacy(t *testing.T) {
	bytesOf := rebuild("ByteStorage", "K\x03", "K\x00", "K\x03\x85", "K\x01\x85")
	shorts := rebuild("ShortStorage", "K\x02", "K\x01", "K\x01\x85", "K\x01\x85")
	view := strings.Replace(bytesOf, "K\x03tQ", "K\x03(U\x019K\x00K\x03ttQ", 1)
	whole := strings.Replace(bytesOf, "K\x03tQ", "K\x03NtQ", 1)
	complexes := rebuild("ComplexFloatStorage", "K\x01", "K\x00", "K\x01\x85", "K\x01\x85")
	keys := "](U\x010e."
	for name, c := range map[string]struct {
		data []byte
		want []byte
		part string
	}{
		"plain":         {data: legacyFile(bytesOf, keys, counted(3, "abc")), want: []byte("abc")},
		"sixth field":   {data: legacyFile(whole, keys, counted(3, "abc")), want: []byte("abc")},
		"a view":        {data: legacyFile(shorts, keys, counted(2, "\x01\x02\x03\x04")), want: []byte("\x03\x04")},
		"more follows":  {data: legacyFile(bytesOf, keys, counted(3, "abc"), "later"), want: []byte("abc")},
		"cut":           {data: legacyFile(bytesOf, keys, counted(3, "ab")), part: `ends within storage "0"; the file was cut short`},
		"claims much":   {data: legacyFile(bytesOf, keys, counted(math.MaxUint64, "abc")), part: "cut short"},
		"claims little": {data: legacyFile(bytesOf, keys, counted(2, "abc")), part: `storage "0" claims 3 elements of uint8, its record holds 2 bytes`},
		"no keys":       {data: legacyFile(bytesOf, "].", counted(3, "abc")), part: `storage "0" claims 3 elements of uint8, its record holds 0 bytes`},
		"other keys":    {data: legacyFile(bytesOf, "](U\x017e.", counted(3, "abc")), part: `storage "7" is listed, and nothing uses it`},
		"one key twice": {data: legacyFile(bytesOf, "](U\x010U\x010e.", counted(3, "abc"), counted(3, "abc")), part: "or twice"},
		"no list":       {data: legacyFile(bytesOf, "N.", counted(3, "abc")), part: "None stands where the list of storages belongs"},
		"a part":        {data: legacyFile(view, keys, counted(3, "abc")), part: `storage "0" is a part of another`},
		"harmful":       {data: legacyFile("cos\nsystem\n(S'harm'\ntR.", "]."), part: "wants os.system called"},
		"too long":      {data: legacyFile("]("+strings.Repeat("N", 20000)+"e\x940cbuiltins\nset\n\x940("+strings.Repeat("h\x01h\x00\x85R", 10000)+"t.", "]."), part: "out of all proportion"},
		"protocol":      {data: []byte("\x80\x02" + legacyMagic + "\x80\x02K\x01."), part: "protocol"},
		"other type":    {data: legacyFile(complexes, keys, counted(1, "12345678")), part: "elements of type ComplexFloat cannot be read"},
		"unknown type":  {data: legacyFile(strings.ReplaceAll(complexes, "ComplexFloat", "Quaternion"), keys, counted(1, "12345678")), part: "whose size is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse("a.pth", c.data)
			var x Tensor
			if err == nil {
				x, err = f.Tensor(Single)
			}
			if c.part != "" {
				faulttest.Refused(t, err, "a.pth: ", c.part)
				return
			}
			if err != nil || !bytes.Equal(x.Data, c.want) || f.Format != Torch {
				t.Errorf("%q, %v; want %q", x.Data, err, c.want)
			}
		})
	}
	big := bytes.Replace(legacyFile(shorts, keys, counted(2, "\x01\x02\x03\x04")), []byte("little_endian\x88"), []byte("little_endian\x89"), 1)
	f, err := parse("a.pth", big)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := f.Tensor(Single); err != nil || string(x.Data) != "\x04\x03" {
		t.Errorf("big-endian: %q, %v", x.Data, err)
	}
	if _, err := parse("a.pth", legacyFile(bytesOf, keys, "abc")); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v is not ErrDamaged", err)
	}
}

func TestLegacyStateDict(t *testing.T) {
	f, err := Open(golden("legacy.pth"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if state, err := f.StateDict(""); err != nil || len(state) != 6 || f.Verify() != nil {
		t.Errorf("%d weights, %v", len(state), err)
	}
}

func FuzzLegacy(f *testing.F) {
	f.Add(readGolden(f, "legacy.pth"))
	f.Add(legacyFile(rebuild("ByteStorage", "K\x03", "K\x00", "K\x03\x85", "K\x01\x85"), "](U\x010e.", counted(3, "abc")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !isLegacyTorch(data) {
			return
		}
		if file, err := parseLegacy(data); err == nil {
			checkPromises(t, file)
		}
	})
}
