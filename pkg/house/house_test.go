package house

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// pkg is one package of the project: what it may import of the others, and
// why no more. Its tests, and the packages in folders below it, keep the same
// list; they may import the package itself too, and tests the packages that help
// tests (…test).
type pkg struct {
	folder string
	may    []string
	reason string
}

// leaves know no other part of the project but each other, and every package
// may import them.
var leaves = []string{"pkg/fault", "pkg/files", "pkg/registry", "pkg/rng", "pkg/datatest"}

// packages lists the packages, the lowest first. None imports one above it; a
// new package gets a line here, with its reason, before it gets code.
var packages = []pkg{
	{"pkg/fault", nil, "an error's cause is told without knowing who erred"},
	{"pkg/files", nil, "a file is opened in one way, whoever reads it"},
	{"pkg/rng", nil, "a stream of random numbers comes from a seed and nothing else"},
	{"pkg/registry", nil, "it names components of every kind, so it can know none of them"},
	{"pkg/datatest", nil, "tests of every package ask it for real data, by path"},
	{"pkg/house", nil, "it reads the source as text"},
	{"configs", nil, "recipes are data: text that the binary embeds"},

	{"pkg/config", nil, "a recipe is decoded into whatever struct its reader holds"},
	{"pkg/memory", []string{"pkg/config"}, "what the machine allows is known before anything is allocated"},
	{"pkg/tensorio", nil, "readers of foreign files stand alone: pure Go, fuzzed, no libtorch"},
	{"pkg/process", nil, "it ends the process where Go cannot, whatever the program does"},
	{"pkg/jpeg", nil, "one C library behind one function; nothing else comes in with it"},
	{"pkg/data", []string{"pkg/config", "pkg/jpeg", "pkg/tensorio"}, "images and lists, pickled ones too, are read and checked on a machine without libtorch"},
	{"sampler", []string{"pkg/config", "pkg/memory"}, "a sampler arranges integers: it sees labels and categories, no image and no tensor"},
	{"eval/knn", nil, "exact scores and what is counted or collected from them, over plain memory: no libtorch, no labels' meaning"},
	{"eval/rank", []string{"pkg/tensorio"}, "a metric is arithmetic on ranks, checked by hand, the same on every device; only ground truth comes from files"},

	{"pkg/torch", nil, "the border to libtorch knows tensors, not what they mean"},
	{"pkg/nn", []string{"pkg/torch", "pkg/tensorio", "pkg/memory"}, "a layer is tensors with names; tensorio holds them on disk"},
	{"pkg/optim", []string{"pkg/torch", "pkg/nn", "pkg/tensorio", "pkg/config"}, "an optimiser moves named parameters, whatever loss drives it"},

	{"losses/score", []string{"pkg/torch", "pkg/config"}, "it turns embeddings into scores and back, whatever loss is between"},
	{"losses", []string{"losses/score", "pkg/torch", "pkg/config"}, "a loss sees the scores of positives and negatives: no dataset, no sampler, no network"},
	{"losses/criterion", []string{"losses", "losses/score", "pkg/torch", "pkg/nn", "pkg/config", "pkg/memory", "pkg/tensorio"}, "a loss at work has parameters and a memory, whatever drives it"},
	{"backbones", []string{"pkg/torch", "pkg/nn", "pkg/optim", "pkg/config", "pkg/tensorio"}, "a network maps images to embeddings, whatever it is trained for"},
	{"eval", []string{"pkg/torch", "pkg/nn", "pkg/config", "pkg/tensorio", "eval/rank", "eval/knn"}, "an evaluation sees embeddings and labels, not where they come from"},

	{"pkg/embed", []string{"backbones", "pkg/torch", "pkg/nn", "pkg/data", "pkg/memory"}, "images in, embeddings out, the same for training, evaluation and export"},

	{"pkg/train", []string{"losses/score", "losses/criterion", "backbones", "sampler", "eval", "eval/rank", "pkg/embed", "pkg/torch", "pkg/nn", "pkg/optim", "pkg/data", "pkg/config", "pkg/memory", "pkg/tensorio"},
		"the loop brings everything together and is told how by its recipe, so it knows no command and no flag"},
	{"pkg/report", []string{"eval", "eval/rank", "pkg/config", "pkg/tensorio", "pkg/data"}, "a page is drawn from the files of a run, without training anything"},

	{"cmd/roadmap", []string{"configs", "losses", "losses/score", "losses/criterion", "backbones", "sampler", "eval", "eval/rank", "pkg/embed", "pkg/train", "pkg/report", "pkg/torch", "pkg/nn", "pkg/optim", "pkg/data", "pkg/jpeg", "pkg/config", "pkg/memory", "pkg/process", "pkg/tensorio"},
		"the top: it may use every package, and no package may use it"},
}

