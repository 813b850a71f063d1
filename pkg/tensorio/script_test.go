package tensorio

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

// zipEntry is a record of its own making: packed by deflate, or claiming a size.
type zipEntry struct {
	name, content string
	packed        bool
	claims        uint64 // bytes that it unpacks to; 0: as many as it does
}

// zipOf packs records.
func zipOf(t testing.TB, entries ...zipEntry) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: "archive/" + e.name, CRC32: crc32.ChecksumIEEE([]byte(e.content)), UncompressedSize64: uint64(len(e.content))}
		content := []byte(e.content)
		if e.packed {
			h.Method = zip.Deflate
			content = deflate(t, content)
		}
		h.CompressedSize64 = uint64(len(content))
		if e.claims > 0 {
			h.UncompressedSize64 = e.claims
		}
		w, err := z.CreateRaw(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func deflate(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// moduleOf is a TorchScript archive with the given values and program.
func moduleOf(t testing.TB, data, constants, code string, more ...zipEntry) []byte {
	t.Helper()
	return zipOf(t, append([]zipEntry{{name: "data.pkl", content: data}, {name: "constants.pkl", content: constants},
		{name: "code/__torch__.py", content: code, packed: true}}, more...)...)
}

// TestCheckScript: libtorch unpacks what a module's file says, and walks what
// it finds by recursion. Files that would fill memory or overflow its stack are
// refused before.
func TestCheckScript(t *testing.T) {
	for _, name := range []string{"script.pt", "trace.pt"} {
		if err := CheckScript(golden(name)); err != nil {
			t.Error(err)
		}
	}
	packed := func(claims uint64) zipEntry {
		return zipEntry{name: "code/x.py", content: "x", packed: true, claims: claims}
	}
	deep := func(n int) string { return ")" + strings.Repeat("\x85", n) }
	list := "](" + strings.Repeat("N", 20000) + "e\x940"
	long := strings.Repeat(" ", scriptLimit/2)
	for name, c := range map[string]struct {
		data []byte
		part string // of the error; "" for none
	}{
		"state_dict":      {readGolden(t, "every.pth"), `record "every/constants.pkl" is missing`},
		"safetensors":     {readGolden(t, "every.safetensors"), "a module with"},
		"empty":           {nil, "it begins with \"\""},
		"cut":             {readGolden(t, "script.pt")[:4000], "cut short"},
		"plain":           {moduleOf(t, "N.", "N.", "x"), ""},
		"a long program":  {moduleOf(t, "N.", "N.", long), ""},
		"claims much":     {moduleOf(t, "N.", "N.", "", packed(1<<33)), "unpack to more than 67108864 bytes"},
		"claims all":      {moduleOf(t, "N.", "N.", "", packed(math.MaxUint64-1)), "unpack to more than"},
		"claims little":   {moduleOf(t, "N.", "N.", "", zipEntry{name: "code/x.py", content: long, packed: true, claims: 1}), "code/x.py"},
		"together":        {moduleOf(t, "N.", "N.", long, zipEntry{name: "a", content: long, packed: true}, zipEntry{name: "b", content: "x", packed: true}), "unpack to more than"},
		"packed tensors":  {moduleOf(t, "N.", "N.", "", zipEntry{name: "data/0", content: "x", packed: true, claims: 1 << 30}), "unpack to"},
		"harmful":         {moduleOf(t, "cos\nsystem\n(S'harm'\ntR.", "N.", ""), "wants os.system called"},
		"copies":          {moduleOf(t, list+"cbuiltins\nset\n\x940("+strings.Repeat("h\x01h\x00\x85R", 10000)+"t.", "N.", ""), "out of all proportion"},
		"far memo":        {moduleOf(t, "Nr\xff\xff\xff\x3f.", "N.", ""), "remembered as 1073741823, after 1 instructions"},
		"deep enough":     {moduleOf(t, deep(valueDepth-2)+".", "N.", ""), ""},
		"deep":            {moduleOf(t, deep(1<<20)+".", "N.", ""), "archive/data.pkl: values are nested more than 500 deep"},
		"deep constants":  {moduleOf(t, "N.", deep(1<<20)+".", ""), "archive/constants.pkl: values are nested"},
		"deep, dropped":   {moduleOf(t, deep(1<<20)+"0N.", "N.", ""), "nested more than"},
		"deep, replaced":  {moduleOf(t, "N\x940"+deep(1<<20)+"q\x000N.", "N.", ""), "nested more than"},
		"deep lists":      {moduleOf(t, strings.Repeat("]", 1<<16)+strings.Repeat("a", 1<<16-1)+".", "N.", ""), "nested more than"},
		"from the top":    {moduleOf(t, "]\x94"+topDown(2000)+".", "N.", ""), "nested more than"},
		"deep objects":    {moduleOf(t, "c__torch__\nM\n\x940"+strings.Repeat("h\x00)\x81", 2000)+strings.Repeat("b", 1999)+".", "N.", ""), "nested more than"},
		"in itself":       {moduleOf(t, "]\x94h\x00a.", "N.", ""), "lies inside itself"},
		"debug":           {moduleOf(t, "N.", "N.", "", zipEntry{name: "code/__torch__.py.debug_pkl", content: deep(1<<20) + ".", packed: true}), "code/__torch__.py.debug_pkl: values are nested"},
		"brackets":        {moduleOf(t, "N.", "N.", "y\nx = "+strings.Repeat("(", 1<<17)), "archive/code/__torch__.py:2: an expression of more than 500"},
		"code not packed": {moduleOf(t, "N.", "N.", "", zipEntry{name: "code/y.py", content: strings.Repeat("-", 1000)}), "archive/code/y.py:1: an expression"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckScript(write(t, "m.pt", c.data))
			if c.part == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			faulttest.Refused(t, err, "m.pt: not a TorchScript module", c.part, "torch.jit.save")
		})
	}
}

// topDown fills each list only after it lies in the one around it.
func topDown(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "]\x94j%sj%sa0", binary.LittleEndian.AppendUint32(nil, uint32(i)), binary.LittleEndian.AppendUint32(nil, uint32(i+1)))
	}
	return b.String()
}

