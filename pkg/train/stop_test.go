package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/fault"
	"roadmap/pkg/torch"
	"roadmap/pkg/torch/torchtest"
	"roadmap/pkg/train"
)

func init() {
	criterion.Registry.Register("faulty", func() *criterion.Config {
		return &criterion.Config{Loss: &faulty{}, Options: score.Defaults(), Memory: criterion.Memory{Combine: "union"}}
	})
}

// faulty is a loss that spoil may spoil: the sum of the scores of negatives less
// that of positives.
type faulty struct{}

var spoil func(loss *torch.Tensor) *torch.Tensor

func (*faulty) Forward(b *score.Block) *torch.Tensor {
	negatives := b.Negatives.Clamp(-1, 1).AddScalar(1).SumDim([]int64{1}, false) // of no entry: 0
	loss := b.Mean(negatives.Sub(b.SumPositives(b.Positives)))
	if spoil == nil {
		return loss
	}
	return spoil(loss)
}

func toNaN(loss *torch.Tensor) *torch.Tensor { return loss.MulScalar(math.NaN()) }

func outOfMemory(loss *torch.Tensor) *torch.Tensor {
	loss.Scope().Fail(fmt.Errorf("there is no room: %w", torch.ErrOutOfMemory))
	return loss.Scope().Dead()
}

// spoilt runs with the loss spoilt in the step after one, which stops the run.
func spoilt(t *testing.T, folder string, after int, by func(*torch.Tensor) *torch.Tensor, overrides ...string) error {
	t.Helper()
	defer func() { spoil = nil }()
	if after == 0 {
		spoil = by
	}
	_, err := run(t, folder, context.Background(), train.Observer{Step: func(done, _ int, _ float64) {
		if done == after {
			spoil = by
		}
	}}, append([]string{"loss={name: faulty}"}, overrides...)...)
	return err
}

// says wants an error on one line, of the program's and not of the user's,
// that says every one of parts.
func says(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil || fault.IsInput(err) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v: want one line, and no error of the input", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// A step whose loss is not a number leaves no trace: the run goes on from the
// step before and ends with the very bits of one that nothing befell.
func TestStepThatFailsIsUndone(t *testing.T) {
	for name, overrides := range map[string][]string{
		"running statistics": nil,
		"memory":             {"loss.memory={size: 50, start_step: 2}"},
		"gradient scaling":   {"train.precision=float16"},
	} {
		for _, after := range []int{0, 9} {
			t.Run(fmt.Sprintf("%s, after step %d", name, after), func(t *testing.T) {
				torchtest.NoLeak(t)
				whole, folder := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "run")
				if _, err := run(t, whole, context.Background(), train.Observer{}, append([]string{"loss={name: faulty}"}, overrides...)...); err != nil {
					t.Fatal(err)
				}
				err := spoilt(t, folder, after, toNaN, overrides...)
				says(t, err, fmt.Sprintf("step %d, images [", after+1), "glyphs", " and 21 more: ", "the loss is NaN", "lower optimizer.lr",
					fmt.Sprintf("--resume %s goes on from the checkpoint of step %d", folder, after))
				if len(err.Error()) > 600 {
					t.Errorf("a message of %d bytes", len(err.Error()))
				}
				logged(t, folder, fmt.Sprintf(`{"kind":"stop","step":%d,"reason":"step %d, images [`, after, after+1))
				if _, err := resume(t, folder, train.Observer{}); err != nil {
					t.Fatal(err)
				}
				sameEnd(t, whole, folder)
				if last := "checkpoints/step-00000024.safetensors"; !bytes.Equal(read(t, whole, last), read(t, folder, last)) {
					t.Error("the last checkpoint differs from that of the uninterrupted run")
				}
			})
		}
	}
}

// The weights that a step fails with may be spoilt already, so the checkpoint
// before them stays.
func TestStepThatFailsLeavesOlderCheckpoints(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	says(t, spoilt(t, folder, 9, toNaN, "train.keep_checkpoints=1"), "should it fail there again, remove the newest checkpoint")
	for _, step := range []int{6, 9} {
		if _, err := os.Stat(filepath.Join(folder, "checkpoints", fmt.Sprintf("step-%08d.safetensors", step))); err != nil {
			t.Error(err)
		}
	}
}

