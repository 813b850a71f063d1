package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/fault"
)

var update = flag.Bool("update", false, "rewrite the golden files of help and errors")

// asProgram turns the test binary into the program, with one verb more.
const asProgram = "ROADMAP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		register(probeVerb)
		computing["probe"] = true
		main()
	}
	os.Exit(m.Run())
}

// probeVerb ends in every way in which a verb can end.
func probeVerb() *cli.Command {
	return &cli.Command{
		Name: "probe", Usage: "end in a chosen way", ArgsUsage: "WAY [MORE]", Hidden: true,
		Flags: []cli.Flag{
			jsonFlag(), quietFlag(),
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}},
			&cli.StringSliceFlag{Name: "set"},
			&cli.IntFlag{Name: "k", Value: 10},
			&cli.Float64Flag{Name: "alpha"},
			&cli.DurationFlag{Name: "every"},
		},
		Action: action(probe),
	}
}

func probe(c *call) error {
	words, err := positional(c, 1, 2)
	if err != nil {
		return err
	}
	switch words[0] {
	case "fail":
		return errors.New("disk full:\nno space left")
	case "input":
		return fmt.Errorf("eval: %w", fault.Inputf("labels.npy: row 3 is missing"))
	case "panic":
		panic("probe")
	case "wait":
		logger(c).Info("waiting")
		select {
		case <-c.ctx.Done():
		case <-time.After(20 * time.Second):
			return errors.New("no signal came")
		}
		if len(words) == 2 { // stops for nothing but a second signal
			time.Sleep(20 * time.Second)
		}
		return fmt.Errorf("saved step 7: %w", c.ctx.Err())
	case "nan":
		return answer(c, math.NaN(), nil)
	case "environment":
		for _, name := range spinSettings {
			if value, set := os.LookupEnv(name); set {
				fmt.Fprintf(c.Root().Writer, "%s=%s\n", name, value)
			}
		}
		return nil
	case "notes":
		logger(c).Info("saved", "path", "a b")
		logger(c).Warn("2 lone queries")
	}
	given := map[string]any{
		"words": words, "out": c.String("out"), "set": c.StringSlice("set"), "k": c.Int("k"),
		"alpha": c.Float64("alpha"), "every": c.Duration("every").String(),
	}
	return answer(c, given, func(w io.Writer) error { _, err := fmt.Fprintln(w, "done <&>"); return err })
}

// roadmap runs the program.
func roadmap(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := program(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// golden compares a text with a file of testdata, or writes it under -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test ./cmd/roadmap -update writes it", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test ./cmd/roadmap -update rewrites it\n--- got\n%s\n--- want\n%s", path, got, want)
	}
}

