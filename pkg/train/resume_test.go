package train_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roadmap/pkg/fault/faulttest"
	"roadmap/pkg/train"
)

// stopped is a run stopped after a step.
func stopped(t *testing.T, at int, overrides ...string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "run")
	ctx, observer := stopAt(at)
	if _, err := run(t, folder, ctx, observer, overrides...); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return folder
}

func edit(t *testing.T, path, old, now string) {
	t.Helper()
	text := read(t, path)
	if !bytes.Contains(text, []byte(old)) {
		t.Fatalf("%s has no %q:\n%s", path, old, text)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(old), []byte(now), 1), 0o644); err != nil {
		t.Fatal(err)
	}
}

func listed(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(folder, "checkpoints"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A recipe that was edited by hand is refused where an override would be, key by
// key, and taken and recorded with --accept-changes; so is an override.
func TestEditedRecipeIsRefused(t *testing.T) {
	for _, c := range []struct{ old, now, says string }{
		{"seed: 5", "seed: 6", "seed is 6; it was 5"},
		{"weight_decay: 0.01", "weight_decay: 0.1", "optimizer.weight_decay is 0.1; it was 0.01"},
		{"tau: 0.01", "tau: 0.02", "loss.tau is 0.02; it was 0.01"},
		{"classes: 8", "classes: 6", "sampler.classes is 6; it was 8"},
	} {
		t.Run(c.now, func(t *testing.T) {
			folder := stopped(t, 9)
			edit(t, filepath.Join(folder, "config.yaml"), c.old, c.now)
			before := listed(t, folder)
			_, err := resume(t, folder, train.Observer{})
			faulttest.Refused(t, err, "another one up to step 9", c.says, "--accept-changes")
			if after := listed(t, folder); !slices.Equal(before, after) {
				t.Errorf("checkpoints were %v, are %v", before, after)
			}
			if _, err := resumeAs(t, folder, true, train.Observer{}); err != nil {
				t.Fatal(err)
			}
			logged(t, folder, "after step 9 "+c.says)
		})
	}
	folder := stopped(t, 9)
	_, err := resume(t, folder, train.Observer{}, "seed=6", "loss.tau=0.5")
	faulttest.Refused(t, err, "seed is 6; it was 5, loss.tau is 0.5; it was 0.01")
}

// A change that was accepted belongs to the run from then on, also if it is
// killed before its next checkpoint.
func TestAcceptedChangeIsRecorded(t *testing.T) {
	folder := stopped(t, 9)
	at := 0
	kill := train.Observer{Step: func(done, _ int, _ float64) {
		if at = done; done == 11 {
			panic("killed")
		}
	}}
	func() {
		defer func() { _ = recover() }()
		_, _ = resumeAs(t, folder, true, kill, "seed=6")
	}()
	if at != 11 {
		t.Fatalf("the run was not killed in step 11 but after %d", at)
	}
	if _, err := resume(t, folder, train.Observer{}); err != nil {
		t.Error(err)
	}
}

// Edits of what --resume may change go on, and are told.
func TestEditedLearningRateIsTold(t *testing.T) {
	folder := stopped(t, 9)
	edit(t, filepath.Join(folder, "config.yaml"), "lr: 0.001", "lr: 0.0005")
	if _, err := resume(t, folder, train.Observer{}); err != nil {
		t.Fatal(err)
	}
	logged(t, folder, "after step 9 optimizer.lr is 0.0005; it was 0.001")
}

// Images that are gone, renamed, moved to another class or replaced make it
// another run.
func TestChangedDataIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(root string) error
		says   string
	}{
		"removed": {func(root string) error { return os.Remove(filepath.Join(root, "class00", "0.png")) }, "train is 23 images of 6 classes; it was 24 images of 6 classes"},
		"renamed": {func(root string) error {
			return os.Rename(filepath.Join(root, "class11", "0.png"), filepath.Join(root, "class11", "00.png"))
		}, "split test is with these; it was as many images with other names"},
		"replaced": {func(root string) error { return os.WriteFile(filepath.Join(root, "class01", "1.png"), nil, 0o644) }, "other sizes"},
	} {
		t.Run(name, func(t *testing.T) {
			root, overrides := photos(t)
			folder := stopped(t, 4, overrides...)
			if err := c.change(root); err != nil {
				t.Fatal(err)
			}
			_, err := resume(t, folder, train.Observer{})
			faulttest.Refused(t, err, c.says, "--accept-changes")
		})
	}
	t.Run("moved", func(t *testing.T) { // data.root differs, the images do not
		root, overrides := photos(t)
		folder := stopped(t, 4, overrides...)
		moved := filepath.Join(t.TempDir(), "elsewhere")
		if err := os.Rename(root, moved); err != nil {
			t.Fatal(err)
		}
		if _, err := resumeAs(t, folder, true, train.Observer{}, "data.root="+moved); err != nil {
			t.Fatal(err)
		}
		if log := string(read(t, folder, "log.jsonl")); !strings.Contains(log, "data.root is "+moved) || strings.Contains(log, "the data of split") {
			t.Errorf("the log says\n%s", log)
		}
	})
}