func TestStepThatIsTooLargeIsNoDivergence(t *testing.T) {
	err := spoilt(t, filepath.Join(t.TempDir(), "run"), 3, outOfMemory)
	says(t, err, "step 4: ", "no room", "sampler.classes", "goes on from the checkpoint of step 3")
	if strings.Contains(err.Error(), "lower optimizer.lr") || strings.Contains(err.Error(), "images [") {
		t.Errorf("out of memory is told as a divergence: %v", err)
	}
}

func TestOverridesOfAResumedRunAreRecorded(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := spoilt(t, folder, 3, toNaN); err == nil {
		t.Fatal("no error")
	}
	if _, err := resume(t, folder, train.Observer{}, "optimizer.lr=1e-5", "train.clip_norm=1"); err != nil {
		t.Fatal(err)
	}
	logged(t, folder, "after step 3 optimizer.lr is 1e-05; it was 0.001")
	logged(t, folder, "after step 3 train.clip_norm is 1; it was 0")
	if config := read(t, folder, "config.yaml"); !bytes.Contains(config, []byte("clip_norm: 1\n")) {
		t.Errorf("config.yaml is\n%s", config)
	}
}

func TestDivergenceThatAnEvaluationFinds(t *testing.T) {
	torchtest.NoLeak(t)
	far := []string{"optimizer={name: sgd, lr: 1e30}", "schedule=constant"}
	for name, c := range map[string]struct{ overrides, want []string }{
		"on the way": {[]string{"train.eval_every=1"}, []string{"begins at step 0"}},
		"at the end": {[]string{"train.steps=1"}, []string{"goes on from the checkpoint of step 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "run")
			_, err := run(t, folder, context.Background(), train.Observer{}, append(c.overrides, far...)...)
			says(t, err, append(c.want, "evaluation after step 1: ", "NaN or infinity", "lower optimizer.lr", "--resume "+folder)...)
			logged(t, folder, `"kind":"stop"`)
		})
	}
}

// Interrupted in an evaluation, before the first step, between two or after
// the last, a run makes up for it.
func TestInterruptedEvaluationIsMadeUpFor(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := run(t, whole, context.Background(), train.Observer{}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 10, 24} {
		t.Run(fmt.Sprintf("after step %d", at), func(t *testing.T) {
			torchtest.NoLeak(t)
			folder := filepath.Join(t.TempDir(), "run")
			ctx, cancel := context.WithCancel(context.Background())
			step := 0
			_, err := run(t, folder, ctx, train.Observer{
				Step: func(done, _ int, _ float64) { step = done },
				Embed: func(int, int) {
					if step == at {
						cancel()
					}
				},
			})
			want := fmt.Sprintf("stopped after step %d of 24: ", at)
			if at == 24 {
				want = "stopped in the evaluation after the last step: "
			}
			want += "context canceled; checkpoint saved; continue with --resume " + folder
			if !errors.Is(err, context.Canceled) || err.Error() != want {
				t.Fatalf("interrupted: %v, want %q", err, want)
			}
			if _, err := resume(t, folder, train.Observer{}); err != nil {
				t.Fatal(err)
			}
			sameEnd(t, whole, folder)
		})
	}
}

func TestFoldersThatCannotGoOn(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	ctx, observer := stopAt(10)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(folder, "checkpoints")); err != nil {
		t.Fatal(err)
	}
	if _, err := resume(t, folder, train.Observer{}); !fault.IsInput(err) || !strings.Contains(err.Error(), "checkpoints/") || !strings.Contains(err.Error(), "put it back") {
		t.Errorf("without checkpoints: %v", err)
	}
}

// The report is made again from the log, so a broken one is no loss.
func TestReportIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	whole, folder := filepath.Join(dir, "whole"), filepath.Join(dir, "run")
	if _, err := run(t, whole, context.Background(), train.Observer{}); err != nil {
		t.Fatal(err)
	}
	ctx, observer := stopAt(12)
	if _, err := run(t, folder, ctx, observer); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(folder, "metrics.json"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := resume(t, folder, train.Observer{}); err != nil {
		t.Fatal(err)
	}
	sameEnd(t, whole, folder)
}
