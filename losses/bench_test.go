package losses_test

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"roadmap/losses"
	"roadmap/pkg/torch"
)

// batch is b embeddings of 512 dimensions, four of a class, at about the
// distances of a network that has begun to learn.
func batch(b int) (x []float32, labels []int64) {
	const d = 512
	r := rand.New(rand.NewPCG(7, uint64(b)))
	x, labels = make([]float32, b*d), make([]int64, b)
	centre := make([]float32, d)
	for i := range b {
		labels[i] = int64(i / 4)
		for k := range d {
			if i%4 == 0 {
				centre[k] = float32(r.NormFloat64())
			}
			x[i*d+k] = centre[k] + float32(r.NormFloat64())
		}
	}
	return x, labels
}

var sizes = []int{128, 384, 1024, 4096}

// BenchmarkProducts is the yardstick: the scores and the two gradients of the
// embeddings, three products of float32 matrices.
func BenchmarkProducts(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := torch.NewScope()
			defer s.Close()
			data, _ := batch(n)
			x := torch.From(s, data, int64(n), 512)
			for b.Loop() {
				products(b, x)
			}
			b.ReportMetric(best(func() { products(b, x) }), "ms")
		})
	}
}

func products(b *testing.B, x *torch.Tensor) {
	torch.NoGrad(func() {
		step := x.Scope().Child()
		defer step.Close()
		scores := x.Alias(step).MatMul(x.T())
		scores.MatMul(x)
		scores.T().MatMul(x)
		if err := step.Err(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkBlackboxList ranks one long list, a tenth of it relevant (RaMBO,
// table 6), against a sort of as many numbers.
func BenchmarkBlackboxList(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 1))
			data, relevant := make([]float32, n), make([]bool, n)
			for i := range data {
				data[i], relevant[i] = float32(r.NormFloat64()), r.IntN(10) == 0
			}
			s := torch.NewScope()
			defer s.Close()
			scores := torch.From(s, data, 1, int64(n)).RequireGrad(true)
			l, err := losses.New("blackboxap")
			if err != nil {
				b.Fatal(err)
			}
			relevance := torch.From(s, relevant, 1, int64(n))
			run := func() {
				step := s.Child()
				defer step.Close()
				r, err := losses.Forward(l, losses.Input{Scores: scores.Alias(step), Relevance: relevance})
				if err == nil {
					err = r.Value.Backward()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			ours := best(run)
			sort := best(func() {
				torch.NoGrad(func() {
					step := s.Child()
					defer step.Close()
					scores.Alias(step).Sort(1, true)
				})
			})
			for b.Loop() {
				run()
			}
			b.ReportMetric(ours, "ms")
			b.ReportMetric(ours/sort, "xsort")
		})
	}
}

// trained is a loss with a batch to evaluate it on.
type trained struct {
	loss losses.Loss
	in   losses.Input
	leaf *torch.Tensor
	s    *torch.Scope
}

func newTrained(b *testing.B, s *torch.Scope, name string, n int) *trained {
	data, labels := batch(n)
	l, err := losses.New(name)
	if err != nil {
		b.Fatal(err)
	}
	leaf := torch.From(s, data, int64(n), 512).RequireGrad(true)
	in := losses.Input{QueryLabels: labels}
	if losses.UsesProxies(l) {
		in.Gallery = leaf.Slice(0, 0, int64(n), 4).Detach().RequireGrad(true)
		for c := range n / 4 {
			in.GalleryLabels = append(in.GalleryLabels, int64(c))
		}
	}
	return &trained{l, in, leaf, s}
}

// run is forward and backward.
func (l *trained) run(b *testing.B) {
	step := l.s.Child()
	defer step.Close()
	in := l.in
	in.Query = l.leaf.Alias(step)
	r, err := losses.Forward(l.loss, in)
	if err != nil {
		b.Fatal(err)
	}
	if r.Value.RequiresGrad() {
		if err := r.Value.Backward(); err != nil {
			b.Fatal(err)
		}
	}
}

// best is the shortest of several runs of f, in milliseconds: on a machine that
// others use too the one that was disturbed least.
func best(f func()) float64 {
	shortest, begin := time.Duration(math.MaxInt64), time.Now()
	for n := 0; n < 5 || time.Since(begin) < 500*time.Millisecond; n++ {
		start := time.Now()
		f()
		shortest = min(shortest, time.Since(start))
	}
	return float64(shortest) / 1e6
}

// BenchmarkLoss is forward and backward of every loss, in milliseconds and as
// a multiple of the three products, measured in the same moment.
func BenchmarkLoss(b *testing.B) {
	for _, name := range losses.Names() {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := torch.NewScope()
				defer s.Close()
				l := newTrained(b, s, name, n)
				ours := best(func() { l.run(b) })
				floor := best(func() { products(b, l.leaf) })
				for b.Loop() {
					l.run(b)
				}
				b.ReportMetric(ours, "ms")
				b.ReportMetric(ours/floor, "xproducts")
			})
		}
	}
}

// BenchmarkPeers compares with pytorch-metric-learning, each measurement beside
// one of its own in the Python that ROADMAP_PYTHON names.
func BenchmarkPeers(b *testing.B) {
	python := os.Getenv("ROADMAP_PYTHON")
	if python == "" {
		b.Skip("ROADMAP_PYTHON names no Python with pytorch-metric-learning")
	}
	peers := exec.Command(python, "testdata/bench_peers.py", fmt.Sprint(torch.Threads()))
	peers.Stderr = os.Stderr
	ask, err := peers.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	answers, err := peers.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := peers.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		ask.Close() // ends it
		if err := peers.Wait(); err != nil {
			b.Error(err)
		}
	}()
	lines := bufio.NewScanner(answers)
	if !lines.Scan() || lines.Text() != "ready" {
		b.Fatalf("the peers did not start: %q", lines.Text())
	}
	for _, name := range []string{"smoothap", "fastap", "contrastive", "triplet", "multisimilarity"} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := torch.NewScope()
				defer s.Close()
				l := newTrained(b, s, name, n)
				ours := best(func() { l.run(b) })
				fmt.Fprintln(ask, name, n)
				if !lines.Scan() {
					b.Fatal("the peers have ended")
				}
				for b.Loop() {
					l.run(b)
				}
				b.ReportMetric(ours, "ms")
				if theirs, err := strconv.ParseFloat(lines.Text(), 64); err == nil {
					b.ReportMetric(theirs, "peer-ms")
					b.ReportMetric(theirs/ours, "xfaster")
				}
			})
		}
	}
}
