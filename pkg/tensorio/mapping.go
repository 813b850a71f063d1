package tensorio

import (
	"fmt"

	"golang.org/x/sys/unix"

	"roadmap/pkg/fault"
	"roadmap/pkg/files"
)

// mapping is a file's bytes, mapped read-only. A file that another program
// shortens while it is mapped ends this one with SIGBUS, as everywhere.
type mapping struct{ data []byte }

// openMapping maps the file at path.
func openMapping(path string) (*mapping, error) {
	file, info, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the mapping outlives the descriptor
	if info.Size() == 0 {
		return &mapping{}, nil // nothing can be mapped, and there is nothing to see
	}
	if int64(int(info.Size())) != info.Size() {
		return nil, fault.Inputf("%s: %d bytes are beyond this machine's address space", path, info.Size())
	}
	data, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %d bytes: %w", path, info.Size(), err)
	}
	return &mapping{data: data}, nil
}

// close unmaps; what was viewed in the mapping must no longer be touched.
func (m *mapping) close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}
