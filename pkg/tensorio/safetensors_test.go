package tensorio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// readAll reads every tensor of a file's bytes.
func readAll(t testing.TB, name string, data []byte) ([]Named, *File) {
	t.Helper()
	f, err := parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	var all []Named
	for _, e := range f.Entries() {
		x, err := e.Read()
		if err != nil {
			t.Fatalf("%s: %q: %v", name, e.Name, err)
		}
		all = append(all, Named{e.Name, x})
	}
	return all, f
}

// TestWriteSafetensorsAsReference rewrites the reference implementation's
// files, byte for byte, from tensors in any order.
func TestWriteSafetensorsAsReference(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"every.safetensors", "names.safetensors", "none.safetensors", "embeddings.safetensors"} {
		want := readGolden(t, name)
		tensors, f := readAll(t, name, want)
		for range 5 {
			random.Shuffle(len(tensors), func(i, j int) { tensors[i], tensors[j] = tensors[j], tensors[i] })
			var got bytes.Buffer
			if err := writeSafetensors(&got, tensors, f.Metadata, false); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Fatalf("%s:\ngot  %q\nwant %q", name, got.Bytes(), want)
			}
		}
	}
}

func TestSafetensorsMetadata(t *testing.T) {
	_, f := readAll(t, "every.safetensors", readGolden(t, "every.safetensors"))
	if !maps.Equal(f.Metadata, map[string]string{"format": "pt"}) {
		t.Errorf("metadata %v", f.Metadata)
	}
	want := map[string]string{"b": "\"\x01", "a": "\u2028<é>"}
	var out bytes.Buffer
	if err := WriteSafetensors(&out, nil, want); err != nil {
		t.Fatal(err)
	}
	if _, f := readAll(t, "m.safetensors", out.Bytes()); !maps.Equal(f.Metadata, want) {
		t.Errorf("metadata %v became %v", want, f.Metadata)
	}
}

func TestWriteSafetensorsRefuses(t *testing.T) {
	one := Of([]float32{1}, 1)
	for part, tensors := range map[string][]Named{
		`two tensors are called "x"`: {{"x", one}, {"x", one}},
		"reserved":                   {{"__metadata__", one}},
		"not UTF-8":                  {{"\xff", one}},
		"has no type":                {{"x", Tensor{}}},
		"do not fill float32[2]":     {{"x", Tensor{Float32, []int{2}, make([]byte, 7)}}},
	} {
		faulttest.Refused(t, WriteSafetensors(&bytes.Buffer{}, tensors, nil), part)
	}
}

// safetensorsFile is a file with the given header and elements.
func safetensorsFile(header string, elements int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, elements)...)
}

func TestSafetensorsValidation(t *testing.T) {
	info := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"dtype":%q,"shape":[%s],"data_offsets":[%s]}`, dtype, shape, offsets)
	}
	accepted := map[string]int{
		`{}`: 0,
		`{"a":` + info("F32", "2", "0,8") + `,"b":` + info("U8", "3", "8,11") + `}   `: 11,
		`{"b":` + info("U8", "3", "8,11") + `,"a":` + info("F32", "2", "0,8") + `}`:    11,
		`{"a":` + info("F32", "", "0,4") + `,"e":` + info("I64", "0,9", "4,4") + `}`:   4,
		`{"a":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1],"later":{"x":[1]}}}`:    1,
		`{"a":` + info("F4", "3", "0,2") + `}`:                                         2, // 12 bits
	}
	for header, size := range accepted {
		f, err := parse("a.safetensors", safetensorsFile(header, size))
		if err != nil {
			t.Errorf("%s: %v", header, err)
			continue
		}
		checkPromises(t, f)
	}
	refused := map[string]string{
		`{"a":` + info("F32", "2", "0,8") + `,"b":` + info("U8", "3", "7,10") + `}`: `tensor "b": bytes [7, 10) overlap`,
		`{"a":` + info("F32", "2", "0,8") + `,"b":` + info("U8", "3", "9,12") + `}`: `tensor "b": begins at byte 9 of the elements, leaving a hole after 8`,
		`{"a":` + info("F32", "2", "1,9") + `}`:                                     "leaving a hole after 0",
		`{"a":` + info("F32", "3", "0,12") + `}`:                                    "ends at byte 12 of the elements, of which there are 8",
		`{"a":` + info("F32", "1", "0,4") + `}`:                                     "4 bytes follow the last tensor",
		`{"a":` + info("F32", "2", "0,9") + `}`:                                     "[0, 9] do not hold F32[2], which takes 8 bytes",
		`{"a":` + info("F32", "2", "8,0") + `}`:                                     "[8, 0] do not hold",
		`{"a":` + info("F32", "4611686018427387904,4", "0,8") + `}`:                 "beyond any memory",
		`{"a":` + info("F32", "-2", "0,8") + `}`:                                    "not a whole number",
		`{"a":` + info("F32", "2.0", "0,8") + `}`:                                   "not a whole number",
		`{"a":` + info("F32", "1e1", "0,8") + `}`:                                   "not a whole number",
		`{"a":` + info("F32", `"2"`, "0,8") + `}`:                                   "not a whole number",
		`{"a":` + info("F32", "99999999999999999999", "0,8") + `}`:                  "not a whole number",
		`{"a":` + info("F32", "2", "0,18446744073709551624") + `}`:                  "not a whole number",
		`{"a":` + info("F32", strings.Repeat("1,", 64)+"1", "0,8") + `}`:            "more than 64 numbers",
		`{"a":` + info("F32", "2", "0,8,8") + `}`:                                   "more than 2 numbers",
		`{"a":` + info("F32", "2", "0") + `}`:                                       "needs dtype, shape and two data_offsets",
		`{"a":` + info("F31", "2", "0,8") + `}`:                                     `dtype "F31" is not one`,
		`{"a":{"shape":[2],"data_offsets":[0,8]}}`:                                  "needs dtype",
		`{"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}}`:      `"dtype" stands there twice`,
		`{"a":` + info("F32", "2", "0,8") + `,"a":` + info("F32", "2", "0,8") + `}`: `the name "a" stands there twice`,
		`{"__metadata__":{"x":1}}`:                                                  `the value of "x" is not a string`,
		`{"__metadata__":{"x":"1","x":"2"}}`:                                        `the name "x" stands there twice`,
		`{"__metadata__":[]}`:                                                       "stands where { belongs",
		`{"a":[]}`:                                                                  "stands where { belongs",
		`{"a":` + info("F32", "2", "0,8") + `} {}`:                                  "after the closing brace",
		`{"a":` + info("F32", "2", "0,8"):                                           "ends too early",
		`{"a"`:                                                                      "ends too early",
		"{\"\xff\":" + info("F32", "2", "0,8") + `}`:                                "not UTF-8",
		` {}`: "does not begin with '{'",
	}
	for header, part := range refused {
		_, err := parse("a.safetensors", safetensorsFile(header, 8))
		faulttest.Refused(t, err, "a.safetensors: ", part)
	}
}

