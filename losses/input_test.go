package losses_test

import (
	"math"
	"strings"
	"testing"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/losstest"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/torch"
)

// Every mistake of the input is an input error that names it.
func TestBadInput(t *testing.T) {
	good := func(s *torch.Scope) score.Input {
		return score.Input{Query: torch.From(s, []float32{1, 0, 0, 1, 1, 1, 2, 1}, 4, 2), QueryLabels: []int64{0, 0, 1, 1}}
	}
	set := func(row int, value float32) func(*torch.Scope, *score.Input) {
		return func(s *torch.Scope, in *score.Input) {
			data := []float32{1, 0, 0, 1, 1, 1, 2, 1}
			data[2*row], data[2*row+1] = value, value
			in.Query = torch.From(s, data, 4, 2)
		}
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		what  string
		spoil func(*torch.Scope, *score.Input)
		says  []string
	}{
		{"NaN", set(2, nan), []string{"query", "row 2", "NaN"}},
		{"Inf", set(1, float32(math.Inf(-1))), []string{"query", "row 1", "Inf"}},
		{"zero row", set(3, 0), []string{"query", "row 3", "zeros", "normalize=false"}},
		{"labels missing", func(_ *torch.Scope, in *score.Input) { in.QueryLabels = in.QueryLabels[:3] }, []string{"4 rows", "3 labels"}},
		{"ids missing", func(_ *torch.Scope, in *score.Input) { in.QueryIDs = []int64{1} }, []string{"4 rows", "1 sample ids"}},
		{"no query", func(_ *torch.Scope, in *score.Input) { in.Query = nil }, []string{"no query"}},
		{"vector", func(s *torch.Scope, in *score.Input) { in.Query = torch.From(s, []float32{1, 2}) }, []string{"shape is [2]"}},
		{"empty query", func(s *torch.Scope, in *score.Input) {
			in.Query, in.QueryLabels = torch.From(s, []float32{}, 0, 2), nil
		}, []string{"at least one row"}},
		{"integers", func(s *torch.Scope, in *score.Input) { in.Query = torch.From(s, make([]int64, 8), 4, 2) }, []string{"int64", "floating-point"}},
		{"empty gallery", func(s *torch.Scope, in *score.Input) { in.Gallery = torch.From(s, []float32{}, 0, 2) }, []string{"gallery", "at least one row"}},
		{"other width", func(s *torch.Scope, in *score.Input) {
			in.Gallery, in.GalleryLabels = torch.From(s, []float32{1, 2, 3}, 1, 3), []int64{0}
		}, []string{"2 dimensions", "3"}},
		{"NaN in the gallery", func(s *torch.Scope, in *score.Input) {
			in.Gallery, in.GalleryLabels = torch.From(s, []float32{1, 2, nan, 0}, 2, 2), []int64{0, 1}
		}, []string{"gallery", "row 1", "NaN"}},
		{"labels without gallery", func(_ *torch.Scope, in *score.Input) { in.GalleryLabels = []int64{1} }, []string{"gallery labels", "no gallery"}},
		{"ids on one side", func(s *torch.Scope, in *score.Input) {
			in.Gallery, in.GalleryLabels, in.GalleryIDs = torch.From(s, []float32{1, 2}, 1, 2), []int64{0}, []int64{5}
		}, []string{"ids", "both"}},
		{"scores alone", func(s *torch.Scope, in *score.Input) {
			*in = score.Input{Scores: torch.From(s, []float32{1, 2}, 1, 2)}
		}, []string{"relevance", "both"}},
		{"scores and embeddings", func(s *torch.Scope, in *score.Input) {
			in.Scores, in.Relevance = torch.From(s, []float32{1, 2}, 1, 2), torch.From(s, []bool{true, false}, 1, 2)
		}, []string{"not both"}},
		{"relevance of another shape", func(s *torch.Scope, in *score.Input) {
			*in = score.Input{Scores: torch.From(s, []float32{1, 2}, 1, 2), Relevance: torch.From(s, []bool{true, false}, 2, 1)}
		}, []string{"[1 2]", "[2 1]"}},
		{"graded relevance", func(s *torch.Scope, in *score.Input) {
			*in = score.Input{Scores: torch.From(s, []float32{1, 2}, 1, 2), Relevance: torch.From(s, []float32{1, 0.5}, 1, 2)}
		}, []string{"row 0, column 1", "0.5"}},
		{"NaN score", func(s *torch.Scope, in *score.Input) {
			*in = score.Input{Scores: torch.From(s, []float32{1, 2, 1, nan}, 2, 2), Relevance: torch.From(s, make([]bool, 4), 2, 2)}
		}, []string{"scores", "row 1", "NaN"}},
		{"a name", func(s *torch.Scope, in *score.Input) {
			set(2, nan)(s, in)
			in.QueryName = "E.npy"
		}, []string{"E.npy: row 2 holds NaN"}},
		{"no proxies", nil, []string{"proxies", "gallery"}},
		{"a class without proxy", nil, []string{"comes 0 times in P.npy", "E.npy: row 2 has label owl"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := torch.Live()
			s := torch.NewScope()
			in := good(s)
			name := "roadmap"
			switch c.what {
			case "no proxies":
				name = "proxynca"
			case "a class without proxy":
				name = "normsoftmax"
				in.Gallery, in.GalleryLabels = torch.From(s, []float32{1, 2}, 1, 2), []int64{0}
				in.QueryName, in.GalleryName, in.LabelNames = "E.npy", "P.npy", []string{"crow", "owl"}
			default:
				c.spoil(s, &in)
			}
			_, err := losstest.Build(t, name, nil).Evaluate(in)
			faulttest.Refused(t, err, c.says...)
			s.Close()
			if left := torch.Live() - before; left != 0 {
				t.Errorf("%d tensor handles are left", left)
			}
		})
	}
}

