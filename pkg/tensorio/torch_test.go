package tensorio

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// records of a small archive, in order: name, content.
type records [][2]string

// zipFile packs records uncompressed, as torch.save does.
func zipFile(t testing.TB, files records) []byte {
	t.Helper()
	var out bytes.Buffer
	w := newZipWriter(&out)
	for _, r := range files {
		w.record(r[0], []byte(r[1]))
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// rebuild is a pickle of one tensor: _rebuild_tensor_v2 of storage "0" with
// the given count, and offset, shape and strides as pickled numbers and tuples.
func rebuild(class, count, offset, shape, strides string) string {
	return "ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\n" + class + "\nU\x010U\x03cpu" + count + "tQ" + offset + shape + strides + "\x89}tR."
}

func TestTorchViews(t *testing.T) {
	nine := "\x00\x01\x02\x03\x04\x05\x06\x07\x08"
	for name, c := range map[string]struct {
		program, part string
		want          []byte
	}{
		"plain":               {program: rebuild("ByteStorage", "K\x09", "K\x00", "K\x09\x85", "K\x01\x85"), want: []byte(nine)},
		"transposed":          {program: rebuild("ByteStorage", "K\x09", "K\x00", "K\x03K\x03\x86", "K\x01K\x03\x86"), want: []byte{0, 3, 6, 1, 4, 7, 2, 5, 8}},
		"window":              {program: rebuild("ByteStorage", "K\x09", "K\x04", "K\x02K\x02\x86", "K\x03K\x01\x86"), want: []byte{4, 5, 7, 8}},
		"repeated":            {program: rebuild("ByteStorage", "K\x09", "K\x02", "K\x03\x85", "K\x00\x85"), want: []byte{2, 2, 2}},
		"stride never taken":  {program: rebuild("ByteStorage", "K\x09", "K\x08", "K\x01\x85", "J\xff\xff\xff\x7f\x85"), want: []byte{8}},
		"empty far away":      {program: rebuild("ByteStorage", "K\x09", "K\x63", "K\x00\x85", "K\x01\x85"), want: []byte{}},
		"past the end":        {program: rebuild("ByteStorage", "K\x09", "K\x00", "K\x0a\x85", "K\x01\x85"), part: "leaves its storage of 9 elements"},
		"offset past the end": {program: rebuild("ByteStorage", "K\x09", "K\x09", ")", ")"), part: "leaves its storage"},
		"negative offset":     {program: rebuild("ByteStorage", "K\x09", "J\xff\xff\xff\xff", "K\x01\x85", "K\x01\x85"), part: "begins at element -1"},
		"negative stride":     {program: rebuild("ByteStorage", "K\x09", "K\x08", "K\x09\x85", "J\xff\xff\xff\xff\x85"), part: "negative stride -1"},
		"negative size":       {program: rebuild("ByteStorage", "K\x09", "K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85"), part: "beyond any memory"},
		"absurd shape":        {program: rebuild("ByteStorage", "K\x09", "K\x00", "\x8a\x05\x00\x00\x00\x00\x01\x8a\x05\x00\x00\x00\x00\x01\x86", "K\x00K\x00\x86"), part: "beyond any memory"},
		"absurd strides":      {program: rebuild("ByteStorage", "K\x09", "K\x00", "K\x03\x85", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"), part: "leaves its storage"},
		"fewer strides":       {program: rebuild("ByteStorage", "K\x09", "K\x00", "K\x03\x85", ")"), part: "1 sizes with 0 strides"},
		"too large a count":   {program: rebuild("ByteStorage", "K\x0a", "K\x00", "K\x09\x85", "K\x01\x85"), part: "claims 10 elements of uint8, its record holds 9 bytes"},
		"too small a count":   {program: rebuild("ByteStorage", "K\x05", "K\x00", "K\x09\x85", "K\x01\x85"), part: "storage of 5 elements"},
		"count of wide ones":  {program: rebuild("LongStorage", "K\x02", "K\x00", "K\x02\x85", "K\x01\x85"), part: "claims 2 elements of int64"},
		"negative count":      {program: rebuild("ByteStorage", "J\xff\xff\xff\xff", "K\x00", "K\x09\x85", "K\x01\x85"), part: "unknown way"},
		"no storage":          {program: "ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89}tR.", part: "torch._utils._rebuild_tensor_v2: called with arguments"},
		"other record":        {program: strings.ReplaceAll(rebuild("ByteStorage", "K\x09", "K\x00", "K\x09\x85", "K\x01\x85"), "U\x010", "U\x017"), part: `record "archive/data/7" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse("a.pth", zipFile(t, records{{"data.pkl", c.program}, {"data/0", nine}}))
			if c.part != "" {
				faulttest.Refused(t, err, "a.pth: ", c.part)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			x, err := f.Tensor(Single)
			if err != nil || !bytes.Equal(x.Data, c.want) {
				t.Errorf("%v, %v; want %v", x.Data, err, c.want)
			}
		})
	}
}

// TestExpandedBomb: nine bytes that claim to repeat into a terabyte are
// listed, but not read.
func TestExpandedBomb(t *testing.T) {
	program := rebuild("ByteStorage", "K\x09", "K\x00", "\x8a\x06\x00\x00\x00\x00\x00\x01\x85", "K\x00\x85")
	f, err := parse("a.pth", zipFile(t, records{{"data.pkl", program}, {"data/0", "123456789"}}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Tensor(Single)
	faulttest.Refused(t, err, `a.pth: tensor "tensor"`, "repeats a storage of 9 bytes", ".contiguous()")
}

func TestBigEndianStorages(t *testing.T) {
	files := records{{"data.pkl", rebuild("ShortStorage", "K\x02", "K\x00", "K\x02\x85", "K\x01\x85")}, {"byteorder", "big"}, {"data/0", "\x01\x02\x03\x04"}}
	f, err := parse("a.pth", zipFile(t, files))
	if err != nil {
		t.Fatal(err)
	}
	x, err := f.Tensor(Single)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := x.Int64s(); !slices.Equal(got, []int64{0x0102, 0x0304}) {
		t.Errorf("%x", got)
	}
}

func TestNotTorchFiles(t *testing.T) {
	whole := zipFile(t, records{{"data.pkl", "N."}, {"data/0", "12345678"}})
	twice := zipFile(t, records{{"data.pkl", "N."}, {"data.pkl", "N."}})
	other := bytes.Replace(bytes.Clone(whole), []byte("archive/data/0"), []byte("brchive/data/0"), 2)
	flat := bytes.ReplaceAll(bytes.Clone(whole), []byte("archive/"), []byte("archive_"))
	big := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(big[len(big)-22+12:], 1<<30) // size of the directory
	var deflated bytes.Buffer
	z := zip.NewWriter(&deflated)
	w, err := z.Create("archive/data.pkl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data []byte
		part string
	}{
		"no pickle":    {zipFile(t, records{{"model.json", "{}"}}), `record "archive/data.pkl" is missing: neither torch.save nor`},
		"compressed":   {deflated.Bytes(), "is compressed or encrypted"},
		"twice":        {twice, `two records are called "archive/data.pkl"`},
		"two folders":  {other, "lie in two folders"},
		"no folder":    {flat, "lies in no folder"},
		"no directory": {whole[:len(whole)-30], "cut short"},
		"huge listing": {big, "directory of 1073741824 bytes"},
		"bad pickle":   {zipFile(t, records{{"data.pkl", "("}}), "archive/data.pkl: pickle byte 1: ends too early"},
		"harmful":      {zipFile(t, records{{"data.pkl", "cos\nsystem\n(S'harm'\ntR."}}), "wants os.system called"},
		"text":         {[]byte("version https://git-lfs"), "byte 0: begins with \"vers\""},
		"empty":        {nil, "the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse("a.pth", c.data)
			faulttest.Refused(t, err, "a.pth: ", c.part)
		})
	}
}

// TestOverlappingRecords: two names for the same bytes are how small zips
// become large ones.
func TestOverlappingRecords(t *testing.T) {
	data := zipFile(t, records{{"data.pkl", "N."}, {"data/0", strings.Repeat("x", 64)}, {"data/1", strings.Repeat("y", 64)}})
	entry := bytes.LastIndex(data, []byte("PK\x01\x02")) // the directory's entry of data/1
	before := bytes.LastIndex(data[:entry], []byte("PK\x01\x02"))
	copy(data[entry+42:entry+46], data[before+42:before+46]) // begins where data/0 does
	_, err := parse("a.pth", data)
	faulttest.Refused(t, err, "a.pth: records", "overlap")
}

// TestPickleThatContainsItself: two values each twice in the next, 60 times
// over, and a list inside itself.
func TestPickleThatContainsItself(t *testing.T) {
	doubling := "]\x94"
	for i := range 60 {
		doubling += fmt.Sprintf("](h%ch%ce\x94", i, i)
	}
	_, err := parse("a.pth", zipFile(t, records{{"data.pkl", doubling + "."}}))
	faulttest.Refused(t, err, "a.pth: builds more than", "out of all proportion")

	wide := "](" + strings.Repeat("K\x00", 1100) + "e\x940](" + strings.Repeat("h\x00", 1100) + "e."
	_, err = parse("a.pth", zipFile(t, records{{"data.pkl", wide}}))
	faulttest.Refused(t, err, "a.pth: builds more than")

	f, err := parse("a.pth", zipFile(t, records{{"data.pkl", "]\x94h\x00a."}}))
	if err != nil || len(f.Names()) != 0 {
		t.Errorf("a list inside itself: %v, %v", f, err)
	}

	deep := strings.Repeat("]", 1000) + strings.Repeat("a", 999) + "."
	_, err = parse("a.pth", zipFile(t, records{{"data.pkl", deep}}))
	faulttest.Refused(t, err, "nested more than 64 deep")
}

func TestCheckpoint(t *testing.T) {
	f, err := Open(golden("checkpoint.pth"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	root := f.Object.(*Dict)
	if epoch, _ := root.Get("epoch"); epoch != int64(3) {
		t.Errorf("epoch %v", epoch)
	}
	arguments, _ := root.Get("arguments")
	namespace := arguments.(*Object)
	if namespace.Class != (Global{"argparse", "Namespace"}) {
		t.Errorf("arguments are of %v", namespace.Class)
	}
	if lr, _ := namespace.State.(*Dict).Get("lr"); lr != 0.1 {
		t.Errorf("lr %v", lr)
	}
	state, err := f.StateDict("")
	if err != nil {
		t.Fatal(err)
	}
	if state[0].Name != "conv.weight" || len(state) != 6 {
		t.Errorf("%d weights, first %q", len(state), state[0].Name)
	}
	part, err := f.StateDict("optimizer")
	if err != nil || len(part) != 1 || part[0].Name != "state.0.exp_avg" {
		t.Errorf("optimizer: %v, %v", part, err)
	}
	_, err = f.StateDict("ema")
	faulttest.Refused(t, err, `no key "ema"`, "epoch, arguments, net")
	_, err = f.StateDict("epoch")
	faulttest.Refused(t, err, `no tensors under the key "epoch"`)
	_, err = f.Tensor("net.conv.weigth")
	faulttest.Refused(t, err, `did you mean "net.conv.weight"?`)
}

func TestStateDictOfOtherFiles(t *testing.T) {
	for name, want := range map[string]int{"state_dict.pth": 6, "module.pth": 6, "script.pt": 6, "every.safetensors": 15} {
		f, err := Open(golden(name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if state, err := f.StateDict(""); err != nil || len(state) != want {
			t.Errorf("%s: %d weights, %v; want %d", name, len(state), err, want)
		}
	}
	f, err := parse("a.pth", zipFile(t, records{{"data.pkl", "}U\x05epochK\x03s."}}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.StateDict("")
	faulttest.Refused(t, err, "a.pth: no weights at the top", "the file has epoch")
	tensor := strings.TrimSuffix(rebuild("ByteStorage", "K\x01", "K\x00", "K\x01\x85", "K\x01\x85"), ".")
	f, err = parse("a.pth", zipFile(t, records{{"data.pkl", "}U\x09net_state}U\x01w" + tensor + "ss."}, {"data/0", "\x07"}}))
	if err != nil {
		t.Fatal(err)
	}
	if state, err := f.StateDict(""); err != nil || len(state) != 1 || state[0].Name != "w" {
		t.Errorf("under ROADMAP's own key: %v, %v", state, err)
	}
	f, err = parse("a.npy", readGolden(t, "c_f4.npy"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.StateDict("model")
	faulttest.Refused(t, err, `none called "model"`)
}

// TestWriteTorchAsPyTorch: the pickle inside is torch.save's own, byte for
// byte, and the tensors come back.
func TestWriteTorchAsPyTorch(t *testing.T) {
	want := readGolden(t, "every.pth")
	tensors, _ := readAll(t, "every.pth", want)
	var out bytes.Buffer
	if err := WriteTorch(&out, tensors); err != nil {
		t.Fatal(err)
	}
	theirs, err := openArchive(want)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := openArchive(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range theirs.records {
		if name == ".data/serialization_id" {
			continue // a checksum that no reader asks for
		}
		if mine := ours.records[name]; !bytes.Equal(mine.bytes, r.bytes) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, mine.bytes, r.bytes)
		}
		if r := ours.records[name]; strings.HasPrefix(name, "data/") && r.begin%storageAlignment != 0 {
			t.Errorf("%s begins at byte %d", name, r.begin)
		}
	}
}

// TestWriteTorchManyTensors: more than the memo's 256 short places and than
// Python's 1,000 items between two marks.
func TestWriteTorchManyTensors(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1000, 1001, 2500} {
		var tensors []Named
		for i := range n {
			shape := slices.Repeat([]int{1}, i%6) // tuples of every form
			tensors = append(tensors, Named{fmt.Sprintf("t%d", i), Of([]int64{int64(i)}, shape...)})
		}
		var out bytes.Buffer
		if err := WriteTorch(&out, tensors); err != nil {
			t.Fatal(err)
		}
		back, _ := readAll(t, "a.pth", out.Bytes())
		if len(back) != n {
			t.Fatalf("%d tensors came back of %d", len(back), n)
		}
		for i := range back {
			if back[i].Name != tensors[i].Name || !slices.Equal(back[i].Shape, tensors[i].Shape) || !bytes.Equal(back[i].Data, tensors[i].Data) {
				t.Fatalf("tensor %d of %d: %v became %v", i, n, tensors[i], back[i])
			}
		}
	}
}

func TestPickledIntegers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	numbers := []int{0, 1, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1<<39 - 1, 1 << 39, 1<<63 - 1}
	for range 1000 {
		numbers = append(numbers, int(random.Uint64()>>(1+random.IntN(63))))
	}
	for _, n := range numbers {
		p := &pickler{}
		p.integer(n)
		if got, err := Unpickle(append(p.out, '.')); err != nil || got != int64(n) {
			t.Errorf("%d became %v, %v", n, got, err)
		}
	}
}

func TestWriteTorchRefuses(t *testing.T) {
	err := WriteTorch(&bytes.Buffer{}, []Named{{"x", Of([]uint16{1}, 1)}})
	faulttest.Refused(t, err, `tensor "x"`, "no storage of uint16")
	err = WriteTorch(&bytes.Buffer{}, []Named{{"x", Of([]int8{1}, 1)}, {"x", Of([]int8{1}, 1)}})
	faulttest.Refused(t, err, `two tensors are called "x"`)
}

func TestRepeatedNames(t *testing.T) {
	x := rebuild("ByteStorage", "K\x01", "K\x00", ")", ")")
	x = strings.TrimSuffix(x, ".")
	program := "}(U\x03a.b" + x + "U\x01a}U\x01b" + x + "su."
	_, err := parse("a.pth", zipFile(t, records{{"data.pkl", program}, {"data/0", "1"}}))
	faulttest.Refused(t, err, `two tensors are called "a.b"`)
}

// A tensor that was saved on a GPU is read like any other: where it lay then
// decides nothing here.
func TestSavedOnGPU(t *testing.T) {
	program := strings.Replace(rebuild("ByteStorage", "K\x03", "K\x00", "K\x03\x85", "K\x01\x85"), "U\x03cpu", "U\x06cuda:1", 1)
	f, err := parse("a.pth", zipFile(t, records{{"data.pkl", program}, {"data/0", "abc"}}))
	if err != nil {
		t.Fatal(err)
	}
	if x, err := f.Tensor(Single); err != nil || string(x.Data) != "abc" {
		t.Errorf("%q, %v", x.Data, err)
	}
}

func FuzzTorch(f *testing.F) {
	for _, name := range []string{"every.pth", "views.pth", "checkpoint.pth", "module.pth", "script.pt", "unsigned.pth"} {
		f.Add(readGolden(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseTorch(data)
		if err == nil {
			checkPromises(t, file)
		}
	})
}

// FuzzTorchPickle lets the fuzzer write data.pkl alone, past the zip's checks.
func FuzzTorchPickle(f *testing.F) {
	for _, name := range []string{"every.pth", "views.pth", "checkpoint.pth", "module.pth", "unsigned.pth"} {
		a, err := openArchive(readGolden(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.records["data.pkl"].bytes)
	}
	storages := records{{"data/0", "0123456789abcdef"}, {"data/1", ""}, {"data/2", "01234567"}}
	f.Fuzz(func(t *testing.T, program []byte) {
		file, err := parse("fuzz.pth", zipFile(t, append(records{{"data.pkl", string(program)}}, storages...)))
		if err == nil {
			checkPromises(t, file)
		}
	})
}