func TestCheckSource(t *testing.T) {
	repeat := strings.Repeat
	for name, text := range map[string]string{
		"long list":     "x = [" + repeat("1.5, -2,\n", 10000) + "]\n",
		"many lines":    repeat("  _0 = torch.add(torch.mul(x, y), z, alpha=1)\n", 10000),
		"blocks":        repeat("if a:\n  y = (x)\nelse:\n  y = x\n", 1000),
		"a long string": "x = " + `"` + repeat("((--", 1000) + `\"` + repeat("((--", 1000) + "\"\n",
		"three quotes":  `"""` + repeat("\n - '(", 1000) + `"""`,
		"a comment":     "# " + repeat("(", 1000) + "\nx\n",
		"unbalanced":    repeat(")\n", 10000),
		"ends oddly":    "x = 'a\\",
	} {
		if err := checkSource([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	nested := ""
	for i := range 200 {
		nested += repeat(" ", i) + "if a:\n"
	}
	for name, c := range map[string]struct{ text, part string }{
		"brackets":         {repeat("[", 1000), "1: an expression"},
		"negations":        {"\n\nx = " + repeat("-", 1000) + "y", "3: an expression"},
		"nots":             {"x = " + repeat("not ", 1000) + "y", "1: an expression"},
		"sums":             {"x = y" + repeat(" + y", 1000), "1: an expression"},
		"methods":          {"x = y" + repeat(".t()", 1000), "1: an expression"},
		"items":            {"x = y" + repeat("[0]", 1000), "1: an expression"},
		"choices":          {"x = y" + repeat(" if a else y", 1000), "1: an expression"},
		"assignments":      {repeat("x = ", 1000) + "y", "1: an expression"},
		"types":            {"x : " + repeat("List[", 1000), "1: an expression"},
		"across lines":     {"x = (y" + repeat("\n + y", 1000) + ")", "an expression"},
		"by backslash":     {"x = y" + repeat("\\\n + y", 1000), "an expression"},
		"mixed":            {"x = " + repeat("f(a, -", 300) + "1", "an expression"},
		"after a comma":    {"x = " + repeat("(1, ", 1000), "an expression"},
		"behind a string":  {"x = 'it\\'s', " + repeat("-", 1000), "an expression"},
		"behind a comment": {"x = ( # (\n" + repeat("-", 1000), "2: an expression"},
		"blocks":           {nested, "101: more than 100 statements"},
		"elif":             {"if a:\n  x\n" + repeat("elif a:\n  x\n", 200), "more than 100 statements"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkSource([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.part) {
				t.Errorf("%v, want %q", err, c.part)
			}
		})
	}
}

func FuzzCheckScript(f *testing.F) {
	for _, name := range []string{"script.pt", "trace.pt"} {
		f.Add(readGolden(f, name))
	}
	f.Fuzz(func(_ *testing.T, data []byte) { _ = checkScript(data) })
}

func FuzzCheckSource(f *testing.F) {
	f.Add([]byte("class M(Module):\n  def forward(self, x: Tensor) -> Tensor:\n    return (x + 1).t()[0]\n"))
	f.Add([]byte("'''a\n'''\\\n# (\n  elif 'x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newSource(text)
		for s.at < len(s.text) {
			before := s.at
			if s.next() != nil {
				return
			}
			sum := 0
			for _, n := range s.pending {
				sum += n
			}
			if s.at <= before || s.at > len(text) || sum != s.depth {
				t.Fatalf("at %d after %d of %d; depth %d, sum %d", s.at, before, len(text), s.depth, sum)
			}
		}
	})
}
