package losses_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

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
				step := s.Child()
				scores := x.Alias(step).MatMul(x.T())
				scores.MatMul(x)
				scores.T().MatMul(x)
				if err := step.Err(); err != nil {
					b.Fatal(err)
				}
				step.Close()
			}
		})
	}
}

// BenchmarkLoss is forward and backward of every loss.
func BenchmarkLoss(b *testing.B) {
	for _, name := range losses.Names() {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := torch.NewScope()
				defer s.Close()
				data, labels := batch(n)
				l, err := losses.New(name)
				if err != nil {
					b.Fatal(err)
				}
				leaf := torch.From(s, data, int64(n), 512).RequireGrad(true)
				in := losses.Input{Query: leaf, QueryLabels: labels}
				if losses.UsesProxies(l) {
					in.Gallery = leaf.Slice(0, 0, int64(n), 4).Detach().RequireGrad(true)
					in.GalleryLabels = labels[:0:0]
					for c := range n / 4 {
						in.GalleryLabels = append(in.GalleryLabels, int64(c))
					}
				}
				for b.Loop() {
					step := s.Child()
					in.Query = leaf.Alias(step)
					r, err := losses.Forward(l, in)
					if err != nil {
						b.Fatal(err)
					}
					if r.Value.RequiresGrad() {
						if err := r.Value.Backward(); err != nil {
							b.Fatal(err)
						}
					}
					step.Close()
				}
			})
		}
	}
}
