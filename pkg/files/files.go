// Package files opens files for reading. Every reader of a file that a user
// names comes through here: an image, a list, weights, embeddings. What is not
// a regular file (a pipe, which would be waited for without end, a device such
// as /dev/zero, which never ends, a folder) is refused when it is opened.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"roadmap/pkg/fault"
)

// Open opens a regular file, or a symbolic link to one, without ever waiting.
// What it is, is asked of the open file, so that nobody can put something else
// in its place between the question and the answer. Errors are of the input
// and *fs.PathError.
func Open(path string) (*os.File, fs.FileInfo, error) {
	// O_NONBLOCK: a pipe that nobody writes to is opened at once. On a regular
	// file it has no effect. O_NOCTTY: a terminal does not become this process's.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fault.Input(err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.Input(&fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("%s, not a regular file", kind(info.Mode()))})
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// kind names what is not a regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something special"
}

// NotUTF8 returns the first line of a text, counted from 1 and quoted, that is
// not UTF-8; 0 and "" if all are.
func NotUTF8(text []byte) (number int, line string) {
	if utf8.Valid(text) {
		return 0, ""
	}
	for one := range bytes.Lines(text) {
		number++
		if !utf8.Valid(one) {
			return number, fmt.Sprintf("%.100q", bytes.TrimRight(one, "\r\n"))
		}
	}
	return 0, ""
}

// Read reads a regular file of at most most bytes whole. A larger one is an
// error of the input, before anything is allocated for it.
func Read(path string, most int64) ([]byte, error) {
	file, info, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // only read
	content, err := ReadAll(file, info.Size(), most)
	if err != nil {
		return nil, fault.Input(&fs.PathError{Op: "read", Path: path, Err: err})
	}
	return content, nil
}

// ReadAll reads r to its end, which is said to come after size bytes. More than
// most, said or seen, is an error. Memory grows with what is there, not with
// what is said.
func ReadAll(r io.Reader, size, most int64) ([]byte, error) {
	const trusted = 1 << 20 // bytes that are allocated on a word
	tooLarge := func(n int64) error { return fmt.Errorf("%d bytes, and at most %d are read", n, most) }
	if size > most {
		return nil, tooLarge(size)
	}
	content := make([]byte, 0, min(max(size, 0), trusted)+1)
	for {
		n, err := r.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		switch {
		case int64(len(content)) > most:
			return nil, tooLarge(int64(len(content)))
		case errors.Is(err, io.EOF):
			return content, nil
		case err != nil:
			return nil, err
		}
		if len(content) == cap(content) {
			content = grow(content, size)
		}
	}
}

// grow makes room for more: twice as much, but for no more than is said to
// come while that is still true.
func grow(content []byte, size int64) []byte {
	room := 2 * int64(cap(content))
	if int64(len(content)) <= size && size < room {
		room = size + 1 // one more byte than said: there the end is seen
	}
	larger := make([]byte, len(content), room)
	copy(larger, content)
	return larger
}
