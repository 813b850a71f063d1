package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests in this file kill and damage runs, and count what came of it. They
// are short here; make torture has them do a thousand of each.
const tortureKey = "ROADMAP_TORTURE"

// torturous is how many times a test does what it does, n in a short test.
func torturous(t *testing.T, n int) int {
	t.Helper()
	text := os.Getenv(tortureKey)
	if text == "" {
		return n
	}
	more, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", tortureKey, err)
	}
	return more
}

// tortured are the configurations that are killed: each keeps something else
// that a resumed run must find again.
var tortured = []struct {
	name      string
	overrides []string
}{
	{"plain", nil},
	{"a checkpoint a step, one kept", []string{"train.checkpoint_every=1", "train.keep_checkpoints=1"}},
	{"evaluations", []string{"train.eval_every=7"}},
	{"memory", []string{"loss.memory={batches: 3}"}},
	{"proxies", []string{"loss=proxynca"}},
	{"float16", []string{"train.precision=float16"}},
	{"bfloat16", []string{"train.precision=bfloat16"}},
	{"moving average", []string{"train.ema=0.9", "train.eval_every=10"}},
	{"sgd, warm-up and clipping", []string{"optimizer={name: sgd, lr: 0.01, momentum: 0.9}", "schedule={name: cosine, warmup_steps: 5}", "train.clip_norm=1"}},
	{"no checkpoint on the way", []string{"train.checkpoint_every=0"}},
}

func torturedArgs(folder string, overrides []string) []string {
	base := []string{"train", "glyphs_demo", "--out", folder, "-q", "data={name: glyphs, copies: 1, sizes: [0.7]}", "sampler={name: balanced, classes: 8, samples: 3}",
		"model.width=8", "train={steps: 30, log_every: 1, checkpoint_every: 5, device: cpu, threads: 1, cache: 64MiB}"}
	return append(base, overrides...)
}

// complete runs a command to its end and fails the test if it does not succeed.
func complete(t *testing.T, args ...string) {
	t.Helper()
	if _, stderr, code := roadmap(t, args...); code != 0 {
		t.Fatalf("%v: code %d\n%s", args, code, stderr)
	}
}

// goOn is the command that takes up what a killed one left.
func goOn(folder string, first []string) []string {
	if _, err := os.Stat(filepath.Join(folder, "config.yaml")); err == nil {
		return []string{"train", "--resume", folder, "-q"}
	}
	return first
}

var timing = regexp.MustCompile(`,"(seconds|images_per_second)":[0-9.e+-]+`)

