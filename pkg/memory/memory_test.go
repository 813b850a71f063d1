package memory

import (
	"testing"
	"testing/fstest"

	"roadmap/pkg/config"
	"roadmap/pkg/fault/faulttest"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// The least of machine, group and the groups above counts; cached files do not
// count as used.
func TestLimitAndFree(t *testing.T) {
	machine := fstest.MapFS{"proc/meminfo": file("MemTotal:  16 kB\nMemFree: 1 kB\nMemAvailable: 12 kB\n")}
	within := func(more fstest.MapFS) fstest.MapFS {
		all := fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n")}
		for _, files := range []fstest.MapFS{machine, more} {
			for name, f := range files {
				all[name] = f
			}
		}
		return all
	}
	for name, c := range map[string]struct {
		root        fstest.MapFS
		limit, free config.Bytes
	}{
		"machine alone": {machine, 16 << 10, 12 << 10},
		"no limit":      {within(fstest.MapFS{"sys/fs/cgroup/a/b/memory.max": file("max\n")}), 16 << 10, 12 << 10},
		"a container": {within(fstest.MapFS{"sys/fs/cgroup/a/b/memory.max": file("8192\n"), "sys/fs/cgroup/a/b/memory.current": file("6000\n"),
			"sys/fs/cgroup/a/b/memory.stat": file("anon 1\ninactive_file 1000\n")}), 8192, 3192},
		"one above": {within(fstest.MapFS{"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("4096\n"),
			"sys/fs/cgroup/a/memory.current": file("5000\n")}), 4096, 0},
		"at the top": {fstest.MapFS{"proc/meminfo": machine["proc/meminfo"], "proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("2048\n")}, 2048, 2048},
		"nothing":    {fstest.MapFS{}, unlimited, unlimited},
		"nonsense":   {fstest.MapFS{"proc/meminfo": file("MemTotal: much kB\nMemAvailable:\n"), "proc/self/cgroup": file("1:x:/y\n")}, unlimited, unlimited},
	} {
		if limit, free := read(c.root); limit != c.limit || free != c.free {
			t.Errorf("%s: %d and %d free, want %d and %d", name, limit, free, c.limit, c.free)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := Check("a row", 1000); err != nil {
		t.Error(err)
	}
	faulttest.Refused(t, Check("dim=1000000000 of 2048 values", 4e9*2048), "dim=1000000000 of 2048 values would take 7.5TiB of memory", "is all there is")
	faulttest.Refused(t, Check("it", 1e40), "would take 9.09e+27TiB")
	if limit, free := Limit(), Free(); limit < 1<<20 || free <= 0 || free > limit {
		t.Errorf("here: %d of %d", free, limit)
	}
}
