package tensorio

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func list(items ...any) *List { return &List{Items: items} }

// TestProtocols reads what pickle.dumps wrote in each protocol.
func TestProtocols(t *testing.T) {
	huge := new(big.Int).Lsh(big.NewInt(1), 70)
	want := map[string]any{
		"none": nil, "yes": true, "no": false, "small": int64(5), "byte": int64(255), "word": int64(65535), "int": int64(-70000),
		"long": int64(-1 << 40), "big": huge, "minus": new(big.Int).Neg(huge), "float": 0.1, "text": "héllo", "bytes": Bytes("\x00\xff"),
		"tuple": Tuple{int64(1), Tuple{int64(2)}, Tuple{int64(3), int64(4)}, Tuple{int64(5), int64(6), int64(7), int64(8)}, Tuple{}},
		"list":  list(int64(1), list(int64(2), list(int64(3)))),
	}
	for protocol := range 6 {
		v, err := UnpickleFile(golden(fmt.Sprintf("protocol%d.pkl", protocol)))
		if err != nil {
			t.Error(err)
			continue
		}
		d, ok := v.(*Dict)
		if !ok {
			t.Fatalf("protocol %d: %s", protocol, kindOf(v))
		}
		for key, value := range want {
			if protocol == 0 && key == "text" {
				value = "hello"
			}
			if protocol == 0 && key == "bytes" {
				continue
			}
			got, ok := d.Get(key)
			if protocol < 3 && key == "bytes" { // pickled as a call, of which nothing is made
				if o, isObject := got.(*Object); !isObject || o.Class != (Global{"_codecs", "encode"}) {
					t.Errorf("protocol %d: bytes are %s", protocol, kindOf(got))
				}
				continue
			}
			if !ok || !reflect.DeepEqual(got, value) {
				t.Errorf("protocol %d: %s is %#v, want %#v", protocol, key, got, value)
			}
		}
		inner, _ := d.Get("dict")
		if a, _ := inner.(*Dict).Get(int64(1)); a != "a" {
			t.Errorf("protocol %d: dict[1] is %#v", protocol, a)
		}
		set, _ := d.Get("set")
		if o := set.(*Object); o.Class.Name != "set" || !reflect.DeepEqual(o.Items, list(int64(4))) {
			t.Errorf("protocol %d: set is %#v", protocol, o)
		}
		shared, _ := d.Get("shared")
		if items := shared.(*List).Items; items[0] != items[1] {
			t.Errorf("protocol %d: one list became two", protocol)
		}
	}
}

func TestDictKeepsOrderAndLastValue(t *testing.T) {
	v, err := Unpickle([]byte("(I2\nS'b'\nI1\nS'a'\nI2\nS'c'\n(I1\ntI7\n(I1\ntI8\nd."))
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*Dict)
	if want := []any{int64(2), int64(1), Tuple{int64(1)}, Tuple{int64(1)}}; !reflect.DeepEqual(d.Keys, want) {
		t.Errorf("keys %#v", d.Keys) // equal tuples are not recognised as one key: they are kept
	}
	if got, _ := d.Get(int64(2)); got != "c" {
		t.Errorf("d[2] = %#v, want the later value", got)
	}
	if _, ok := d.Get(Tuple{int64(1)}); ok {
		t.Error("a tuple was looked up")
	}
}

func TestInstructions(t *testing.T) {
	for program, want := range map[string]any{
		"I-5\n.":                    int64(-5),
		"I01\n.":                    true,
		"L123456789012L\n.":         int64(123456789012),
		"F1.5\n.":                   1.5,
		"S'it'\n.":                  "it",
		"Vword\n.":                  "word",
		"J\xff\xff\xff\xff.":        int64(-1),
		"\x8a\x00.":                 int64(0),
		"\x8a\x01\xff.":             int64(-1),
		"\x8a\x02\xff\x00.":         int64(255),
		"\x8b\x01\x00\x00\x00\x80.": int64(-128),
		"U\x02ab.":                  "ab",
		"T\x02\x00\x00\x00ab.":      "ab",
		"C\x01\xff.":                Bytes("\xff"),
		"\x96\x01\x00\x00\x00\x00\x00\x00\x00\xff.": Bytes("\xff"),
		"K\x01K\x02\x86.":              Tuple{int64(1), int64(2)},
		"K\x01K\x020.":                 int64(1), // POP
		"K\x01(0.":                     int64(1), // POP of a mark
		"K\x01(K\x02K\x031.":           int64(1), // POP_MARK
		"K\x01" + "2\x86.":             Tuple{int64(1), int64(1)},
		"K\x01\x94K\x02\x94h\x00\x86.": Tuple{int64(2), int64(1)},
		"K\x01p5\n0g5\n.":              int64(1),
		"K\x01r\x00\x01\x00\x000j\x00\x01\x00\x00.": int64(1),
		"(K\x01K\x02l.":             list(int64(1), int64(2)),
		"]K\x01a(K\x02K\x03e.":      list(int64(1), int64(2), int64(3)),
		"\x8f(K\x01\x90.":           &Object{Class: Global{"builtins", "set"}, Items: list(int64(1))},
		"(K\x01\x91.":               &Object{Class: Global{"builtins", "frozenset"}, Items: list(int64(1))},
		"(K\x01ia\nB\n.":            &Object{Class: Global{"a", "B"}, Args: Tuple{int64(1)}},
		"(ca\nB\nK\x01o.":           &Object{Class: Global{"a", "B"}, Args: Tuple{int64(1)}},
		"ca\nB\n)\x81K\x01b.":       &Object{Class: Global{"a", "B"}, Args: Tuple{}, State: int64(1)},
		"ca\nB\n)}\x92K\x01a.":      &Object{Class: Global{"a", "B"}, Args: Tuple{}, Items: list(int64(1))},
		"\x8c\x01a\x8c\x03B.C\x93.": Global{"a", "B.C"},
		"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N.": nil,
	} {
		got, err := Unpickle([]byte(program))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %#v, %v; want %#v", program, got, err, want)
		}
	}
}