// outcome hashes what a run leaves that must not depend on how often it was
// killed: everything but times, and notes of going on.
func outcome(t *testing.T, folder string) map[string]string {
	t.Helper()
	left := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		switch name {
		case ".lock", ".log.sha256":
			return nil
		case "log.jsonl":
			var lines []string
			for line := range strings.Lines(timing.ReplaceAllString(string(text), "")) {
				var e struct{ Kind string }
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					return fmt.Errorf("log: %q: %w", line, err)
				}
				if e.Kind == "step" || e.Kind == "eval" {
					lines = append(lines, line)
				}
			}
			text = []byte(strings.Join(lines, ""))
		}
		left[name] = fmt.Sprintf("%x", sha256.Sum256(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func sameOutcome(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name, hash := range want {
		if got[name] != hash {
			t.Errorf("%s differs from that of the run left alone (or is missing)", name)
		}
	}
	for name := range got {
		if want[name] == "" {
			t.Errorf("%s was left over", name)
		}
	}
}

// Runs that are killed at random, again and again, end with the very files of
// runs left alone.
func TestTortureByKills(t *testing.T) {
	total := torturous(t, 6)
	each := max(1, total/len(tortured))
	random := rand.New(rand.NewPCG(1, 2))
	killed := 0
	for i, c := range tortured {
		if total < len(tortured) && i%2 == 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			alone := filepath.Join(dir, "alone")
			begin := time.Now()
			complete(t, torturedArgs(alone, c.overrides)...)
			took := time.Since(begin)
			want := outcome(t, alone)
			for mine := 0; mine < each; {
				folder := filepath.Join(dir, fmt.Sprint("run", mine))
				first := torturedArgs(folder, c.overrides)
				for {
					p := program(t, goOn(folder, first)...)
					if err := p.Start(); err != nil {
						t.Fatal(err)
					}
					timer := time.AfterFunc(time.Duration(random.Float64()*1.2*float64(took)), func() { _ = p.Process.Kill() })
					_ = p.Wait() // how it ended is asked below
					timer.Stop()
					if p.ProcessState.Success() {
						break
					}
					if status := p.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
						t.Fatalf("ended by itself: %v", p.ProcessState)
					}
					killed++
					if mine++; mine%5 == 0 {
						complete(t, goOn(folder, first)...)
						break
					}
				}
				sameOutcome(t, want, outcome(t, folder))
				if err := os.RemoveAll(folder); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	t.Logf("killed %d times", killed)
}

// calls are system calls that change what is on disk.
var calls = []string{"renameat", "fsync", "unlinkat", "write", "mkdirat", "openat"}

// injected runs the program with strace and kills it at the n-th system call of
// a kind; it says whether there was an n-th.
func injected(t *testing.T, call string, n int, args ...string) (killed bool) {
	t.Helper()
	plain := program(t, args...)
	cmd := exec.Command("strace", append([]string{"-f", "-qq", "-o", os.DevNull, "-e", "trace=" + call, "-e",
		fmt.Sprintf("inject=%s:signal=KILL:when=%d", call, n), plain.Path}, args...)...)
	cmd.Env = plain.Env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if err == nil {
		return false
	}
	if strings.Contains(stderr.String(), "ptrace") || cmd.ProcessState == nil {
		t.Skipf("strace cannot trace here: %v %s", err, &stderr)
	}
	return true
}

func needStrace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not there: apt-get install strace")
	}
}

// Killed at the n-th call that changes the disk, a run goes on as if nothing had
// been.
func TestTortureBySystemCalls(t *testing.T) {
	needStrace(t)
	most := torturous(t, 3)
	overrides := []string{"train.steps=4", "train.checkpoint_every=2", "train.keep_checkpoints=1"}
	alone := filepath.Join(t.TempDir(), "alone")
	complete(t, torturedArgs(alone, overrides)...)
	want := outcome(t, alone)
	killed := 0
	for _, call := range calls {
		if most <= 3 && call != "renameat" && call != "unlinkat" {
			continue
		}
		for n := 1; n <= most; n++ {
			folder := filepath.Join(t.TempDir(), "run")
			if !injected(t, call, n, torturedArgs(folder, overrides)...) {
				break
			}
			killed++
			complete(t, goOn(folder, torturedArgs(folder, overrides))...)
			sameOutcome(t, want, outcome(t, folder))
			if t.Failed() {
				t.Fatalf("after a kill at %s number %d", call, n)
			}
		}
	}
	t.Logf("killed at %d system calls", killed)
}

// Killed while it replaces embeddings, embed leaves the old pair, the new pair,
// or embeddings without labels; never those of one beside labels of the other.
// The next run removes what was left.
func TestTortureOfEmbed(t *testing.T) {
	needStrace(t)
	most := torturous(t, 4)
	dir := t.TempDir()
	args := func(out, copies string) []string {
		return []string{"embed", "--model", "convnet", "--set", "model.dim=8", "--set", "model.width=8", "--data", "glyphs:test", "--set", "data.copies=" + copies, "--set", "data.sizes=[0.7]",
			"--transform", "resize=28,channels=1", "--device", "cpu", "-q", "--force", "--out", out}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	pair := func(copies string) [2]string {
		out := filepath.Join(dir, copies+".npy")
		complete(t, args(out, copies)...)
		return [2]string{read(out), read(filepath.Join(dir, copies+".csv"))}
	}
	before, after := pair("1"), pair("2")
	killed, mixed := 0, 0
	for _, call := range calls {
		if most <= 4 && call != "renameat" && call != "unlinkat" {
			continue
		}
		for n := 1; n <= most; n++ {
			folder := filepath.Join(t.TempDir(), "out")
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(folder, "e.npy")
			complete(t, args(out, "1")...)
			if !injected(t, call, n, args(out, "2")...) {
				break
			}
			killed++
			now := [2]string{read(out), read(filepath.Join(folder, "e.csv"))}
			if now != before && now != after && !(now[1] == "" && (now[0] == before[0] || now[0] == after[0])) {
				mixed++
				t.Errorf("killed at %s number %d: %d and %d bytes are no pair", call, n, len(now[0]), len(now[1]))
			}
			complete(t, args(out, "2")...)
			entries, err := os.ReadDir(folder)
			if err != nil || len(entries) != 2 {
				t.Errorf("killed at %s number %d: left %v, %v", call, n, entries, err)
			}
		}
	}
	t.Logf("killed at %d system calls, mixed pairs: %d", killed, mixed)
}

// A file of a run folder that is damaged is noticed: the run is refused with a
// line, or goes on from what is whole and ends with the very same network.
func TestTortureByDamage(t *testing.T) {
	total := torturous(t, 12)
	dir := t.TempDir()
	alone, half := filepath.Join(dir, "alone"), filepath.Join(dir, "half")
	overrides := []string{"train.steps=60", "train.keep_checkpoints=100"} // so that none is gone before it is seen
	complete(t, torturedArgs(alone, overrides)...)
	want := outcome(t, alone)
	p := program(t, torturedArgs(half, overrides)...)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, filepath.Join(half, "checkpoints", "step-00000015.safetensors"))
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // killed
	var files []string
	err := filepath.WalkDir(half, func(path string, entry fs.DirEntry, err error) error {
		if name, _ := filepath.Rel(half, path); err == nil && entry.Type().IsRegular() && name != ".lock" && !strings.Contains(name, "partial") {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	count := map[string]int{}
	for i := range total {
		folder := filepath.Join(dir, "damaged")
		if err := os.CopyFS(folder, os.DirFS(half)); err != nil {
			t.Fatal(err)
		}
		name := files[i%len(files)]
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		what := "bit flipped"
		switch at := random.IntN(len(text)); random.IntN(4) {
		case 0:
			what, text = "cut short", text[:at]
		case 1:
			what, text = "zeros in it", slices.Concat(text[:at], make([]byte, min(512, len(text)-at)), text[min(at+512, len(text)):])
		default:
			text[at] ^= 1 << random.IntN(8)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := roadmap(t, "train", "--resume", folder, "-q")
		got := weightsOf(folder)
		switch {
		case code == codeInput || code == codeFailed:
			count["refused"]++
			if strings.Contains(stderr, "goroutine ") || !strings.HasPrefix(stderr, "roadmap: ") {
				t.Errorf("%s, %s: no line but\n%s", name, what, stderr)
			}
		case code != 0:
			t.Errorf("%s, %s: code %d\n%s", name, what, code, stderr)
		case got == want["weights.safetensors"]:
			count["same network"]++
		default:
			count["another network"]++
			if !strings.Contains(stderr, "warning") {
				t.Errorf("%s, %s: another network without a word", name, what)
			}
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("damaged %d times: %v", total, count)
}

// weightsOf hashes the weights of a run, "" where there are none.
func weightsOf(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, "weights.safetensors"))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Whatever a file holds, the program answers with a result or with a line: no
// trace, no signal, no wait. The files are good ones with a part cut off,
// replaced or flipped.
func TestTortureByHostileFiles(t *testing.T) {
	total := torturous(t, 16)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	complete(t, append(torturedArgs(good, nil), "train.steps=1")...)
	complete(t, "embed", "--run", good, "-q", "--out", filepath.Join(dir, "e.npy"))
	complete(t, "data", "make", "glyphs", "-q", "--set", "data.copies=1", "--set", "data.sizes=[0.7]", "--out", filepath.Join(dir, "photos"))
	complete(t, "weights", "convert", filepath.Join(good, "weights.safetensors"), filepath.Join(dir, "w.pth"))
	photo := firstPhoto(t, filepath.Join(dir, "photos"))
	read := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	kinds := []struct {
		name string
		good []byte
		args func(path string) []string
	}{
		{"w.safetensors", read(filepath.Join(good, "weights.safetensors")), func(path string) []string { return []string{"weights", "inspect", path} }},
		{"w.pth", read(filepath.Join(dir, "w.pth")), func(path string) []string { return []string{"weights", "inspect", path} }},
		{"e.npy", read(filepath.Join(dir, "e.npy")), func(path string) []string {
			return []string{"eval", "--embeddings", path, "--labels", filepath.Join(dir, "e.csv"), "--metrics", "r@1"}
		}},
		{"l.csv", read(filepath.Join(dir, "e.csv")), func(path string) []string {
			return []string{"eval", "--embeddings", filepath.Join(dir, "e.npy"), "--labels", path, "--metrics", "r@1"}
		}},
		{"config.yaml", read(filepath.Join(good, "config.yaml")), func(path string) []string { return []string{"train", path, "--print-config"} }},
		{"photos/class/photo" + filepath.Ext(photo), read(photo), func(path string) []string {
			return []string{"data", "validate", filepath.Dir(filepath.Dir(path)), "-q"}
		}},
	}
	random := rand.New(rand.NewPCG(5, 6))
	count := map[string]int{}
	for i := range total {
		kind := kinds[i%len(kinds)]
		path := filepath.Join(dir, "hostile", kind.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text, at := slices.Clone(kind.good), random.IntN(len(kind.good))
		if random.IntN(2) == 0 { // where the header is
			at = random.IntN(min(len(text), 200))
		}
		what := ""
		var err error
		switch random.IntN(7) {
		case 0:
			what, err = "cut short", os.WriteFile(path, text[:at], 0o644)
		case 1:
			end := min(at+1+random.IntN(64), len(text))
			for j := at; j < end; j++ {
				text[j] = byte(random.IntN(256))
			}
			what, err = "noise in it", os.WriteFile(path, text, 0o644)
		case 2:
			end := min(at+8, len(text))
			for j := at; j < end; j++ {
				text[j] = 0xff
			}
			what, err = "huge numbers in it", os.WriteFile(path, text, 0o644)
		case 3:
			what, err = "digits in it", os.WriteFile(path, slices.Concat(text[:at], []byte("99999999999999999999"), text[at:]), 0o644)
		case 4:
			what, err = "a link to /dev/zero", os.Symlink("/dev/zero", path)
		case 5:
			what, err = "a pipe", syscall.Mkfifo(path, 0o644)
		default:
			text[at] ^= 1 << random.IntN(8)
			what, err = "a bit flipped", os.WriteFile(path, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		_, stderr, code := roadmap(t, kind.args(path)...)
		switch {
		case code == codeDone:
			count["read"]++
		case code == codeInput && !strings.Contains(stderr, "goroutine ") && strings.HasPrefix(stderr, "roadmap: "):
			count["refused"]++
		default:
			count["crashed"]++
			t.Errorf("%s, %s (from byte %d of %d), after %s: code %d\n%s", kind.name, what, at, len(text), time.Since(begin).Round(time.Second), code, stderr)
		}
		if err := os.RemoveAll(filepath.Join(dir, "hostile")); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d hostile files: %v", total, count)
}

// firstPhoto is an image file below a folder.
func firstPhoto(t *testing.T, folder string) string {
	t.Helper()
	found := ""
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && found == "" && slices.Contains([]string{".png", ".jpg"}, filepath.Ext(path)) {
			found = path
		}
		return err
	})
	if err != nil || found == "" {
		t.Fatalf("no image below %s, %v", folder, err)
	}
	return found
}
