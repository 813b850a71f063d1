// Package datatest finds the real datasets that tests measure against. They
// are no part of the project: where they are missing, the test is skipped.
package datatest

import (
	"os"
	"path/filepath"
	"testing"
)

// Shared returns the path of a real dataset, such as "omniglot": below the
// folder that the environment variable ROADMAP_DATA names, or else below
// ../shared/data seen from the root of the project. The test is skipped where
// the dataset is missing.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root, err := folder()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s: set ROADMAP_DATA to the folder of the real datasets to run this test", path)
	}
	return path
}

func folder() (string, error) {
	if set := os.Getenv("ROADMAP_DATA"); set != "" {
		return set, nil
	}
	dir, err := os.Getwd() // of the package under test
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(filepath.Dir(dir), "shared", "data"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", os.ErrNotExist
		}
		dir = up
	}
}
