package tensorio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"roadmap/pkg/fault"
)

// Pending is a file in the making. It lies under a temporary name beside its
// destination, which is untouched until Commit. The temporary file is locked
// while its process lives, so that what a killed one left is told apart and
// removed by the next Create in the same folder.
type Pending struct {
	path      string
	overwrite bool
	file      *os.File // nil once it is committed or discarded
	buffer    *bufio.Writer
}

// Create begins a file that will be called path. Unless overwrite is set, a
// file already there is an input error, now and again when it is committed.
// Defer Discard and end with Commit.
func Create(path string, overwrite bool) (*Pending, error) {
	p := &Pending{path: path, overwrite: overwrite}
	if err := p.vacant(); err != nil {
		return nil, err
	}
	RemovePartial(filepath.Dir(path))
	file, err := createPartial(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Inputf("%s cannot be written: the folder %s does not exist; create it first", path, filepath.Dir(path))
	case err != nil:
		return nil, fault.Inputf("%s cannot be written: %w", path, Unwritable(err))
	}
	p.file, p.buffer = file, bufio.NewWriterSize(file, 1<<20)
	return p, nil
}

// partial is what the name of a temporary file ends in, behind that of its
// destination, the number of its process and a count.
const partial = ".partial"

// IsPartial says whether a file's name is one that a Pending gives.
func IsPartial(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, partial)
}

// createPartial makes the temporary file for a destination, and locks it.
func createPartial(path string) (*os.File, error) {
	for n := 0; ; n++ {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d-%d%s", filepath.Base(path), os.Getpid(), n, partial))
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		_ = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) // a file system without locks has its leftovers stay
		if _, err := os.Lstat(name); err == nil {
			return file, nil
		}
		_ = file.Close() // another process took it for a leftover before it was locked
	}
}

// RemovePartial removes the temporary files that killed processes left in a
// folder. What cannot be removed is no reason not to go on.
func RemovePartial(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		if !IsPartial(entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		name := filepath.Join(folder, entry.Name())
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		if unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.Remove(name)
		}
		_ = file.Close()
	}
}

// vacant refuses a destination that is taken.
func (p *Pending) vacant() error {
	info, err := os.Lstat(p.path)
	switch {
	case err != nil: // usually fs.ErrNotExist; else creating the file beside it says more
		return nil
	case info.IsDir():
		return fault.Inputf("%s is a folder; name a file", p.path)
	case !p.overwrite:
		return fault.Inputf("%s exists already; choose another name or say --force to replace it", p.path)
	}
	return nil
}

// Path is the destination.
func (p *Pending) Path() string { return p.path }

// Write appends to the file, buffered.
func (p *Pending) Write(data []byte) (int, error) {
	n, err := p.buffer.Write(data)
	if err != nil {
		return n, p.failed(err)
	}
	return n, nil
}

// patch replaces bytes written before.
func (p *Pending) patch(offset int64, data []byte) error {
	if err := p.buffer.Flush(); err != nil {
		return p.failed(err)
	}
	if _, err := p.file.WriteAt(data, offset); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed names the file that people know, not the temporary one.
func (p *Pending) failed(err error) error {
	return fmt.Errorf("writing %s: %w", p.path, Unwritable(err))
}

// Unwritable is why a file cannot be written, and what to do about it.
func Unwritable(err error) error {
	var inPath *fs.PathError
	if errors.As(err, &inPath) {
		err = inPath.Err // the path is that of the temporary file
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; make room or write elsewhere", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; get the right to write there or write elsewhere", err)
	}
	return err
}

// Commit syncs the file to disk and gives it its name.
func (p *Pending) Commit() error { return CommitAll(p) }

// CommitAll commits files that belong together, such as embeddings and their
// labels: however it ends, no new one is beside an old one. The first is the
// one that the others are about.
func CommitAll(files ...*Pending) error {
	for _, p := range files {
		if err := p.buffer.Flush(); err != nil {
			return p.failed(err)
		}
		if err := p.vacant(); err != nil {
			return err
		}
		if err := p.file.Sync(); err != nil {
			return p.failed(err)
		}
	}
	for _, p := range files[1:] {
		if err := os.Remove(p.path); err == nil {
			err = SyncFolder(filepath.Dir(p.path))
			if err != nil {
				return err
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return p.failed(err)
		}
	}
	for _, p := range files {
		if err := os.Rename(p.file.Name(), p.path); err != nil {
			return p.failed(err)
		}
		err := p.file.Close()
		p.file = nil
		if err != nil {
			return p.failed(err)
		}
		if err := SyncFolder(filepath.Dir(p.path)); err != nil {
			return err
		}
	}
	return nil
}

// SyncFolder has the names in a folder outlast a power cut, as file.Sync has a
// file's content.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("syncing the folder %s: %w", path, Unwritable(err))
	}
	err = folder.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) { // of file systems that cannot
		err = nil
	}
	if closing := folder.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("syncing the folder %s: %w", path, Unwritable(err))
	}
	return nil
}

// Discard removes the temporary file; after Commit it does nothing. What was
// in the way of removing it is left to the operating system's own report.
func (p *Pending) Discard() {
	if p.file != nil {
		_ = os.Remove(p.file.Name())
		_ = p.file.Close()
		p.file = nil
	}
}

// Save writes a whole file by fill and commits it.
func Save(path string, overwrite bool, fill func(io.Writer) error) error {
	p, err := Create(path, overwrite)
	if err != nil {
		return err
	}
	defer p.Discard()
	if err := fill(p); err != nil {
		return err
	}
	return p.Commit()
}
