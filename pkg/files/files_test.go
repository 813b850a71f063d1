package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"roadmap/pkg/fault/faulttest"
)

// TestOnlyRegularFiles: none of these may hang, and none is opened.
func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := unix.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"to pipe": at("pipe"), "to zero": "/dev/zero", "to itself": at("to itself"), "to nothing": at("nothing")} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for name, part := range map[string]string{
		at("pipe"): "a pipe, not a regular file", at("to pipe"): "a pipe, not a regular file",
		at("to zero"): "a device, not a regular file", "/dev/zero": "a device, not a regular file",
		dir: "a folder, not a regular file", at("socket"): "open ", at("to itself"): "too many levels", at("to nothing"): "no such file",
	} {
		_, _, err := Open(name)
		faulttest.Refused(t, err, name, part)
		if inPath := (*fs.PathError)(nil); !errors.As(err, &inPath) {
			t.Errorf("%s: %T", name, err)
		}
		if _, err := Read(name, 10); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if _, _, err := Open(at("to nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is no fs.ErrNotExist", err)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	want := bytes.Repeat([]byte("0123456789"), 300_000)
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path+" link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + " link"} {
		if got, err := Read(name, int64(len(want))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	_, err := Read(path, int64(len(want))-1)
	faulttest.Refused(t, err, path, "3000000 bytes, and at most 2999999 are read")
}

func TestNotUTF8(t *testing.T) {
	for text, want := range map[string]struct {
		number int
		line   string
	}{
		"": {}, "a\ncafé\n": {}, "caf\xe9": {1, `"caf\xe9"`}, "a\nb\r\nx\xff\r\ny": {3, `"x\xff"`},
	} {
		if number, line := NotUTF8([]byte(text)); number != want.number || line != want.line {
			t.Errorf("%q: %d, %s; want %v", text, number, line, want)
		}
	}
}

// TestReadAllDoesNotTrust: sizes that are said and are not so, smaller and
// larger, up to the largest number there is.
func TestReadAllDoesNotTrust(t *testing.T) {
	want := bytes.Repeat([]byte("x"), 3<<20)
	for _, said := range []int64{-1, 0, 1, 1 << 20, 3<<20 - 1, 3 << 20, 3<<20 + 1, 1 << 40, 1<<63 - 1} {
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(want), "halves": iotest.HalfReader(bytes.NewReader(want))} {
			got, err := ReadAll(r, said, 1<<63-1)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, said %d: %d bytes, %v", name, said, len(got), err)
			}
			if cap(got) > 8<<20 {
				t.Errorf("%s, said %d: room for %d bytes", name, said, cap(got))
			}
		}
		if _, err := ReadAll(bytes.NewReader(want), said, 2<<20); err == nil {
			t.Errorf("said %d: more than allowed was read", said)
		}
	}
	broken := errors.New("broken")
	if _, err := ReadAll(iotest.ErrReader(broken), 5, 10); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
