package tensorio

import (
	"archive/zip"
	"fmt"
	"strings"
)

// isNPZ recognises what numpy.savez wrote: a zip file of .npy.
func isNPZ(z *zip.Reader) bool {
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".npy") {
			return false
		}
	}
	return len(z.File) > 0
}

// parseNPZ reads the arrays' headers. Each array is named as its file is,
// without .npy.
func parseNPZ(z *zip.Reader, data []byte) (*File, error) {
	f := &File{Format: NPZ}
	var checks []func() error
	for _, member := range z.File {
		if member.Method != zip.Store || member.Flags&1 != 0 {
			return nil, fmt.Errorf("array %q is compressed or encrypted; save the arrays with numpy.savez, not savez_compressed", clip(member.Name))
		}
		_, content, err := stored(member, data)
		if err != nil {
			return nil, err
		}
		one, err := parseNPY(content)
		if err != nil {
			return nil, damagedf("array %q: %w", clip(member.Name), err)
		}
		entry := one.entries[0]
		entry.Name = strings.TrimSuffix(member.Name, ".npy")
		if entry.whole = checkCRC(member.Name, content, member.CRC32); entry.whole != nil {
			checks = append(checks, entry.whole)
		}
		f.entries = append(f.entries, entry)
	}
	f.whole = func() error {
		for _, check := range checks {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	}
	return f, nil
}
