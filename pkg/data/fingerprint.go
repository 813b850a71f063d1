package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io/fs"
	"os"
	"strings"
)

// Fingerprint says which images a dataset has, so that a run can tell whether
// it goes on with those it began with.
type Fingerprint struct {
	Images  int    `json:"images"`
	Classes int    `json:"classes"`
	Names   string `json:"names"`  // hash of the images' paths, without what all of them begin with
	Labels  string `json:"labels"` // hash of the names of their classes
	Sizes   string `json:"sizes"`  // hash of the bytes of each file; of images that are drawn, of nothing
}

// sized is a source that is a file: its size in bytes, -1 where it is not there.
type sized interface{ size() int64 }

func (f file) size() int64 {
	info, err := fs.Stat(f.tree, f.entry)
	if err != nil {
		return -1
	}
	return info.Size()
}

func (f imageFile) size() int64 {
	info, err := os.Stat(f.path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// Fingerprint looks at every image's name, class and size, and opens none.
func (d *Dataset) Fingerprint() Fingerprint {
	names, labels, sizes := sha256.New(), sha256.New(), sha256.New()
	common := d.commonFolder()
	for i := range d.Items {
		it := &d.Items[i]
		hashText(names, it.Path[common:])
		hashText(labels, it.Class)
		if source, ok := it.Source.(sized); ok {
			hashNumber(sizes, source.size())
		}
	}
	return Fingerprint{Images: len(d.Items), Classes: len(d.Classes), Names: digest(names), Labels: digest(labels), Sizes: digest(sizes)}
}

// commonFolder is the length of the folders that all paths begin with, so that a
// dataset may be moved.
func (d *Dataset) commonFolder() int {
	if len(d.Items) == 0 {
		return 0
	}
	common := d.Items[0].Path
	for i := range d.Items {
		for !strings.HasPrefix(d.Items[i].Path, common) {
			common = common[:strings.LastIndexAny(common[:len(common)-1], "/:")+1]
			if common == "" {
				return 0
			}
		}
	}
	return strings.LastIndexAny(common, "/:") + 1
}

// hashText and hashNumber add values so that no two lists of them look alike.
func hashText(h hash.Hash, s string) {
	hashNumber(h, int64(len(s)))
	h.Write([]byte(s))
}

func hashNumber(h hash.Hash, n int64) { h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n))) }

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:16]) }