// foreign names imports from outside the project that only some packages may
// have.
var foreign = []struct {
	imported string // with /... all below it too, as go list has it
	packages []string
	reason   string
}{
	{"C", []string{"pkg/torch", "losses/score", "eval/knn", "pkg/jpeg", "pkg/process"}, "all other packages build and are tested without a C compiler, or see tensors only"},
	{"unsafe", []string{"pkg/torch", "losses/score", "eval/knn", "pkg/jpeg", "pkg/tensorio"}, "memory is reinterpreted only where it crosses a border: C, and files mapped into memory"},
	{"github.com/sugarme/gotch/...", []string{"pkg/torch"}, "its table of operations has one user, who takes care of its memory and its errors"},
	{"github.com/urfave/cli/...", []string{"cmd/roadmap"}, "only the program reads flags"},
	{"flag", []string{"cmd/roadmap"}, "only the program reads flags"},
	{"github.com/schollz/progressbar/...", []string{"cmd/roadmap"}, "only the program prints for people"},
	{"github.com/jedib0t/go-pretty/...", []string{"cmd/roadmap"}, "only the program prints for people"},
	{"log", []string{"cmd/roadmap"}, "log's one global logger prints, and ends the process: a package takes a slog.Logger"},
	{"math/rand", nil, "its successor math/rand/v2 keeps its streams from version to version"},
}

// actions names what only some packages may do. Programs (package main) and tests
// may do all of it.
var actions = []struct {
	from   string   // the import path
	names  []string // what of it, "" for a builtin
	except []string // packages, or single files, that may
	reason string
}{
	{"os", []string{"Exit", "Stdout", "Stderr"}, nil, "only the program ends the process and prints; a package returns an error or takes a writer"},
	{"fmt", []string{"Print", "Printf", "Println"}, nil, "only the program prints; a package takes a writer"},
	{"", []string{"print", "println"}, nil, "only the program prints; a package takes a writer"},
	{"math/rand/v2", []string{"New", "NewPCG", "NewChaCha8"}, []string{"pkg/rng"}, "all randomness is drawn from the one seed, by path"},
	{"math/rand/v2", []string{"ExpFloat64", "Float32", "Float64", "Int", "Int32", "Int32N", "Int64", "Int64N", "IntN", "N", "NormFloat64", "Perm", "Shuffle", "Uint", "Uint32", "Uint32N", "Uint64", "Uint64N", "UintN"}, nil,
		"the global generator cannot be seeded, so no run could be repeated"},
	{"time", []string{"Now", "Since", "Until"}, []string{"pkg/train"}, "a result must not depend on the clock; only the loop times itself, for its log"},
	{"", []string{"panic"}, []string{"pkg/registry/registry.go", "pkg/tensorio/tensor.go", "pkg/data/glyphs.go"},
		"no input may crash the program; only a mistake in the program itself, seen the first time the code runs, may panic, in the files listed here"},
}

// TestProject holds the project's source against the rules.
func TestProject(t *testing.T) {
	project, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(project) < 20 {
		t.Fatalf("found %d Go files from ../..: this is not the project", len(project))
	}
	for _, fault := range faults(project) {
		t.Error(fault)
	}
}