func TestDamagedPickles(t *testing.T) {
	for program, part := range map[string]string{
		"":                                 "ends too early",
		"N":                                "byte 1: ends too early",
		".":                                "stack is empty",
		"0":                                "stack is empty",
		"t":                                "no mark",
		"(a.":                              "stack is empty",
		"N(a.":                             "stack is empty", // a mark protects what lies below
		"K\x01K\x02a.":                     "items for an integer",
		"}K\x01a.":                         "items for a dict",
		"](K\x01K\x02u.":                   "items for a list",
		"}(K\x01u.":                        "lacks its value",
		"(K\x01d.":                         "lacks its value",
		"h\x07.":                           "nothing was remembered as 7",
		"g-1\n.":                           "not a memo's number",
		"I1.5\n.":                          "not an integer",
		"Fx\n.":                            "not a number",
		"Sx\n.":                            "not a quoted string",
		"S'\\x41'\n.":                      "protocol 2 or later",
		"X\x01\x00\x00\x00\xff.":           "not UTF-8",
		"X\xff\xff\xff\xff":                "claims 4294967295 bytes",
		"\x8d" + strings.Repeat("\xff", 8): "claims 18446744073709551615 bytes",
		"\x80\x06.":                        "protocol 6",
		"\x82\x01.":                        "instruction 0x82", // EXT1
		"\x97.":                            "instruction 0x97", // NEXT_BUFFER
		"NQ.":                              "outside the pickle",
		"Pid\n.":                           "outside the pickle",
		"K\x01)R.":                         "an integer stands where a class or function belongs",
		"ca\nB\nNR.":                       "None stands where a tuple of arguments belongs",
		"ca\nB\n)K\x01\x92.":               "an integer stands where keyword arguments belongs",
		"(o.":                              "an object without a class",
		"K\x01K\x02\x93.":                  "an integer stands where a name belongs",
		"K\x01}b.":                         "attributes for an integer",
		"ca\nB":                            "a line does not end",
		"\x8b\x01\x10\x00\x00" + strings.Repeat("x", 4097): "an integer of 4097 bytes",
		"I" + strings.Repeat("9", 2000) + "\n.":            "is not an integer",
		"ccollections\nOrderedDict\nK\x01\x85R.":           "collections.OrderedDict: called with arguments",
		"ccollections\nOrderedDict\n]K\x01a\x85R.":         "called with arguments",
		"ccopyreg\n_reconstructor\n)R.":                    "called with arguments",
		"cbuiltins\nset\nK\x01\x85R.":                      "called with arguments",
	} {
		_, err := Unpickle([]byte(program))
		faulttest.Refused(t, err, "pickle byte ", part)
	}
}

func TestHarmfulPickles(t *testing.T) {
	for program, name := range map[string]string{
		"cos\nsystem\n(S'echo harm'\ntR.":                "os.system",
		"cposix\nsystem\n(S'echo harm'\ntR.":             "posix.system",
		"\x8c\x02os\x8c\x06system\x93\x8c\x04harm\x85R.": "os.system",
		"(S'echo harm'\nios\nsystem\n.":                  "os.system",
		"(cos\nsystem\nS'echo harm'\no.":                 "os.system",
		"c__builtin__\neval\n(S'1'\ntR.":                 "__builtin__.eval",
		"cbuiltins\n__import__\n(S'os'\ntR.":             "builtins.__import__",
		"csubprocess\nPopen\n(S'harm'\ntR.":              "subprocess.Popen",
		"crunpy\n_run_code\n.":                           "runpy._run_code",
	} {
		_, err := Unpickle([]byte(program))
		faulttest.Refused(t, err, "wants "+name+" called", "nothing was run", "from a source you trust")
	}
}

