package tensorio

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"roadmap/pkg/fault/faulttest"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func only(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != want {
		t.Errorf("%d files in the folder, want %d: %v", len(entries), want, entries)
	}
}

func TestSaveNeverOverwritesUnasked(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	if err := Save(path, false, text("first")); err != nil {
		t.Fatal(err)
	}
	faulttest.Refused(t, Save(path, false, text("second")), path, "exists already", "--force")
	if got := content(t, path); got != "first" {
		t.Errorf("the file is now %q", got)
	}
	if err := Save(path, true, text("third")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, path); got != "third" {
		t.Errorf("the file is now %q", got)
	}
	only(t, dir, 1)
}

func TestFileThatAppearsMeanwhile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	p, err := Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	faulttest.Refused(t, p.Commit(), path, "exists already")
	p.Discard()
	if got := content(t, path); got != "theirs" {
		t.Errorf("the file is now %q", got)
	}
	only(t, dir, 1)
}

func TestFailedWritesLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Save(path, true, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half"); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("the cause is lost: %v", err)
	}
	if got := content(t, path); got != "before" {
		t.Errorf("the file is now %q", got)
	}
	only(t, dir, 1)
}

func TestDestinationsThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	_, err := Create(filepath.Join(dir, "missing", "a.npy"), false)
	faulttest.Refused(t, err, "the folder", "does not exist")
	_, err = Create(dir, true)
	faulttest.Refused(t, err, "is a folder")
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Create(filepath.Join(dir, "file", "a.npy"), false)
	faulttest.Refused(t, err, "cannot be written")
}

func TestDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "a.npy")
	p, err := Create(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard()
	p.buffer.Reset(full) // the disk fills up under the writer
	if _, err := p.Write(make([]byte, 2<<20)); err == nil {
		t.Error("2 MiB were written to a full disk")
	}
	if err := p.Commit(); err == nil {
		t.Error("a file that was not written was committed")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the destination exists: %v", err)
	}
}

// /dev/full stands in for a full disk: every write to it fails as on one.
func TestFullDiskSaysWhatToDo(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	p := &Pending{path: "e.npy", buffer: bufio.NewWriterSize(full, 16)}
	_, err = p.Write(make([]byte, 64))
	if want := "writing e.npy: no space left on device; make room or write elsewhere"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestForbiddenPlaceSaysWhatToDo(t *testing.T) {
	_, err := Create("/proc/e.npy", false)
	faulttest.Refused(t, err, "/proc/e.npy cannot be written: ")
	denied := Unwritable(&fs.PathError{Op: "open", Path: "/x/.e.npy123", Err: syscall.EACCES})
	if want := "permission denied; get the right to write there or write elsewhere"; denied.Error() != want {
		t.Errorf("got %v, want %s", denied, want)
	}
}

// What a killed process left is removed by the next one that writes beside it;
// what a living one is writing stays.
func TestLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".old.npy.1-0.partial")
	if err := os.WriteFile(left, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	living, err := Create(filepath.Join(dir, "a.npy"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Discard()
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if err := Save(filepath.Join(dir, "b.npy"), false, text("b")); err != nil {
		t.Fatal(err)
	}
	if err := living.Commit(); err != nil {
		t.Fatalf("a file in the making was taken for a leftover: %v", err)
	}
	only(t, dir, 2)
}

// Files that are committed together are never new beside old, wherever it
// stops: here the second cannot be renamed.
func TestCommitAllIsAllOrNone(t *testing.T) {
	dir := t.TempDir()
	rows, labels := filepath.Join(dir, "e.npy"), filepath.Join(dir, "e.csv")
	write := func(path, content string) *Pending {
		t.Helper()
		p, err := Create(path, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p, content); err != nil {
			t.Fatal(err)
		}
		return p
	}
	if err := CommitAll(write(rows, "old rows"), write(labels, "old labels")); err != nil {
		t.Fatal(err)
	}
	a, b := write(rows, "new rows"), write(labels, "new labels")
	if err := os.Remove(b.file.Name()); err != nil { // its rename fails
		t.Fatal(err)
	}
	if err := CommitAll(a, b); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(labels); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old labels are beside new rows: %v", err)
	}
	c, d := write(rows, "newer rows"), write(labels, "newer labels")
	if err := CommitAll(c, d); err != nil || content(t, rows) != "newer rows" || content(t, labels) != "newer labels" {
		t.Errorf("%v, %q, %q", err, content(t, rows), content(t, labels))
	}
	only(t, dir, 2)
}
