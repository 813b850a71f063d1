package criterion

import (
	"strconv"

	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/torch"
)

// Memory is the reference memory around a loss: queries are compared with the
// embeddings of earlier steps too, which get no gradient. Size 0 and Batches 0
// is none. RaMBO's score memory (Rolínek et al. 2020) is batches: 3; XBM (Wang
// et al. 2020) is size: dataset with combine: sum.
type Memory struct {
	Size      MemorySize `yaml:"size"`       // embeddings kept, or "dataset": as many as there are training samples
	Batches   int        `yaml:"batches"`    // or: those of that many earlier steps
	StartStep int        `yaml:"start_step"` // step, from 0, at which filling and use begin
	Combine   string     `yaml:"combine"`    // "union": one gallery of batch and memory; "sum": loss on the batch plus loss on the memory
}

// Validate refuses contradictions.
func (m *Memory) Validate() error {
	switch {
	case m.Size < memoryOfDataset:
		return config.Invalid("size", "is %d; give a number of embeddings, or dataset", m.Size)
	case m.Batches < 0:
		return config.Invalid("batches", "is %d; give a number of steps", m.Batches)
	case m.Size != 0 && m.Batches != 0:
		return fault.Inputf("memory.size and memory.batches are both set; give one of them")
	case m.StartStep < 0:
		return config.Invalid("start_step", "is %d; give a step, from 0", m.StartStep)
	case m.Combine != "union" && m.Combine != "sum":
		return config.Invalid("combine", "is %q; give union or sum", m.Combine)
	}
	return nil
}

func (m *Memory) on() bool { return m.Size != 0 || m.Batches != 0 }

// MemorySize is a number of embeddings, or "dataset".
type MemorySize int

const memoryOfDataset MemorySize = -1

// UnmarshalText reads a whole number or dataset.
func (m *MemorySize) UnmarshalText(text []byte) error {
	if string(text) == "dataset" {
		*m = memoryOfDataset
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 0 {
		return fault.Inputf("want a number of embeddings or dataset, got %q", text)
	}
	*m = MemorySize(n)
	return nil
}

// MarshalText writes what UnmarshalText reads.
func (m MemorySize) MarshalText() ([]byte, error) {
	if m == memoryOfDataset {
		return []byte("dataset"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}

// ring is the memory itself, of fixed capacity: the newest embedding replaces
// the oldest. Its tensors are part of a checkpoint.
type ring struct {
	rows        *torch.Tensor // [capacity, d] float32, as they entered the scores
	labels, ids []int64       // [capacity], lent to tensors of the state
	counters    []int64       // stored so far, steps so far; lent to a tensor too
}

// newRing makes an empty ring, and enters its tensors into params as buffers.
func newRing(params *nn.Params, capacity, dim int) *ring {
	r := &ring{labels: make([]int64, capacity), ids: make([]int64, capacity), counters: make([]int64, 2)}
	path := params.Root().At("memory")
	r.rows = path.Buffer("embeddings", nn.Zeros, int64(capacity), int64(dim))
	params.Adopt(nn.Named{Name: "memory.labels", Tensor: torch.Wrap(params.Scope(), r.labels)})
	params.Adopt(nn.Named{Name: "memory.ids", Tensor: torch.Wrap(params.Scope(), r.ids)})
	params.Adopt(nn.Named{Name: "memory.counters", Tensor: torch.Wrap(params.Scope(), r.counters)})
	return r
}

// count is the number of embeddings that can be recalled.
func (r *ring) count() int { return int(min(r.counters[0], int64(len(r.labels)))) }

// steps is the number of steps so far.
func (r *ring) steps() int { return int(r.counters[1]) }

// recall lends the filled part of the ring, in scope s.
func (r *ring) recall(s *torch.Scope) *score.Stored {
	n := r.count()
	return &score.Stored{Rows: r.rows.Alias(s).Narrow(0, 0, int64(n)), Labels: r.labels[:n], IDs: r.ids[:n]}
}

// store enters a batch; of one larger than the ring, the last rows.
func (r *ring) store(rows *torch.Tensor, labels, ids []int64) {
	capacity := len(r.labels)
	from := max(0, len(labels)-capacity)
	for from < len(labels) {
		at := int(r.counters[0] % int64(capacity))
		n := min(len(labels)-from, capacity-at)
		r.rows.Alias(rows.Scope()).Narrow(0, int64(at), int64(n)).CopyInPlace(rows.Narrow(0, int64(from), int64(n)))
		copy(r.labels[at:], labels[from:from+n])
		copy(r.ids[at:], ids[from:from+n])
		r.counters[0] += int64(n)
		from += n
	}
}