// Damaged checkpoints are passed over and never counted: with keep_checkpoints=1
// the newest whole one stays, whatever its step.
func TestDamagedCheckpointsAreNotCounted(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := run(t, whole, context.Background(), train.Observer{}, "train.keep_checkpoints=1"); err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(path string) error{
		"cut short": func(path string) error { return os.Truncate(path, 5000) },
		"a bit flipped": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text[len(text)-4000] ^= 1
			return os.WriteFile(path, text, 0o644)
		},
		"empty": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			folder := stopped(t, 13)
			if err := damage(filepath.Join(folder, "checkpoints", "step-00000013.safetensors")); err != nil {
				t.Fatal(err)
			}
			var notes []string
			stop, observer := stopAt(13)
			_ = stop
			observer.Note = func(s string) { notes = append(notes, s) }
			if _, err := resume(t, folder, observer, "train.keep_checkpoints=1", "train.checkpoint_every=1"); err != nil {
				t.Fatal(err)
			}
			if len(notes) == 0 || !strings.Contains(notes[0], "step-00000013") || !strings.Contains(notes[0], "going on from the checkpoint of step 12") {
				t.Errorf("notes %q", notes)
			}
			if got, want := listed(t, folder), []string{"step-00000013.safetensors.damaged", "step-00000024.safetensors"}; !slices.Equal(got, want) {
				t.Errorf("checkpoints %v, want %v", got, want)
			}
			if !bytes.Equal(read(t, whole, "weights.safetensors"), read(t, folder, "weights.safetensors")) {
				t.Error("the weights differ from those of a run left alone")
			}
		})
	}
}

// An old checkpoint that is damaged does not take the place of a whole one.
func TestOldDamagedCheckpointIsNotKept(t *testing.T) {
	folder := stopped(t, 13, "train.keep_checkpoints=3")
	if err := os.Truncate(filepath.Join(folder, "checkpoints", "step-00000012.safetensors"), 5000); err != nil {
		t.Fatal(err)
	}
	if _, err := resume(t, folder, train.Observer{}, "train.steps=18"); err != nil {
		t.Fatal(err)
	}
	if got, want := listed(t, folder), []string{"step-00000006.safetensors", "step-00000012.safetensors.damaged", "step-00000013.safetensors", "step-00000018.safetensors"}; !slices.Equal(got, want) {
		t.Errorf("checkpoints %v, want %v", got, want)
	}
}

// A log that is not what was written is told, whatever is wrong with it, and
// metrics.json keeps what it has.
func TestDamagedLogIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(log []byte) []byte
		says   string
	}{
		"a line that cannot be read": {func(log []byte) []byte { log[0] ^= 0x40; return log }, "1 of its lines cannot be read and were left out, the first is line 1"},
		"a digit that was flipped": {func(log []byte) []byte {
			return bytes.Replace(log, []byte(`"queries":1380`), []byte(`"queries":1381`), 1)
		}, "not those that were written"},
		"lines missing at the beginning": {func(log []byte) []byte { _, rest, _ := bytes.Cut(log, []byte("\n")); return rest }, "lines are missing"},
		"lines missing at the end":       {func(log []byte) []byte { return log[:len(log)/3] }, "lines are missing"},
		"all of it":                      {func([]byte) []byte { return nil }, "lines are missing"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := stopped(t, 13)
			path := filepath.Join(folder, "log.jsonl")
			if err := os.WriteFile(path, c.damage(read(t, path)), 0o644); err != nil {
				t.Fatal(err)
			}
			var notes []string
			result, err := resume(t, folder, train.Observer{Note: func(s string) { notes = append(notes, s) }})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(notes, func(s string) bool { return strings.Contains(s, c.says) }) {
				t.Errorf("notes %q do not say %q", notes, c.says)
			}
			if result.Metrics["before"] == nil || !bytes.Contains(read(t, folder, "metrics.json"), []byte("before")) {
				t.Errorf("the metrics before the first step are lost: %v", result.Metrics)
			}
		})
	}
	folder := stopped(t, 13)
	var notes []string
	if _, err := resume(t, folder, train.Observer{Note: func(s string) { notes = append(notes, s) }}); err != nil || len(notes) > 0 {
		t.Errorf("an undamaged log: %q, %v", notes, err)
	}
}

// What a run leaves that is killed before its config.yaml is there is no
// obstacle to the next one, and is removed by it.
func TestFolderOfARunThatNeverBegan(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	if err := os.MkdirAll(filepath.Join(folder, "checkpoints"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".lock", ".config.yaml.1-0.partial", "checkpoints/.step-00000006.safetensors.1-0.partial"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !train.Vacant(folder) {
		t.Error("the folder counts as taken")
	}
	if _, err := run(t, folder, context.Background(), train.Observer{}, "train.steps=6"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(folder, "*", ".*"))
	more, _ := filepath.Glob(filepath.Join(folder, ".*.partial"))
	if left = append(left, more...); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
