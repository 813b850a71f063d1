// Package memory knows how much memory this process may have: what the machine
// has, the limit of its container (cgroup v2) and that of its address space
// (ulimit -v), whichever is least. So what cannot fit is refused before it is
// allocated, and the sizes of caches follow the container and not the machine.
package memory

import (
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"roadmap/pkg/config"
	"roadmap/pkg/fault"
)

// unlimited is more than any process can have.
const unlimited = config.Bytes(math.MaxInt64)

// Limit is the most that the process may ever have.
func Limit() config.Bytes {
	limit, _ := read(os.DirFS("/"))
	return min(limit, addressSpace())
}

// Free is how much more it may have now.
func Free() config.Bytes {
	_, free := read(os.DirFS("/"))
	if space := addressSpace(); space != unlimited {
		free = min(free, space-value(os.DirFS("/"), "proc/self/status", "VmSize:", 0))
	}
	return max(free, 0)
}

// Check refuses what would take more bytes than the process may ever have. bytes
// is a float64, so that no product of settings overflows.
func Check(what string, bytes float64) error {
	if limit := Limit(); bytes > float64(limit) {
		return fault.Inputf("%s would take %s of memory, and %s is all there is", what, About(bytes), limit.About())
	}
	return nil
}

// About is an amount of memory for people, of any size.
func About(bytes float64) string {
	if bytes < 1<<60 {
		return config.Bytes(bytes).About()
	}
	return strconv.FormatFloat(bytes/(1<<40), 'g', 3, 64) + "TiB"
}

// addressSpace is the limit of ulimit -v.
func addressSpace() config.Bytes {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_AS, &limit); err != nil || limit.Cur >= 1<<62 {
		return unlimited
	}
	return config.Bytes(limit.Cur)
}

// read finds limit and free memory in the files of Linux below root. What cannot
// be read limits nothing.
func read(root fs.FS) (limit, free config.Bytes) {
	limit = value(root, "proc/meminfo", "MemTotal:", unlimited)
	free = value(root, "proc/meminfo", "MemAvailable:", limit)
	for folder := cgroup(root); folder != ""; folder = parent(folder) {
		most, ok := number(root, path.Join(folder, "memory.max"))
		if !ok {
			continue // "max", or the root, which has no such file
		}
		limit = min(limit, most)
		used, _ := number(root, path.Join(folder, "memory.current"))
		cached := value(root, path.Join(folder, "memory.stat"), "inactive_file", 0) // given back when it is needed
		free = min(free, most-used+cached)
	}
	return limit, max(free, 0)
}

const cgroups = "sys/fs/cgroup"

// cgroup is the folder of this process's group, "" without cgroup v2.
func cgroup(root fs.FS) string {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Join(cgroups, group)
		}
	}
	return ""
}

// parent is the folder of the group above, "" at the top.
func parent(folder string) string {
	if folder == cgroups {
		return ""
	}
	return path.Dir(folder)
}

func number(root fs.FS, name string) (config.Bytes, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return config.Bytes(n), err == nil
}

// value reads the number behind a key, in bytes or, where it says so, kB.
func value(root fs.FS, name, key string, otherwise config.Bytes) config.Bytes {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return otherwise
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != key {
			continue
		}
		n, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return otherwise
		}
		if len(f) > 2 && f[2] == "kB" {
			n <<= 10
		}
		return config.Bytes(n)
	}
	return otherwise
}