// TestExceptions keeps the lists above honest: an exception whose file is gone
// or no longer needs it goes too.
func TestExceptions(t *testing.T) {
	project, err := read(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range actions {
		for _, exception := range d.except {
			used := slices.ContainsFunc(project, func(s source) bool {
				return (s.path == exception || s.pkg() == exception) && len(s.uses(d.from, d.names)) > 0
			})
			if !used {
				t.Errorf("%s is excepted from %q, and does none of it", exception, d.reason)
			}
		}
	}
}

// TestRules shows each rule a project that breaks it and one that does not.
func TestRules(t *testing.T) {
	const doc = "// Package x is documented.\n"
	for _, test := range []struct {
		name, path, text string
		want             string // what the fault says, "" for none
	}{
		{"leaf", "losses/a.go", doc + `package losses; import _ "roadmap/pkg/fault"`, ""},
		{"downwards", "losses/a.go", doc + `package losses; import _ "roadmap/pkg/torch"`, ""},
		{"upwards", "pkg/torch/a.go", doc + `package torch; import _ "roadmap/losses"`, "pkg/torch/a.go:2: imports losses: the border"},
		{"sideways", "sampler/a.go", doc + `package sampler; import _ "roadmap/pkg/data"`, "imports pkg/data: a sampler"},
		{"below a package", "pkg/torch/internal/x/a.go", doc + `package x; import _ "roadmap/pkg/nn"`, "imports pkg/nn: the border"},
		{"a package's own part", "pkg/torch/a.go", doc + `package torch; import _ "roadmap/pkg/torch/internal/x"`, ""},
		{"a part on its own line", "eval/rank/a.go", doc + `package rank; import _ "roadmap/pkg/torch"`, "imports pkg/torch: a metric"},
		{"not listed", "pkg/utils/a.go", doc + `package utils; import _ "fmt"`, "not in the list of packages"},
		{"test helper in a test", "losses/a_test.go", `package losses; import _ "roadmap/pkg/torch/torchtest"`, ""},
		{"test helper in a test helper", "losses/losstest/a.go", doc + `package losstest; import _ "roadmap/pkg/torch/torchtest"`, ""},
		{"test helper in the program", "losses/a.go", doc + `package losses; import _ "roadmap/losses/losstest"`, "imports losses/losstest: it helps tests"},
		{"test helper of every package", "eval/a_test.go", `package eval; import _ "roadmap/pkg/datatest"`, ""},
		{"it in the program", "eval/a.go", doc + `package eval; import _ "roadmap/pkg/datatest"`, "imports pkg/datatest: it helps tests"},
		{"test helper of a package above", "pkg/torch/a_test.go", `package torch; import _ "roadmap/losses/losstest"`, "imports losses/losstest: the border"},
		{"cgo", "losses/a.go", doc + `package losses; import "C"`, "imports C"},
		{"cgo at the border", "pkg/torch/a.go", doc + `package torch; import "C"`, ""},
		{"gotch", "pkg/nn/a.go", doc + `package nn; import _ "github.com/sugarme/gotch/libtch"`, "imports github.com/sugarme/gotch/libtch: its table"},
		{"a longer name", "pkg/nn/a.go", doc + `package nn; import _ "github.com/sugarme/gotchas"`, ""},
		{"exit", "losses/a.go", doc + `package losses; import "os"; func f() { os.Exit(1) }`, "losses/a.go:2: os.Exit"},
		{"exit under another name", "losses/a.go", doc + `package losses; import sys "os"; func f() { sys.Exit(1) }`, "os.Exit"},
		{"not the package os", "losses/a.go", doc + `package losses; type o struct{ Exit func(int) }; func f(os o) { os.Exit(1) }`, ""},
		{"exit of the program", "cmd/roadmap/a.go", `// Command roadmap.
package main; import "os"; func f() { os.Exit(1) }`, ""},
		{"print in a test", "losses/a_test.go", `package losses; import "fmt"; func f() { fmt.Println(1) }`, ""},
		{"print", "losses/a.go", doc + `package losses; import "fmt"; func f() { fmt.Println(1) }`, "fmt.Println: only the program prints"},
		{"print to a writer", "losses/a.go", doc + `package losses; import ("fmt"; "io"); func f(w io.Writer) { fmt.Fprintln(w, 1) }`, ""},
		{"global randomness", "sampler/a.go", doc + `package sampler; import "math/rand/v2"; func f() int { return rand.IntN(3) }`, "rand.IntN: the global generator"},
		{"own randomness", "sampler/a.go", doc + `package sampler; import "math/rand/v2"; func f() any { return rand.New(nil) }`, "rand.New: all randomness"},
		{"given randomness", "sampler/a.go", doc + `package sampler; import "math/rand/v2"; func f(r *rand.Rand) int { return r.IntN(3) }`, ""},
		{"clock", "eval/a.go", doc + `package eval; import "time"; var now = time.Now`, "time.Now: a result must"},
		{"panic", "eval/a.go", doc + `package eval; func f() { panic("x") }`, "panic: no input"},
		{"undocumented package", "eval/a.go", `package eval`, "eval: no file has a package comment"},
		{"undocumented program", "cmd/roadmap/a.go", `package main`, "cmd/roadmap: no file has a package comment"},
		{"undocumented name", "eval/a.go", doc + "package eval\n\nfunc Run() {}", "eval/a.go:4: Run is exported without a comment"},
		{"undocumented method", "eval/a.go", doc + "package eval\n\ntype t int\n// T is t.\ntype T struct{}\nfunc (T) Run() {}\nfunc (t) Run() {}", "eval/a.go:7: Run is exported"},
		{"method named by the language", "eval/a.go", doc + "package eval\n\n// T is t.\ntype T struct{}\nfunc (T) String() string { return \"\" }", ""},
		{"log", "eval/a.go", doc + `package eval; import _ "log"`, "imports log: log's one"},
		{"slog", "eval/a.go", doc + `package eval; import _ "log/slog"`, ""},
		{"documented group", "eval/a.go", doc + "package eval\n\n// Sizes.\nconst (\n\tA = 1\n\tB = 2\n)", ""},
		{"undocumented constant", "eval/a.go", doc + "package eval\n\nconst (\n\t// A is 1.\n\tA = 1\n\tB = 2\n)", "eval/a.go:7: B is exported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			project, err := read(fstest.MapFS{test.path: {Data: []byte(test.text)}, ".hidden/a.go": {Data: []byte("broken")}, "eval/testdata/a.go": {Data: []byte("broken")}})
			if err != nil {
				t.Fatal(err)
			}
			found := faults(project)
			switch {
			case test.want == "" && len(found) > 0:
				t.Errorf("found %q", found)
			case test.want != "" && (len(found) != 1 || !strings.Contains(found[0], test.want)):
				t.Errorf("found %q, want one that says %q", found, test.want)
			}
		})
	}
}

