// Command genops writes the generated half of package torch: for each line of
// ops.txt one C wrapper around gotch's libtch table and one Go method.
//
// A line of ops.txt reads
//
//	GoName table_name [param=constant | param?]... | comment
//
// The signature comes from gotch's own header, so a line only says what the
// header cannot: which tensors may be nil (param?) and which parameters are
// fixed (param=constant). Constants: a C literal, `null` for an absent optional
// value, `self` for the receiver's dtype, `sum` for the dtype torch.sum uses.
//
// The first tensor parameter is the receiver; operations without one become
// methods of *Scope, operations over a list of tensors become functions. An
// in-place operation (table name ends in _) returns its receiver.
//
// The folder with ops.txt is the argument, the current one without it.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(filepath.Join(dir, "ops.txt"), filepath.Join(dir, "ops_generated.go")); err != nil {
		fmt.Fprintln(os.Stderr, "genops:", err)
		os.Exit(1)
	}
}

func run(list, out string) error {
	table, err := readTable()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var ops []op
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		o, err := parse(line, table)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", list, i+1, err)
		}
		ops = append(ops, o)
	}
	src, err := format.Source(render(ops))
	if err != nil {
		return err
	}
	return os.WriteFile(out, src, 0o644)
}

// entry is one function of the libtch table.
type entry struct {
	params  []string // C declarations, the out-pointer left out
	outputs int
}

var (
	declaration = regexp.MustCompile(`(?m)^void atg_(\w+)\(tensor \*, (.*)\);$|^void atg_(\w+)\(tensor \*\);$`)
	definition  = regexp.MustCompile(`(?m)^void atg_(\w+)\(tensor \*out__`)
)

// readTable reads every operation of gotch's generated header, and from the
// generated source how many tensors each one returns.
func readTable() (map[string]entry, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/sugarme/gotch").Output()
	if err != nil {
		return nil, fmt.Errorf("finding gotch: %w", err)
	}
	libtch := filepath.Join(strings.TrimSpace(string(dir)), "libtch")
	header, err := os.ReadFile(filepath.Join(libtch, "torch_api_generated.h"))
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(filepath.Join(libtch, "torch_api_generated.cpp.h"))
	if err != nil {
		return nil, err
	}
	outputs := map[string]int{}
	starts := definition.FindAllSubmatchIndex(source, -1)
	for i, m := range starts {
		end := len(source)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		outputs[string(source[m[2]:m[3]])] = bytes.Count(source[m[0]:end], []byte("out__["))
	}
	table := map[string]entry{}
	for _, m := range declaration.FindAllSubmatch(header, -1) {
		name := string(m[1])
		if name == "" {
			name = string(m[3])
		}
		var params []string
		if len(m[2]) > 0 {
			params = strings.Split(string(m[2]), ", ")
		}
		table[name] = entry{params: params, outputs: outputs[name]}
	}
	return table, nil
}

// param is one Go parameter and the C it turns into.
type param struct {
	kind  string // tensor, optional, tensors, scalar, ints, int, double, bool, dtype, device, string
	name  string // Go name
	fixed string // C expression when the parameter is not in the Go signature
	c     []string
}

type op struct {
	name, table, doc string
	decls            []string // the table's own C parameters
	params           []param
	outputs          int
}

func parse(line string, table map[string]entry) (op, error) {
	spec, doc, _ := strings.Cut(line, "|")
	words := strings.Fields(spec)
	if len(words) < 2 {
		return op{}, fmt.Errorf("want `GoName table_name …`, have %q", line)
	}
	o := op{name: words[0], table: words[1], doc: strings.TrimSpace(doc)}
	e, ok := table[o.table]
	if !ok {
		return op{}, fmt.Errorf("libtch has no operation %q", o.table)
	}
	o.outputs, o.decls = e.outputs, e.params
	fixed, optional := map[string]string{}, map[string]bool{}
	for _, w := range words[2:] {
		if name, value, ok := strings.Cut(w, "="); ok {
			fixed[name] = value
		} else if name, ok := strings.CutSuffix(w, "?"); ok {
			optional[name] = true
		} else {
			return op{}, fmt.Errorf("%q is neither param=constant nor param?", w)
		}
	}
	for i := 0; i < len(e.params); i++ {
		p, used := classify(e.params[i:], optional)
		i += used - 1
		name := p.name
		if value, ok := fixed[name]; ok {
			p.fixed = value
			delete(fixed, name)
		}
		delete(optional, name)
		p.name = goName(name)
		o.params = append(o.params, p)
	}
	for name := range fixed {
		return op{}, fmt.Errorf("%s has no parameter %q", o.table, name)
	}
	for name := range optional {
		return op{}, fmt.Errorf("%s has no tensor %q", o.table, name)
	}
	return o, nil
}

