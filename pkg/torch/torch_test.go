package torch

import "testing"

func TestSmoke(t *testing.T) {
	s := NewScope()
	defer s.Close()
	a := From(s, []float32{1, 2, 3, 4}, 2, 2).RequireGrad(true)
	b := a.MatMul(a).Sum()
	if err := b.Backward(); err != nil {
		t.Fatal(err)
	}
	g, err := a.Grad(s).Float32s()
	t.Log(g, err)
	v := a.Add(From(s, []float32{1, 2, 3}))
	t.Log(v.Err())
}

func BenchmarkAdd(b *testing.B) {
	s := NewScope()
	defer s.Close()
	x := From(s, []float32{1, 2, 3, 4})
	for b.Loop() {
		c := s.Child()
		y := x.Alias(c)
		for range 100 {
			y = y.Add(x)
		}
		c.Close()
	}
}