// faults holds every file against every rule; one line for each breach, with
// its place and the reason of the rule.
func faults(project []source) []string {
	var found []string
	documented := map[string]bool{}
	for _, s := range project {
		if !s.test() {
			documented[s.folder()] = documented[s.folder()] || s.file.Doc != nil
		}
		for _, spec := range s.file.Imports {
			if reason := refuse(s, imported(spec)); reason != "" {
				found = append(found, fmt.Sprintf("%s: imports %s: %s", s.at(spec), strings.TrimPrefix(imported(spec), module), reason))
			}
		}
		if _, ok := pkgOf(s.folder()); !ok {
			found = append(found, fmt.Sprintf("%s: the package is not in the list of packages (in pkg/house)", s.at(s.file.Name)))
		}
		if s.test() || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range actions {
			if slices.Contains(d.except, s.path) || slices.Contains(d.except, s.pkg()) {
				continue
			}
			for _, use := range s.uses(d.from, d.names) {
				found = append(found, fmt.Sprintf("%s: %s: %s", s.at(use), use.Name, d.reason))
			}
		}
		for _, name := range s.undocumented() {
			found = append(found, fmt.Sprintf("%s: %s is exported without a comment: say what it takes and gives, shapes, units, errors", s.at(name), name.Name))
		}
	}
	for folder, ok := range documented {
		if !ok {
			found = append(found, folder+": no file has a package comment: say what the package is for")
		}
	}
	slices.Sort(found)
	return found
}

// refuse gives the reason why s may not import the package, or "".
func refuse(s source, importPath string) string {
	for _, f := range foreign {
		parent, below := strings.CutSuffix(f.imported, "/...")
		if (importPath == parent || below && under(importPath, parent)) && !slices.Contains(f.packages, s.pkg()) {
			return f.reason
		}
	}
	folder, ours := strings.CutPrefix(importPath, module)
	home, ok := pkgOf(s.folder())
	if !ours || !ok {
		return ""
	}
	target := folder
	if strings.HasSuffix(folder, "test") {
		if !s.test() {
			return "it helps tests"
		}
		target = path.Dir(folder)
	}
	if target == home.folder || under(target, home.folder) || slices.Contains(leaves, folder) || slices.Contains(leaves, target) || slices.Contains(home.may, target) {
		return ""
	}
	return home.reason
}

// pkgOf finds the package of the list that a folder belongs to: its own, or the
// nearest above it.
func pkgOf(folder string) (pkg, bool) {
	for ; folder != "."; folder = path.Dir(folder) {
		for _, r := range packages {
			if r.folder == folder {
				return r, true
			}
		}
	}
	return pkg{}, false
}

func under(folder, parent string) bool { return strings.HasPrefix(folder, parent+"/") }