// classify reads the parameter that starts at decls[0] and says how many C
// parameters it takes.
func classify(decls []string, optional map[string]bool) (param, int) {
	kind, name, _ := strings.Cut(decls[0], " ")
	pointer := strings.HasPrefix(name, "*")
	name = strings.TrimPrefix(name, "*")
	second := func() string {
		_, s, _ := strings.Cut(decls[1], " ")
		return s
	}
	switch {
	case kind == "tensor" && pointer:
		return param{kind: "tensors", name: strings.TrimSuffix(name, "_data"), c: []string{name, second()}}, 2
	case kind == "tensor" && optional[name]:
		return param{kind: "optional", name: name, c: []string{name}}, 1
	case kind == "tensor":
		return param{kind: "tensor", name: name, c: []string{name}}, 1
	case kind == "scalar":
		return param{kind: "scalar", name: name, c: []string{name}}, 1
	case kind == "int64_t" && pointer:
		return param{kind: "ints", name: strings.TrimSuffix(name, "_data"), c: []string{name, second()}}, 2
	case kind == "char*":
		return param{kind: "string", name: strings.TrimSuffix(name, "_ptr"), c: []string{name, second()}}, 2
	case strings.HasSuffix(name, "_v") && len(decls) > 1 && strings.HasSuffix(decls[1], "_null"):
		k := map[string]string{"int64_t": "int", "double": "double"}[kind]
		return param{kind: k, name: strings.TrimSuffix(name, "_v"), c: []string{name, second()}}, 2
	case kind == "int64_t":
		return param{kind: "int", name: name, c: []string{name}}, 1
	case kind == "double":
		return param{kind: "double", name: name, c: []string{name}}, 1
	case name == "dtype" || name == "options_kind" || name == "scalar_type":
		return param{kind: "dtype", name: strings.TrimPrefix(name, "options_"), c: []string{name}}, 1
	case name == "options_device" || name == "device":
		return param{kind: "device", name: strings.TrimPrefix(name, "options_"), c: []string{name}}, 1
	default:
		return param{kind: "bool", name: name, c: []string{name}}, 1
	}
}