// Help is golden. The list of verbs in that of the program is not, so that a
// new verb changes no file but its own.
func TestHelp(t *testing.T) {
	stdout, stderr, code := roadmap(t, "--help")
	if code != codeDone || stderr != "" {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
	head, rest, _ := strings.Cut(stdout, "COMMANDS:\n")
	list, tail, _ := strings.Cut(rest, "\n\n")
	golden(t, filepath.Join("help", "roadmap.txt"), head+tail)
	for _, verb := range newApp(io.Discard, newConsole(io.Discard)).Commands {
		if !strings.Contains(list, "   "+verb.Name+" ") || !strings.Contains(list, "  "+verb.Usage) {
			t.Errorf("no %s with %q in the list\n%s", verb.Name, verb.Usage, list)
		}
		helpOf(t, verb.Name, verb)
		for _, inner := range verb.Commands {
			helpOf(t, verb.Name+" "+inner.Name, inner)
		}
	}
}

// helpOf compares the help of a verb, which shows an example if it does something.
func helpOf(t *testing.T, words string, verb *cli.Command) {
	t.Run(words, func(t *testing.T) {
		stdout, stderr, code := roadmap(t, append(strings.Fields(words), "--help")...)
		if code != codeDone || stderr != "" {
			t.Errorf("code %d, stderr %q", code, stderr)
		}
		golden(t, filepath.Join("help", "roadmap_"+strings.ReplaceAll(words, " ", "_")+".txt"), stdout)
		_, example, _ := strings.Cut(verb.Description, "Example")
		if len(verb.Commands) == 0 && !strings.HasPrefix(strings.TrimLeft(example, "s"), ":\n  roadmap "+words) {
			t.Errorf("the description has no \"Example:\" followed by a line \"  roadmap %s …\"", words)
		}
	})
}

func TestHelpVerbIsTheHelpOption(t *testing.T) {
	want, _, _ := roadmap(t, "probe", "--help")
	for _, args := range [][]string{{"help", "probe"}, {"probe", "-h"}, {"probe", "input", "--help"}} {
		got, stderr, code := roadmap(t, args...)
		if got != want || stderr != "" || code != codeDone {
			t.Errorf("%v: code %d, stderr %q, stdout %q", args, code, stderr, got)
		}
	}
}

func TestVersion(t *testing.T) {
	stdout, stderr, code := roadmap(t, "--version")
	if stdout != "roadmap version development\n" || stderr != "" || code != codeDone {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// TestErrors runs command lines that fail: one line on standard error, nothing
// on standard output, the right code.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		args string
		code int
	}{
		{"failed", "probe fail", codeFailed},
		{"input", "probe input", codeInput},
		{"result that JSON cannot hold", "probe nan --json", codeFailed},
		{"no verb", "", codeInput},
		{"unknown verb", "proble fail", codeInput},
		{"unknown verb far from all", "xyzzyx", codeInput},
		{"unknown option", "probe input --otu x", codeInput},
		{"unknown option far from all", "probe input --xyzzyx", codeInput},
		{"option of a verb before it", "--set a=1 probe done", codeInput},
		{"option twice", "probe done --out a -o b", codeInput},
		{"value missing at the end", "probe done --out", codeInput},
		{"value missing before an option", "probe done --out --json", codeInput},
		{"word for a whole number", "probe done -k many", codeInput},
		{"fraction for a whole number", "probe done -k=1.5", codeInput},
		{"infinity for a number", "probe done --alpha Inf", codeInput},
		{"duration without unit", "probe done --every 3", codeInput},
		{"word for a switch", "probe done --json=yes", codeInput},
		{"too few arguments", "probe", codeInput},
		{"too many arguments", "probe done 2 3", codeInput},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := roadmap(t, strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("code %d, want %d", code, c.code)
			}
			if stdout != "" {
				t.Errorf("standard output %q", stdout)
			}
			if !strings.HasPrefix(stderr, "roadmap: ") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("standard error is not one line: %q", stderr)
			}
			golden(t, filepath.Join("errors", strings.ReplaceAll(c.name, " ", "_")+".txt"), "$ roadmap "+c.args+"\n"+stderr)
		})
	}
}

func TestPanicIsNotAnInputError(t *testing.T) {
	_, stderr, code := roadmap(t, "probe", "panic")
	if code != codeFailed || !strings.HasPrefix(stderr, "roadmap: internal error: probe\n") || !strings.Contains(stderr, ".probe(") {
		t.Errorf("code %d, stderr %q", code, stderr)
	}
}

