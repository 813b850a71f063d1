package tensorio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"

	"roadmap/pkg/fault"
)

// Pending is a file in the making. It lies under a temporary name beside its
// destination, which is untouched until Commit.
type Pending struct {
	path      string
	overwrite bool
	file      *renameio.PendingFile
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
	file, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o644))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Inputf("%s cannot be written: the folder %s does not exist; create it first", path, filepath.Dir(path))
	case err != nil:
		return nil, fault.Inputf("%s cannot be written: %w", path, Unwritable(err))
	}
	p.file, p.buffer = file, bufio.NewWriterSize(file, 1<<20)
	return p, nil
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
func (p *Pending) Commit() error {
	if err := p.buffer.Flush(); err != nil {
		return p.failed(err)
	}
	if err := p.vacant(); err != nil {
		return err
	}
	if err := p.file.CloseAtomicallyReplace(); err != nil {
		return p.failed(err)
	}
	return nil
}

// Discard removes the temporary file; after Commit it does nothing. What was
// in the way of removing it is left to the operating system's own report.
func (p *Pending) Discard() { _ = p.file.Cleanup() }

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