func goName(c string) string {
	parts := strings.Split(c, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	name := strings.Join(parts, "")
	switch name {
	case "kind":
		return "dtype"
	case "type", "range", "func", "map":
		return name + "_"
	}
	return name
}

func render(ops []op) []byte {
	var c, g bytes.Buffer
	for _, o := range ops {
		renderC(&c, o)
		renderGo(&g, o)
	}
	var b bytes.Buffer
	b.WriteString("// Code generated by internal/genops from ops.txt; DO NOT EDIT.\n\npackage torch\n\n/*\n#include \"ops.h\"\n\n")
	for _, line := range strings.Split(strings.TrimRight(c.String(), "\n"), "\n") {
		b.WriteString(line + "\n")
	}
	b.WriteString("*/\nimport \"C\"\n\nimport \"unsafe\"\n\n")
	b.Write(g.Bytes())
	return b.Bytes()
}

// cTypes are the C types a Go call passes; a list takes a pointer and a length.
var cTypes = map[string]string{
	"tensor": "rt_handle", "optional": "rt_handle", "tensors": "rt_handle", "scalar": "double", "ints": "int64_t",
	"int": "int64_t", "double": "double", "bool": "int", "dtype": "int", "device": "int", "string": "char",
}

func renderC(b *bytes.Buffer, o op) {
	var decls, args, before, after []string
	self := "0"
	for _, p := range o.params {
		n := p.c[0]
		if self == "0" && (p.kind == "tensor") {
			self = "(tensor)" + n
		}
		if p.fixed != "" {
			switch p.fixed {
			case "null":
				args = append(args, "0", "1")
			case "self":
				args = append(args, "at_scalar_type("+self+")")
			case "sum":
				args = append(args, "rt_sum_dtype("+self+")")
			default:
				if p.kind == "scalar" {
					before = append(before, fmt.Sprintf("scalar %s = rt_scalar(%s, %s);", n, p.fixed, self))
					after = append(after, "ats_free("+n+");")
					args = append(args, n)
				} else if len(p.c) == 2 {
					args = append(args, p.fixed, "0")
				} else {
					args = append(args, p.fixed)
				}
			}
			continue
		}
		switch p.kind {
		case "tensors", "ints", "string":
			decls = append(decls, fmt.Sprintf("%s *%s, int %s", cTypes[p.kind], n, p.c[1]))
			cast := ""
			if p.kind == "tensors" {
				cast = "(tensor *)"
			}
			args = append(args, cast+n, p.c[1])
		case "scalar":
			decls = append(decls, "double "+n)
			before = append(before, fmt.Sprintf("scalar %s_s = rt_scalar(%s, %s);", n, n, self))
			after = append(after, "ats_free("+n+"_s);")
			args = append(args, n+"_s")
		case "tensor", "optional":
			decls = append(decls, "rt_handle "+n)
			args = append(args, "(tensor)"+n)
		default:
			decls = append(decls, cTypes[p.kind]+" "+n)
			args = append(args, n)
			if len(p.c) == 2 {
				args = append(args, "0")
			}
		}
	}
	fmt.Fprintf(b, "void atg_%s(%s);\n", o.table, strings.Join(append([]string{"tensor *"}, o.decls...), ", "))
	result, fill := "rt_one", "(tensor *)&r.t"
	if o.outputs > 1 {
		result, fill = "rt_many", "(tensor *)r.t"
	}
	if len(decls) == 0 {
		decls = []string{"void"}
	}
	fmt.Fprintf(b, "static %s rt_%s(%s) {\n\t%s r = {0};\n", result, o.table, strings.Join(decls, ", "), result)
	for _, s := range before {
		fmt.Fprintf(b, "\t%s\n", s)
	}
	fmt.Fprintf(b, "\tatg_%s(%s);\n", o.table, strings.Join(append([]string{fill}, args...), ", "))
	for _, s := range after {
		fmt.Fprintf(b, "\t%s\n", s)
	}
	if inPlace(o) {
		b.WriteString("\tif (r.t) at_free((tensor)r.t);\n")
	}
	b.WriteString("\tr.err = get_and_reset_last_err();\n\treturn r;\n}\n")
}

func inPlace(o op) bool { return strings.HasSuffix(o.table, "_") }

func renderGo(b *bytes.Buffer, o op) {
	var sig, args, required, optional, lists []string
	receiver := ""
	params := o.params
	for i, p := range params {
		if p.fixed != "" {
			continue
		}
		last := !slices.ContainsFunc(params[i+1:], func(p param) bool { return p.fixed == "" })
		switch p.kind {
		case "tensor":
			if receiver == "" && len(sig) == 0 && len(lists) == 0 {
				receiver = "t"
				required = append(required, "t")
				args = append(args, "t.h")
				continue
			}
			sig = append(sig, p.name+" *Tensor")
			required = append(required, p.name)
			args = append(args, p.name+".h")
		case "optional":
			sig = append(sig, p.name+" *Tensor")
			optional = append(optional, p.name)
			args = append(args, "handle("+p.name+")")
		case "tensors":
			sig = append(sig, p.name+" []*Tensor")
			lists = append(lists, p.name)
			args = append(args, p.name+"C", p.name+"N")
		case "scalar", "double":
			sig = append(sig, p.name+" float64")
			args = append(args, "C.double("+p.name+")")
		case "int":
			sig = append(sig, p.name+" int64")
			args = append(args, "C.int64_t("+p.name+")")
		case "ints":
			if last {
				sig = append(sig, p.name+" ...int64")
			} else {
				sig = append(sig, p.name+" []int64")
			}
			args = append(args, "(*C.int64_t)(unsafe.SliceData("+p.name+"))", "C.int(len("+p.name+"))")
		case "bool":
			sig = append(sig, p.name+" bool")
			args = append(args, "cbool("+p.name+")")
		case "dtype":
			sig = append(sig, p.name+" DType")
			args = append(args, "C.int("+p.name+")")
		case "device":
			sig = append(sig, p.name+" Device")
			args = append(args, p.name+".c()")
		case "string":
			sig = append(sig, p.name+" string")
			args = append(args, "(*C.char)(unsafe.Pointer(unsafe.StringData("+p.name+")))", "C.int(len("+p.name+"))")
		}
	}
	results, dead := "*Tensor", "s.dead()"
	if o.outputs > 1 && !inPlace(o) {
		results = "(" + strings.TrimSuffix(strings.Repeat("*Tensor, ", o.outputs), ", ") + ")"
		dead = strings.TrimSuffix(strings.Repeat("s.dead(), ", o.outputs), ", ")
	}
	if inPlace(o) {
		dead = "t"
	}
	doc := o.doc
	if doc == "" {
		doc = "is torch." + o.table + "."
	}
	fmt.Fprintf(b, "// %s %s\n", o.name, doc)
	switch {
	case receiver != "":
		fmt.Fprintf(b, "func (t *Tensor) %s(%s) %s {\n", o.name, strings.Join(sig, ", "), results)
	case len(lists) > 0:
		fmt.Fprintf(b, "func %s(%s) %s {\n", o.name, strings.Join(sig, ", "), results)
	default:
		fmt.Fprintf(b, "func (s *Scope) %s(%s) %s {\n", o.name, strings.Join(sig, ", "), results)
	}
	operands := strings.Join(append(append([]string{}, required...), optional...), ", ")
	switch {
	case receiver == "" && len(lists) == 0:
		fmt.Fprintf(b, "\tif !s.ready(%q) {\n\t\treturn %s\n\t}\n", o.name, dead)
	case len(lists) > 0:
		fmt.Fprintf(b, "\ts, ok := joinLists(%q, %s, []*Tensor{%s})\n", o.name, lists[0], operands)
		fmt.Fprintf(b, "\tif !ok {\n\t\treturn %s\n\t}\n", dead)
	case len(optional) > 0:
		fmt.Fprintf(b, "\ts, ok := joinOptional(%q, []*Tensor{%s}, %s)\n\tif !ok {\n\t\treturn %s\n\t}\n", o.name, strings.Join(required, ", "), strings.Join(optional, ", "), dead)
	default:
		fmt.Fprintf(b, "\ts, ok := join(%q, %s)\n\tif !ok {\n\t\treturn %s\n\t}\n", o.name, operands, dead)
	}
	for _, p := range params {
		if p.kind == "device" {
			fmt.Fprintf(b, "\tif err := %s.use(); err != nil {\n\t\ts.fail(err)\n\t\treturn %s\n\t}\n", p.name, dead)
		}
	}
	for _, l := range lists {
		fmt.Fprintf(b, "\t%sC, %sN := handles(%s)\n", l, l, l)
	}
	fmt.Fprintf(b, "\tr := C.rt_%s(%s)\n", o.table, strings.Join(args, ", "))
	shown := operands
	if len(lists) > 0 {
		shown = lists[0] + "..."
	}
	if shown != "" {
		shown = ", " + shown
	}
	fmt.Fprintf(b, "\tif r.err != nil {\n\t\ts.refuse(%q, r.err%s)\n\t\treturn %s\n\t}\n", o.name, shown, dead)
	switch {
	case inPlace(o):
		b.WriteString("\treturn t\n}\n\n")
	case o.outputs > 1:
		var rs []string
		for i := range o.outputs {
			rs = append(rs, fmt.Sprintf("s.own(r.t[%d])", i))
		}
		fmt.Fprintf(b, "\treturn %s\n}\n\n", strings.Join(rs, ", "))
	default:
		b.WriteString("\treturn s.own(r.t)\n}\n\n")
	}
}