// One list is of scores that are given, and as long as its columns can be numbered.
func TestFlattenRefuses(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	l := losstest.Build(t, "ap", map[string]any{"flatten": true})
	_, err := l.Evaluate(score.Input{Query: torch.From(s, []float32{1, 2}, 1, 2), QueryLabels: []int64{0}})
	faulttest.Refused(t, err, "flatten", "scores and relevance")
	long := torch.From(s, []float32{0}, 1, 1).Expand(1<<16, 1<<15) // of one element in memory
	_, err = l.Evaluate(score.Input{Scores: long, Relevance: long})
	faulttest.Refused(t, err, "flatten", "65536 x 32768")
}

// Parameters out of range are refused by name, in a recipe and in a struct.
func TestBadParameters(t *testing.T) {
	for _, c := range []struct{ loss, set, says string }{
		{"supap", "tau=0", "tau is 0"},
		{"supap", "tau=-0.01", "tau is -0.01"},
		{"supap", "epsilon=0", "epsilon is 0"},
		{"supap", "epsilon=0.5", "epsilon is 0.5"},
		{"supap", "delta=-1", "delta is -1"},
		{"supap", "variant=newest", `variant is "newest"`},
		{"roadmap", "lambda=1.5", "lambda is 1.5"},
		{"roadmap", "tau=-1", "tau is -1"},
		{"calibration", "reduction=sum", `reduction is "sum"`},
		{"smoothap", "tau=0", "tau is 0"},
		{"fastap", "bins=1", "bins is 1"},
		{"softbinap", "bins=1", "bins is 1"},
		{"recallk", "k=[]", "k is []"},
		{"recallk", "k=[0]", "k is [0]"},
		{"blackboxap", "lambda=0", "lambda is 0"},
		{"blackboxrecall", "weight=linear", `weight is "linear"`},
		{"triplet", "mining=soft", `mining is "soft"`},
		{"multisimilarity", "beta=0", "beta is 0"},
		{"proxynca", "scale=0", "scale is 0"},
		{"proxynca++", "temperature=0", "temperature is 0"},
		{"normsoftmax", "temperature=-1", "temperature is -1"},
		{"crossentropy", "temperature=0", "temperature is 0"},
		{"supap", "self=maybe", `self is "maybe"`},
		{"supap", "lone=keep", `lone is "keep"`},
		{"supap", "dtype=float16", `dtype is "float16"`},
		{"supap", "chunk=-1", "chunk is -1"},
		{"supap", "chunk=some", `"some"`},
		{"supap", "budget=1KiB", "budget is 1KiB"},
		{"supap", "budget=much", `"much"`},
		{"supap", "memory.size=-4", `"-4"`},
		{"supap", "memory.batches=-1", "memory: batches is -1"},
		{"supap", "memory.combine=both", `memory: combine is "both"`},
		{"supap", "memory={size: 5, batches: 2}", "both set"},
		{"supap", "memory.start_step=-1", "memory: start_step is -1"},
		{"supap", "taau=1", "did you mean tau"},
		{"supap", "flatten=true", ""},
	} {
		section, err := config.Assign(c.loss, c.set)
		if err != nil {
			t.Fatal(err)
		}
		_, err = config.Build(criterion.Registry, section)
		if c.says == "" {
			if err != nil {
				t.Errorf("%s %s: %v", c.loss, c.set, err)
			}
			continue
		}
		faulttest.Refused(t, err, c.says)
	}
	_, err := losses.Evaluate(&losses.SmoothAP{Tau: math.NaN()}, score.Defaults(), score.Input{})
	faulttest.Refused(t, err, "tau is NaN")
	if _, _, err := losses.New("supapp"); err == nil || !strings.Contains(err.Error(), `"supap"`) {
		t.Errorf("%v does not suggest supap", err)
	}
}

// Every parameter survives the way into a recipe and back.
func TestParametersGoRound(t *testing.T) {
	for _, name := range losses.Names() {
		l := losstest.Build(t, name, nil)
		section, err := config.SectionOf(name, l)
		if err != nil {
			t.Fatal(err)
		}
		text, err := config.Marshal(struct {
			Loss config.Section `yaml:"loss"`
		}{section})
		if err != nil {
			t.Fatal(err)
		}
		tree, err := config.Parse("recipe", text)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Loss config.Section `yaml:"loss"`
		}
		if err := tree.Decode(&back); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, text)
		}
		if _, err := config.Build(criterion.Registry, back.Loss); err != nil {
			t.Errorf("%s: %v in\n%s", name, err, text)
		}
	}
}
