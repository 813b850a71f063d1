package train_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of a few bytes on folder and returns a
// function that fills it. Mounting needs a privileged user.
func smallDisk(t *testing.T, folder string, bytes int) (fill func()) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a small file system cannot be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, 0); err != nil {
			t.Error(err)
		}
	})
	return func() {
		f, err := os.Create(filepath.Join(folder, "ballast"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for block := make([]byte, bytes/256); err == nil; {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}