func TestOptionsStandAnywhere(t *testing.T) {
	const want = `{"alpha":-0.5,"every":"0s","k":-3,"out":"x y","set":["a=1,2","--b=-"],"words":["done","-1"]}`
	for _, args := range [][]string{
		{"probe", "--json", "--out", "x y", "--set", "a=1,2", "--set", "--b=-", "-k", "-3", "--alpha=-0.5", "done", "-1"},
		{"probe", "done", "--json", "-o", "x y", "--set=a=1,2", "--set=--b=-", "--k", "-3", "--alpha", "-.5", "-1"}, // a negative number ends the options
		{"probe", "--set", "a=1,2", "--out=x y", "done", "-set", "--b=-", "-k=-3", "--json=true", "--alpha", "-5e-1", "-1"},
		{"probe", "--json", "--out", "x y", "--set", "a=1,2", "--set", "--b=-", "-k", "-3", "--alpha=-0.5", "--", "done", "-1"},
	} {
		stdout, stderr, code := roadmap(t, args...)
		if code != codeDone || stderr != "" {
			t.Fatalf("%q: code %d, stderr %q", args, code, stderr)
		}
		if stdout != want+"\n" {
			t.Errorf("%q:\n got %swant %s", args, stdout, want)
		}
	}
	stdout, _, _ := roadmap(t, "probe", "--json", "--", "done", "--out")
	if !strings.Contains(stdout, `"words":["done","--out"]`) {
		t.Errorf("after --, an option is a word: %s", stdout)
	}
	if stdout, _, code := roadmap(t, "probe", "done", "--json", "more", "-k", "010"); code != codeDone || !strings.Contains(stdout, `"k":10,"out":"","set":[],"words":["done","more"]`) {
		t.Errorf("options between operands: code %d, %s", code, stdout)
	}
	if stdout, _, code := roadmap(t, "probe", "help"); code != codeDone || stdout != "done <&>\n" {
		t.Errorf("the word help: code %d, %q", code, stdout)
	}
}

func TestJSONIsOneObjectAndNotesGoToStandardError(t *testing.T) {
	stdout, stderr, code := roadmap(t, "probe", "notes", "--json")
	var object map[string]any
	if err := json.Unmarshal([]byte(stdout), &object); err != nil || code != codeDone {
		t.Errorf("code %d, %v in %q", code, err, stdout)
	}
	if want := "roadmap: saved (path a b)\nroadmap: warning: 2 lone queries\n"; stderr != want {
		t.Errorf("stderr %q, want %q", stderr, want)
	}
	if _, stderr, _ = roadmap(t, "probe", "notes", "-q"); stderr != "roadmap: warning: 2 lone queries\n" {
		t.Errorf("stderr under -q: %q", stderr)
	}
}

// The first signal lets the verb stop by itself, the second one does not wait.
func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		signals []os.Signal
		want    string
	}{
		{"interrupt", []string{"probe", "wait"}, []os.Signal{os.Interrupt}, "roadmap: saved step 7: interrupted\n"},
		{"terminate", []string{"probe", "wait"}, []os.Signal{syscall.SIGTERM}, "roadmap: saved step 7: interrupted\n"},
		{"hang up", []string{"probe", "wait"}, []os.Signal{syscall.SIGHUP}, "roadmap: saved step 7: interrupted\n"},
		{"twice", []string{"probe", "wait", "on"}, []os.Signal{os.Interrupt, os.Interrupt}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if signal.Ignored(c.signals[0]) {
				t.Skipf("%v is ignored, as below nohup, and the program leaves it so", c.signals[0])
			}
			cmd := program(t, c.args...)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			expect := func(line string) {
				t.Helper()
				got := make([]byte, len(line))
				if _, err := io.ReadFull(stderr, got); err != nil || string(got) != line {
					t.Fatalf("standard error %q, %v; want %q", got, err, line)
				}
			}
			expect("roadmap: waiting\n")
			if err := cmd.Process.Signal(c.signals[0]); err != nil {
				t.Fatal(err)
			}
			expect("roadmap: stopping; once more to stop at once\n")
			for _, s := range c.signals[1:] {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			rest, err := io.ReadAll(stderr)
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // its exit code is what is asked for
			if code := cmd.ProcessState.ExitCode(); code != codeInterrupted || string(rest) != c.want {
				t.Errorf("code %d, standard error %q, want %q", code, rest, c.want)
			}
			if waited := time.Since(begin); waited > 15*time.Second {
				t.Errorf("it took %s to stop", waited)
			}
		})
	}
}