// TestPickleBombs: programs that are small, or that ask for much, end with an
// error and within the bound.
func TestPickleBombs(t *testing.T) {
	long := func(op string, n int) string { return strings.Repeat(op, n) }
	for name, program := range map[string]string{
		"many values": long("N", 5<<20) + ".",
		"many marks":  long("(", 5<<20) + ".",
		"many lists":  long("]", 2<<20) + ".",
		"many names":  "}(" + long("U\x01aN", 5<<20) + "u.",
		"many memos":  "N" + long("\x94", 5<<20) + ".",
		"far memos": "N" + func() string {
			var b strings.Builder
			for i := range 5 << 20 {
				b.WriteByte('r')
				b.Write(binary.LittleEndian.AppendUint32(nil, uint32(i)*977))
			}
			return b.String()
		}() + ".",
		"long string":   "X\x00\x00\x00\x10" + long("x", 1<<28) + long("N", 2000) + ".",
		"copied tuples": "N" + long("2\x85", 5<<20),
		"nested tuples": ")" + long("\x85", 5<<20) + ".",
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(program)
			var err error
			if got := allocated(func() { _, err = Unpickle(data) }); got > 4*pickleMemory {
				t.Errorf("%d MiB allocated", got>>20)
			}
			faulttest.Refused(t, err, "pickle byte ", "builds more than 268500")
		})
	}
}

// TestCopies: a short pickle that copies a long value over and over is refused
// before it takes more than a factor times its length.
func TestCopies(t *testing.T) {
	list := "](" + strings.Repeat("N", 20000) + "e\x940"
	pairs := "](" + strings.Repeat("K\x01N\x86", 5000) + "e\x940"
	shape := "(" + strings.Repeat("K\x01", 20000) + "t\x940"
	long := "X\x00\x00\x01\x00" + strings.Repeat("x", 1<<16) + "\x940"
	for name, program := range map[string]string{
		"set":              list + "cbuiltins\nset\n\x940(" + strings.Repeat("h\x01h\x00\x85R", 10000) + "t.",
		"frozenset":        list + "cbuiltins\nfrozenset\n\x940(" + strings.Repeat("h\x01h\x00\x85R", 10000) + "t.",
		"OrderedDict":      pairs + "ccollections\nOrderedDict\n\x940(" + strings.Repeat("h\x01h\x00\x85R", 10000) + "t.",
		"dict":             pairs + "cbuiltins\ndict\n\x940(" + strings.Repeat("h\x01h\x00\x85R", 10000) + "t.",
		"dict of new keys": long + strings.Repeat("}h\x00Ns0", 1<<17) + "N.",
		"shapes":           shape + "ctorch\nSize\n\x940(" + strings.Repeat("h\x01h\x00\x85R", 1<<16) + "t.",
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := allocated(func() { _, err = Unpickle([]byte(program)) })
			if most := uint64(pickleFloor + pickleFactor*len(program)); got > most {
				t.Errorf("%d bytes allocated for a pickle of %d, more than %d", got, len(program), most)
			}
			faulttest.Refused(t, err, "pickle byte ", "out of all proportion to its length")
		})
	}
}

// TestNothingPlainIsRefused: what real pickles consist of stays below the
// bound, however dense.
func TestNothingPlainIsRefused(t *testing.T) {
	const n = 5000
	for name, program := range map[string]string{
		"empty sets":    "](" + strings.Repeat("\x8f\x94", n) + "e.",
		"empty dicts":   "](" + strings.Repeat("}\x94", n) + "e.",
		"a set of list": "cbuiltins\nset\n](" + strings.Repeat("K\x01", n) + "e\x85R.",
		"pairs":         "ccollections\nOrderedDict\n](" + strings.Repeat("](K\x01Ne", n) + "e\x85R.",
		"numbers":       "](" + strings.Repeat("K\x01", n) + "e.",
	} {
		if _, err := Unpickle([]byte(program)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeepPickle: depth costs neither recursion nor an error by itself.
func TestDeepPickle(t *testing.T) {
	const depth = 100_000
	v, err := Unpickle([]byte(strings.Repeat("]", depth) + strings.Repeat("a", depth-1) + "."))
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	for l := v.(*List); len(l.Items) == 1; l = l.Items[0].(*List) {
		n++
	}
	if n != depth {
		t.Errorf("%d lists deep, want %d", n, depth)
	}
}

func FuzzUnpickle(f *testing.F) {
	for protocol := range 6 {
		f.Add(readGolden(f, fmt.Sprintf("protocol%d.pkl", protocol)))
	}
	f.Add([]byte("ca\nB\n)\x81K\x01b."))
	f.Add([]byte("cos\nsystem\n(S'harm'\ntR."))
	f.Add([]byte("]\x94h\x00a.")) // a list inside itself
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &machine{data: data}
		v, err := m.run()
		if err != nil {
			return
		}
		if m.left < 0 || len(m.stack) > len(data) || len(m.memo) > len(data) {
			t.Fatalf("%d bytes left, %d on the stack, %d in the memo", m.left, len(m.stack), len(m.memo))
		}
		w := &walk{budget: newBudget(len(data)), onPath: map[any]bool{}}
		if err := w.visit("", v); err == nil && len(w.onPath) != 0 {
			t.Fatal("the walk left containers on its path")
		}
	})
}
