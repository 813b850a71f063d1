package optim_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/optim"
	"roadmap/pkg/torch"
)

// reference is what testdata/reference.py wrote.
type reference struct {
	Start     [][]float64
	Gradients [2][][]float64 // of each parameter, a row a step
	Factors   []float64
	Steps     map[string][][][]float64 // step, parameter, element
	Schedules map[string][]float64
	Clipped   []struct {
		Max, Norm float64
		Gradients [][]float64
	}
	Average struct {
		Decay float64
		Steps [][]float64 // four weights and a buffer
	}
	Scaler struct {
		Overflows []int
		Steps     int
		Seen      [][3]float64 // step, scale after it, weight after it
	}
}

func load(t *testing.T) (r reference) {
	t.Helper()
	data, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// make builds an optimiser from "name key=value …" over groups.
func build(t *testing.T, s *torch.Scope, what string, groups []optim.Group) *optim.Optimizer {
	t.Helper()
	words := strings.Fields(what)
	section, err := config.Assign(words[0], append(words[1:], "lr=0.1")...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Build(optim.Registry, section)
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.New(s, groups)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// parameters are the reference's two, in float64, the second at twice the
// learning rate and without weight decay.
func parameters(s *torch.Scope, r reference) []optim.Group {
	var groups []optim.Group
	for i, name := range []string{"a", "b"} {
		p := torch.From(s, r.Start[i]).RequireGrad(true)
		groups = append(groups, optim.Group{Name: name, LR: float64(i + 1), Decay: float64(1 - i),
			Params: nn.State{{Name: name, Tensor: p, Parameter: true}}})
	}
	return groups
}

// walk sets the gradients of steps from to below to, and takes them.
func walk(t *testing.T, o *optim.Optimizer, r reference, from, to int, each func(step int)) {
	t.Helper()
	for i := from; i < to; i++ {
		s := torch.NewScope()
		for j, g := range o.Groups() {
			var gradient *torch.Tensor
			if !(i == 2 && j == 1) {
				gradient = torch.From(s, r.Gradients[j][i])
			}
			if err := g.Params[0].Tensor.SetGrad(gradient); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Step(r.Factors[i]); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if each != nil {
			each(i)
		}
	}
}

func values(t *testing.T, n nn.Named) []float64 {
	t.Helper()
	v, err := n.Tensor.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStepsEqualPyTorch(t *testing.T) {
	r := load(t)
	for what, steps := range r.Steps {
		t.Run(what, func(t *testing.T) {
			before := torch.Live()
			s := torch.NewScope()
			o := build(t, s, what, parameters(s, r))
			walk(t, o, r, 0, len(steps), func(i int) {
				for j, g := range o.Groups() {
					for k, v := range values(t, g.Params[0]) {
						if want := steps[i][j][k]; !(math.Abs(v-want) <= 1e-12) {
							t.Errorf("step %d, parameter %d, element %d: %.15g, PyTorch %.15g", i, j, k, v, want)
						}
					}
				}
			})
			s.Close()
			if left := torch.Live() - before; left != 0 {
				t.Errorf("%d handles left", left)
			}
		})
	}
}

// A run that stops after two steps, saves, and goes on from the file in new
// tensors must end bit-equal to one that never stopped.
func TestResumesExactly(t *testing.T) {
	r := load(t)
	for what := range r.Steps {
		t.Run(what, func(t *testing.T) {
			s := torch.NewScope()
			defer s.Close()
			whole := build(t, s, what, parameters(s, r))
			walk(t, whole, r, 0, 5, nil)

			first := build(t, s, what, parameters(s, r))
			walk(t, first, r, 0, 2, nil)
			saved, err := all(first).Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			second := build(t, s, what, parameters(s, r))
			if err := all(second).Load(nn.Stored(saved)); err != nil {
				t.Fatal(err)
			}
			walk(t, second, r, 2, 5, nil)
			for i, n := range all(whole) {
				got, want := values(t, all(second)[i]), values(t, n)
				for k := range want {
					if got[k] != want[k] {
						t.Errorf("%s, element %d: %.17g, uninterrupted %.17g", n.Name, k, got[k], want[k])
					}
				}
			}
		})
	}
}

// all is what a checkpoint holds: parameters and optimiser.
func all(o *optim.Optimizer) nn.State {
	var state nn.State
	for _, g := range o.Groups() {
		state = append(state, g.Params...)
	}
	return append(state, o.State()...)
}

func TestSchedulesEqualPyTorch(t *testing.T) {
	r := load(t)
	for _, c := range []struct {
		name     string
		schedule optim.Schedule
	}{
		{"multistep 2,5", &optim.MultiStep{Milestones: []int{2, 5}, Gamma: 0.1}}, // epochs of 3 steps: PyTorch's 6 and 15
		{"cosine", &optim.Cosine{Floor: 0.1}},
		{"constant", &optim.Constant{}},
		{"constant warm", &optim.Constant{WarmUp: optim.WarmUp{Steps: 4}}},
		{"multistep warm", &optim.MultiStep{Milestones: []int{2, 5}, Gamma: 0.1, WarmUp: optim.WarmUp{Steps: 1, Epochs: 1}}}, // 1 + 3 steps
		{"cosine warm", &optim.Cosine{WarmUp: optim.WarmUp{Steps: 4}}},
	} {
		if len(r.Schedules[c.name]) != 24 {
			t.Fatalf("%s: the reference has %d steps", c.name, len(r.Schedules[c.name]))
		}
		for step, want := range r.Schedules[c.name] {
			if got := c.schedule.Factor(step, 24, 3); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("%s, step %d: %g, PyTorch %g", c.name, step, got, want)
			}
		}
	}
}

func TestWarmUpRisesToTheSchedule(t *testing.T) {
	for _, name := range optim.Schedules.Names() {
		section, err := config.Assign(name, "warmup_steps=1", "warmup_epochs=1")
		if err != nil {
			t.Fatal(err)
		}
		s, err := config.Build(optim.Schedules, section)
		if err != nil {
			t.Fatal(err)
		}
		// one step and one epoch of two: 1/4, 2/4, 3/4, then 1
		for step, want := range []float64{0.25, 0.5, 0.75, 1} {
			if got := s.Factor(step, 100, 2); !(math.Abs(got-want) <= 1e-12) {
				t.Errorf("%s: factor %g in step %d, want %g", name, got, step, want)
			}
		}
	}
}

// Gradients (3, 4) and (12, 0) have norm √(9+16+144) = 13; clipped to 6.5 each
// is halved (but for the 1e-6 in PyTorch's divisor).
func TestClipGradNorm(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	var params nn.State
	for i, g := range [][]float32{{3, 4}, {12, 0}} {
		p := torch.From(s, []float32{1, 1}).RequireGrad(true)
		if err := p.SetGrad(torch.From(s, g)); err != nil {
			t.Fatal(err)
		}
		params = append(params, nn.Named{Name: string(rune('a' + i)), Tensor: p, Parameter: true})
	}
	o := build(t, s, "sgd", []optim.Group{{Params: params, LR: 1}})
	for _, c := range []struct{ max, norm, first float64 }{{0, 13, 3}, {20, 13, 3}, {6.5, 13, 1.5}, {0, 6.5, 1.5}} {
		norm, err := o.ClipGradNorm(c.max)
		if err != nil {
			t.Fatal(err)
		}
		g, err := params[0].Tensor.Grad(s).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(norm-c.norm) > 1e-5 || math.Abs(g[0]-c.first) > 1e-5 {
			t.Errorf("clipped to %g: norm %g, first element %g; want %g, %g", c.max, norm, g[0], c.norm, c.first)
		}
	}
}

func TestClipEqualsPyTorch(t *testing.T) {
	r := load(t)
	for _, c := range r.Clipped {
		s := torch.NewScope()
		groups := parameters(s, r)
		for i, g := range groups {
			if err := g.Params[0].Tensor.SetGrad(torch.From(s, r.Gradients[i][0])); err != nil {
				t.Fatal(err)
			}
		}
		norm, err := build(t, s, "sgd", groups).ClipGradNorm(c.Max)
		if err != nil || !(math.Abs(norm-c.Norm) <= 1e-12) {
			t.Errorf("clipped to %g: norm %.15g, %v; PyTorch %.15g", c.Max, norm, err, c.Norm)
		}
		for i, g := range groups {
			got := values(t, nn.Named{Tensor: g.Params[0].Tensor.Grad(s)})
			for j, want := range c.Gradients[i] {
				if !(math.Abs(got[j]-want) <= 1e-12) {
					t.Errorf("clipped to %g: gradient %d, element %d: %.15g, PyTorch %.15g", c.Max, i, j, got[j], want)
				}
			}
		}
		s.Close()
	}
}

func TestAverageEqualsPyTorch(t *testing.T) {
	r := load(t)
	s := torch.NewScope()
	defer s.Close()
	w, seen := torch.From(s, r.Start[0]).RequireGrad(true), torch.From(s, []float64{0})
	a, err := optim.NewAverage(s, nn.State{{Name: "w", Tensor: w, Parameter: true}, {Name: "seen", Tensor: seen}}, r.Average.Decay)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range r.Average.Steps {
		torch.NoGrad(func() { w.AddInPlace(torch.From(s, r.Gradients[0][i])); seen.AddScalarInPlace(1) })
		if err := a.Update(); err != nil {
			t.Fatal(err)
		}
		got := append(values(t, a.State()[0]), values(t, a.State()[1])...)
		for j := range want {
			if !(math.Abs(got[j]-want[j]) <= 1e-12) {
				t.Errorf("step %d, element %d: %.15g, PyTorch %.15g", i, j, got[j], want[j])
			}
		}
	}
}

// Steps of a loss that overflows now and then, against GradScaler: which are
// left out, the scale after each, the weight.
func TestScalerEqualsPyTorch(t *testing.T) {
	r := load(t)
	s := torch.NewScope()
	defer s.Close()
	w := torch.From(s, []float32{1}).RequireGrad(true)
	scaler := optim.NewScaler(s)
	o := build(t, s, "sgd", []optim.Group{{Params: nn.State{{Name: "w", Tensor: w, Parameter: true}}, LR: 10 * 0x1p-12}}) // times 0.1
	seen := r.Scaler.Seen
	for i := range r.Scaler.Steps {
		slope := 3.0
		if slices.Contains(r.Scaler.Overflows, i) {
			slope = math.Inf(1)
		}
		step := s.Child()
		if err := o.ZeroGrad(); err != nil {
			t.Fatal(err)
		}
		if err := scaler.Scale(w.Alias(step).MulScalar(slope).Sum()).Backward(); err != nil {
			t.Fatal(err)
		}
		finite, err := scaler.Unscale(o.Params())
		if err != nil {
			t.Fatal(err)
		}
		if finite {
			if err := o.Step(1); err != nil {
				t.Fatal(err)
			}
		}
		step.Close()
		if len(seen) == 0 || int(seen[0][0]) != i {
			continue
		}
		scale, weight := values(t, scaler.State()[0])[0], values(t, nn.Named{Tensor: w})[0]
		if scale != seen[0][1] || math.Abs(weight-seen[0][2]) > 1e-5 {
			t.Fatalf("step %d: scale %g, weight %.9g; PyTorch %g, %.9g", i, scale, weight, seen[0][1], seen[0][2])
		}
		seen = seen[1:]
	}
	if len(seen) > 0 {
		t.Errorf("%d steps of the reference were not compared", len(seen))
	}
}

func TestScaler(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	scaler := optim.NewScaler(s)
	p := torch.From(s, []float32{1}).RequireGrad(true)
	scale := func() float64 { return values(t, scaler.State()[0])[0] }
	start := scale()
	pass := func(slope float64) (finite bool, gradient float64) {
		step := s.Child()
		defer step.Close()
		if err := p.SetGrad(nil); err != nil {
			t.Fatal(err)
		}
		if err := scaler.Scale(p.Alias(step).MulScalar(slope).Sum()).Backward(); err != nil {
			t.Fatal(err)
		}
		finite, err := scaler.Unscale([]*torch.Tensor{p})
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.Grad(step).Item()
		if err != nil {
			t.Fatal(err)
		}
		return finite, g
	}
	if finite, g := pass(3); !finite || g != 3 || scale() != start {
		t.Errorf("a good step: finite %v, gradient %g, scale %g; want true, 3, %g", finite, g, scale(), start)
	}
	if finite, _ := pass(math.Inf(1)); finite || scale() != start/2 {
		t.Errorf("an overflow: finite %v, scale %g; want false, %g", finite, scale(), start/2)
	}
	for range 1999 {
		pass(1)
	}
	if scale() != start/2 {
		t.Errorf("1999 good steps after an overflow: scale %g, want %g", scale(), start/2)
	}
	if pass(1); scale() != start {
		t.Errorf("2000 good steps after an overflow: scale %g, want %g", scale(), start)
	}
}

// With decay 0.75 the average of 4, then 8 is 4, then 0.75·4 + 0.25·8 = 5; the
// buffer is copied.
func TestAverage(t *testing.T) {
	before := torch.Live()
	s := torch.NewScope()
	w := torch.From(s, []float32{4}).RequireGrad(true)
	b := torch.From(s, []int64{1})
	a, err := optim.NewAverage(s, nn.State{{Name: "w", Tensor: w, Parameter: true}, {Name: "b", Tensor: b}}, 0.75)
	if err != nil {
		t.Fatal(err)
	}
	torch.NoGrad(func() { w.FillInPlace(8); b.FillInPlace(2) })
	live := torch.Live()
	if err := a.Update(); err != nil {
		t.Fatal(err)
	}
	expect := func(when string, mine, its, buffer float64) {
		t.Helper()
		x, _ := w.Item()
		y := values(t, a.State()[0])[0]
		z := values(t, a.State()[1])[0]
		if x != mine || y != its || z != buffer {
			t.Errorf("%s: weight %g, average %g, buffer %g; want %g, %g, %g", when, x, y, z, mine, its, buffer)
		}
	}
	expect("after the update", 8, 5, 2)
	for range 2 {
		if err := a.Swap(); err != nil {
			t.Fatal(err)
		}
	}
	expect("swapped twice", 8, 5, 2)
	if err := a.Swap(); err != nil {
		t.Fatal(err)
	}
	expect("swapped", 5, 8, 2)
	if !w.RequiresGrad() {
		t.Error("the weight lost its gradient")
	}
	if grown := torch.Live() - live; grown != 0 {
		t.Errorf("%d handles left", grown)
	}
	s.Close()
	if left := torch.Live() - before; left != 0 {
		t.Errorf("%d handles outlive the scope", left)
	}
}

func TestSplit(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	param := func(name string, shape ...int64) nn.Named {
		return nn.Named{Name: name, Tensor: s.Zeros(shape, torch.Float32, torch.CPU), Parameter: true}
	}
	params := nn.State{param("conv.weight", 2, 2, 3, 3), param("norm.weight", 2), param("pos_embed", 1, 5, 2), param("head.weight", 2, 2), param("head.bias", 2)}
	isHead := func(name string) bool { return strings.HasPrefix(name, "head.") }
	proxies := nn.State{param("loss.proxies", 3, 2)}
	describe := func(groups []optim.Group) string {
		var parts []string
		for _, g := range groups {
			var names []string
			for _, p := range g.Params {
				names = append(names, p.Name)
			}
			parts = append(parts, strings.Join(names, ",")+"@"+number(g.LR)+"/"+number(g.Decay))
		}
		return strings.Join(parts, " ")
	}
	for _, c := range []struct {
		g    optim.Grouping
		want string
	}{
		{optim.NewGrouping(), "conv.weight,norm.weight,pos_embed@1/1 head.weight,head.bias@1/1 loss.proxies@1/1"},
		{optim.Grouping{HeadLR: 10, ProxyLR: 100, SpareNorms: true}, "conv.weight@1/1 norm.weight,pos_embed@1/0 head.weight@10/1 head.bias@10/0 loss.proxies@100/1"},
	} {
		if got := describe(c.g.Split(params, isHead, proxies)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.g, got, c.want)
		}
	}
}

func number(v float64) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestRefusals(t *testing.T) {
	s := torch.NewScope()
	defer s.Close()
	p := nn.Named{Name: "w", Tensor: torch.From(s, []float32{1}).RequireGrad(true), Parameter: true}
	fine := []optim.Group{{Params: nn.State{p}, LR: 1, Decay: 1}}
	for _, c := range []struct {
		what   optim.Config
		groups []optim.Group
		want   string
	}{
		{&optim.Adam{LR: 0, Beta1: 0.9, Beta2: 0.999}, fine, "lr must be positive"},
		{&optim.Adam{LR: math.NaN(), Beta1: 0.9, Beta2: 0.999}, fine, "lr must be positive"},
		{&optim.Adam{LR: 1, Beta1: 1, Beta2: 0.999}, fine, "beta1 must be in [0, 1)"},
		{&optim.SGD{LR: 1, Nesterov: true}, fine, "nesterov needs a momentum"},
		{&optim.SGD{LR: 1, WeightDecay: -1}, fine, "weight_decay must not be negative"},
		{&optim.SGD{LR: 1}, nil, "no parameter to train"},
		{&optim.SGD{LR: 1}, []optim.Group{{Name: "x", Params: nn.State{p}, LR: -1}}, `group "x"`},
	} {
		_, err := c.what.New(s, c.groups)
		if err == nil || !strings.Contains(err.Error(), c.want) || !fault.IsInput(err) {
			t.Errorf("%+v: error %v, want an input error with %q", c.what, err, c.want)
		}
	}
	if _, err := (&optim.SGD{LR: 1}).New(s, append(fine, fine...)); err == nil {
		t.Error("a parameter in two groups was accepted")
	}
}
