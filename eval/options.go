package eval

import (
	"roadmap/eval/knn"
	"roadmap/eval/rank"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
)

// Distance is what embeddings are compared by.
type Distance string

// The distances.
const (
	Cosine Distance = "cosine" // score: the cosine of the angle
	L2     Distance = "l2"     // score: minus the squared distance
)

// Options of an evaluation. The zero value gives r@1 and map@r by cosine, exact
// ties by index, lone queries skipped.
type Options struct {
	Metrics     []rank.Metric           // as rank.ParseMetrics reads them; empty: r@1 and map@r
	Lone        rank.Lone               // rank.Skip when empty
	Ties        rank.Ties               // rank.ByIndex when empty
	Distance    Distance                // Cosine when empty
	Float32     bool                    // no integers to screen with; the same result, more slowly
	Bootstrap   int                     // resamples for the 95 % intervals; 0: none
	Seed        uint64                  // of the resamples
	Device      torch.Device            // where the scores are screened
	Threads     int                     // 0: as many as libtorch uses
	MemoryBytes int64                   // for what grows with the input, beyond which it is read again or divided; 0: 2 GiB
	Progress    func(done, total int64) // of pairs compared; called by one goroutine at a time
}

const defaultMemory = 2 << 30

func (o Options) memory() int64 {
	if o.MemoryBytes > 0 {
		return o.MemoryBytes
	}
	return defaultMemory
}

func (o Options) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return torch.Threads()
}

func (o Options) scorer(dim int) *knn.Scorer {
	return knn.New(knn.Options{Dim: dim, L2: o.Distance == L2, Exact: o.Float32})
}

func (o Options) metrics() ([]rank.Metric, error) {
	if len(o.Metrics) == 0 {
		return rank.ParseMetrics("r@1", "map@r")
	}
	return o.Metrics, nil
}

func (o Options) rank() rank.Options {
	return rank.Options{Lone: o.Lone, Bootstrap: o.Bootstrap, Seed: o.Seed}
}

// Validate refuses options that no input could satisfy, as input errors.
func (o Options) Validate() error {
	if err := o.rank().Validate(); err != nil {
		return err
	}
	if o.Ties != "" {
		if _, err := rank.ParseTies(string(o.Ties)); err != nil {
			return err
		}
	}
	if o.Distance != "" && o.Distance != Cosine && o.Distance != L2 {
		return fault.Inputf("distance: %q is unknown; give %s or %s", o.Distance, Cosine, L2)
	}
	return nil
}
