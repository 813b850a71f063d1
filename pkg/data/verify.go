package data

import (
	"context"
	"fmt"
	"image"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"roadmap/pkg/fault"
)

// Broken is an image that cannot be decoded.
type Broken struct {
	ID   int    // of the item
	Path string // of the item
	Err  error  // why
}

func (b Broken) String() string { return fmt.Sprintf("%s: %v", b.Path, b.Err) }

// Verify decodes every image, on as many goroutines as workers says (0: one a
// processor), and returns the broken ones in the dataset's order. progress,
// which may be nil, is told the number of images done after each, never twice
// at once. The error is the context's.
func (d *Dataset) Verify(ctx context.Context, workers int, progress func(done int)) ([]Broken, error) {
	errs := make([]error, len(d.Items))
	var mu sync.Mutex
	done := 0
	err := parallel(ctx, workers, len(d.Items), func(i int) {
		errs[i] = d.Items[i].use(nil, func(image.Image) error { return nil })
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			done++
			progress(done)
		}
	})
	if err != nil {
		return nil, err
	}
	var broken []Broken
	for i, err := range errs {
		if err != nil {
			broken = append(broken, Broken{ID: d.Items[i].ID, Path: d.Items[i].Path, Err: err})
		}
	}
	return broken, nil
}

// skipBroken takes the broken images out of the dataset and notes them.
func (d *Dataset) skipBroken() error {
	broken, err := d.Verify(context.Background(), 0, nil)
	if err != nil {
		return err
	}
	if len(broken) == len(d.Items) && len(broken) > 0 {
		return fault.Inputf("%s: all %d images of split %s are broken; the first: %s", d.Name, len(broken), d.Split, broken[0])
	}
	bad := map[int]bool{}
	for _, b := range broken {
		bad[b.ID] = true
	}
	d.Items = slices.DeleteFunc(d.Items, func(it Item) bool { return bad[it.ID] })
	d.Skipped = broken
	return nil
}

// parallel calls work(0) … work(n-1) on several goroutines and waits for all
// of them. It begins no more work once the context is done.
func parallel(ctx context.Context, workers, n int, work func(i int)) error {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range min(workersOr(workers), n) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}

// workersOr is the number of goroutines asked for, or one a processor.
func workersOr(n int) int {
	if n > 0 {
		return n
	}
	return runtime.GOMAXPROCS(0)
}
