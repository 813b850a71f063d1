package torch_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"roadmap/pkg/torch"
)

// hostMemory is what the pool has; the test is alone with it from here on.
func hostMemory(t *testing.T) torch.MemoryStats {
	t.Helper()
	m, err := torch.Memory(torch.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// emptyPool gives idle memory back and counts the peak anew.
func emptyPool(t *testing.T) torch.MemoryStats {
	t.Helper()
	if err := torch.EmptyCache(torch.CPU); err != nil {
		t.Fatal(err)
	}
	if err := torch.ResetPeakMemory(torch.CPU); err != nil {
		t.Fatal(err)
	}
	m := hostMemory(t)
	if m.Reserved != m.Allocated || m.Peak != m.Allocated {
		t.Errorf("after emptying: %+v, want all three alike", m)
	}
	return m
}

// A block larger than any idle one takes the pages of several, and a smaller
// one a part: of 12 MiB freed in thirds all serve again, nothing is added.
func TestPoolUsesFreedPages(t *testing.T) {
	const mib = 1 << 20
	before := emptyPool(t)
	s := torch.NewScope()
	defer s.Close()
	var thirds [3]*torch.Tensor
	for i := range thirds {
		thirds[i] = s.Full([]int64{mib}, float64(i), torch.Float32, torch.CPU)
	}
	for _, third := range thirds {
		third.Free()
	}
	for _, sizes := range [][]int64{{12}, {5, 7}, {3, 9}, {1, 1, 10}, {12}} {
		var all []*torch.Tensor
		for i, n := range sizes {
			all = append(all, s.Full([]int64{n * mib / 4}, float64(i+1), torch.Float32, torch.CPU))
		}
		now := hostMemory(t)
		if now.Allocated-before.Allocated != 12*mib || now.Reserved-before.Reserved != 12*mib || now.Peak-before.Peak != 12*mib {
			t.Errorf("blocks of %v MiB: %+v, before %+v; want 12 MiB more of each", sizes, now, before)
		}
		for i, x := range all {
			holds(t, x, float64(i+1))
			x.Free()
		}
	}
	if now := hostMemory(t); now.Allocated != before.Allocated || now.Reserved-before.Reserved != 12*mib {
		t.Errorf("freed: %+v, before %+v; want 12 MiB kept", now, before)
	}
	small := s.Full([]int64{1000}, 1, torch.Float32, torch.CPU)
	if now := hostMemory(t); now.Allocated != before.Allocated {
		t.Errorf("a tensor of 4 KB came from the pool: %+v", now)
	}
	small.Free()
	emptyPool(t)
}

// holds fails the test unless x is the value everywhere.
func holds(t *testing.T, x *torch.Tensor, value float64) {
	t.Helper()
	low, err := x.Min().Item()
	if err != nil {
		t.Fatal(err)
	}
	high, err := x.Max().Item()
	if err != nil {
		t.Fatal(err)
	}
	if low != value || high != value {
		t.Errorf("%v holds %g to %g, %g was written", x.Shape(), low, high, value)
	}
}

// Blocks of any size, made and freed in any order by several threads, keep what
// is written to them, and the pool never holds more than was in use at once.
func TestPoolKeepsBlocksApart(t *testing.T) {
	emptyPool(t)
	var wait sync.WaitGroup
	for seed := range uint64(4) {
		wait.Go(func() {
			if err := churn(seed); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	wait.Wait()
	if m := hostMemory(t); m.Reserved > m.Peak || m.Peak < 8<<20 {
		t.Errorf("%+v: more is held than was ever in use", m)
	}
	emptyPool(t)
}

// churn makes and frees tensors of 0 to 8 MiB, each filled with its own number.
func churn(seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 1))
	s := torch.NewScope()
	defer s.Close()
	type block struct {
		tensor *torch.Tensor
		value  float64
	}
	var all []block
	for i := range 400 {
		if len(all) > 0 && r.IntN(2) == 0 {
			k := r.IntN(len(all))
			b := all[k]
			all[k] = all[len(all)-1]
			all = all[:len(all)-1]
			same, err := b.tensor.EqScalar(b.value).All().Item()
			if err != nil || same != 1 {
				return fmt.Errorf("step %d: a block of %v lost its %g: %v", i, b.tensor.Shape(), b.value, err)
			}
			b.tensor.Free()
			continue
		}
		n := 1 + r.Int64N(2<<20)
		value := float64(seed*1000) + float64(i)
		all = append(all, block{s.Full([]int64{n}, value, torch.Float32, torch.CPU), value})
		if m, err := torch.Memory(torch.CPU); err != nil || m.Reserved > m.Peak {
			return fmt.Errorf("step %d: %+v, %v: more is held than was ever in use", i, m, err)
		}
	}
	return s.Err()
}