func TestSafetensorsHeaderLength(t *testing.T) {
	for part, length := range map[string]uint64{
		"beyond the format's limit":          1 << 40,
		"ends within the header of 1000000 ": 1_000_000,
	} {
		data := append(binary.LittleEndian.AppendUint64(nil, length), '{', '}')
		_, err := parse("a.safetensors", data)
		faulttest.Refused(t, err, "a.safetensors: byte ", part)
	}
}

// TestSafetensorsManyNames: millions of names cost no more than the limit.
func TestSafetensorsManyNames(t *testing.T) {
	var names, metadata strings.Builder
	for i := range safetensorsNameLimit + 1 {
		fmt.Fprintf(&names, `"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},`, i)
		fmt.Fprintf(&metadata, `"%x":"",`, i)
	}
	for part, header := range map[string]string{
		"more than 262144 tensors": "{" + strings.TrimSuffix(names.String(), ",") + "}",
		"more than 262144 names":   `{"__metadata__":{` + strings.TrimSuffix(metadata.String(), ",") + "}}",
	} {
		data := safetensorsFile(header, 0)
		var err error
		if got := allocated(func() { _, err = parse("a.safetensors", data) }); got > 1<<29 {
			t.Errorf("%d MiB allocated", got>>20)
		}
		faulttest.Refused(t, err, part)
	}
}

func FuzzSafetensors(f *testing.F) {
	for _, name := range []string{"every.safetensors", "names.safetensors", "none.safetensors", "float8.safetensors"} {
		f.Add(readGolden(f, name))
	}
	f.Add(safetensorsFile(`{"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseSafetensors(data)
		if err != nil {
			return
		}
		checkPromises(t, file)
		var tensors []Named
		for _, e := range file.entries {
			if e.DType == Invalid {
				return
			}
			x, err := e.Read()
			if err != nil {
				t.Fatalf("accepted, then: %v", err)
			}
			tensors = append(tensors, Named{e.Name, x})
		}
		var again bytes.Buffer
		if err := WriteSafetensors(&again, tensors, file.Metadata); err != nil {
			t.Fatal(err)
		}
		second, err := parseSafetensors(again.Bytes())
		if err != nil {
			t.Fatalf("what was written is not read: %v", err)
		}
		if len(second.entries) != len(file.entries) || !maps.Equal(second.Metadata, file.Metadata) {
			t.Fatalf("round trip: %d tensors became %d", len(file.entries), len(second.entries))
		}
		for _, e := range second.entries {
			x, err := e.Read()
			i := slices.IndexFunc(tensors, func(n Named) bool { return n.Name == e.Name })
			if err != nil || i < 0 || !bytes.Equal(tensors[i].Data, x.Data) || !slices.Equal(tensors[i].Shape, x.Shape) {
				t.Fatalf("round trip: tensor %q changed, %v", e.Name, err)
			}
		}
	})
}
