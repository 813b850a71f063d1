package process

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// As a process of its own the test binary does what the variable says.
const part = "PROCESS_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(part) {
	case "":
		os.Exit(m.Run())
	case "stop":
		ctx, stop, err := Interruptible(context.Background(), 7, func() { os.Stdout.WriteString("asked\n") })
		if err != nil {
			panic(err)
		}
		defer stop()
		os.Stdout.WriteString("ready\n")
		<-ctx.Done()
		os.Exit(3)
	case "stuck": // Go's side of the signals is not heard
		if _, _, err := Interruptible(context.Background(), 7, func() {
			os.Stdout.WriteString("asked\n")
			select {}
		}); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
		os.Exit(4)
	case "mapped":
		if err := ExplainMappedFiles(); err != nil {
			panic(err)
		}
		file, err := os.OpenFile(os.Args[1], os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		mapped, err := syscall.Mmap(int(file.Fd()), 0, 8192, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			panic(err)
		}
		if err := file.Truncate(10); err != nil {
			panic(err)
		}
		runtime.KeepAlive(mapped[5000])
		os.Exit(0)
	}
}

func start(t *testing.T, what string, args ...string) (*exec.Cmd, io.Reader, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), part+"="+what)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdout, stderr
}

func expect(t *testing.T, from io.Reader, line string) {
	t.Helper()
	got := make([]byte, len(line))
	if _, err := io.ReadFull(from, got); err != nil || string(got) != line {
		t.Fatalf("%q, %v; want %q", got, err, line)
	}
}

func TestFirstSignalAsks(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		cmd, stdout, _ := start(t, "stop")
		expect(t, stdout, "ready\n")
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		expect(t, stdout, "asked\n")
		_ = cmd.Wait() // the code is what is asked for
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("%v: code %d", s, code)
		}
	}
}

func TestSecondSignalEndsWhateverGoDoes(t *testing.T) {
	cmd, stdout, _ := start(t, "stuck")
	expect(t, stdout, "ready\n")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect(t, stdout, "asked\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code is what is asked for
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("code %d", code)
	}
}

func TestShortenedFileIsALine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows of ours.npy")
	if err := os.WriteFile(path, make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd, _, stderr := start(t, "mapped", path)
	_ = cmd.Wait() // the code is what is asked for
	if code := cmd.ProcessState.ExitCode(); code != 1 || stderr.String() != "roadmap: "+path+" was shortened, or cannot be read any more, while it was in use; put it back whole and start again\n" {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestDeletedWorkingDirectoryIsALine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `cd "$1" && rmdir "$1" && exec "$2"`, "sh", folder, self)
	output, _ := cmd.CombinedOutput() // the code is what is asked for
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(output), "roadmap: the working directory has been deleted") {
		t.Errorf("code %d, %q", code, output)
	}
}
