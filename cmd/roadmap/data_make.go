package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/data"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

func dataMakeVerb() *cli.Command {
	return &cli.Command{
		Name:      "make",
		Usage:     "write a dataset as PNG files and lists",
		ArgsUsage: "DATASET[:SPLIT]",
		Description: "Writes every image, in its own size, to FOLDER/SPLIT/ID.png, and a list FOLDER/SPLIT.csv of\n" +
			"path,label,category, for other programs or for data={name: list, train: …, test: …}.\n\n" + datasetWords +
			"Example:\n  roadmap data make glyphs --out glyphs --set side=48",
		Flags: append(datasetFlags(), &cli.StringFlag{Name: "out", Required: true, Usage: "folder to make; it must not exist"},
			quietFlag(), jsonFlag()),
		Action: action(dataMake),
	}
}

// made is what data make wrote.
type made struct {
	Folder string       `json:"folder"`
	Splits []data.Stats `json:"splits"`
}

func dataMake(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	out := filepath.Clean(c.String("out"))
	if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
		return fault.Inputf("--out %s: there is something of that name; remove it or choose another name", out)
	}
	aside, err := os.MkdirTemp(filepath.Dir(out), "."+filepath.Base(out)+"-*")
	if err != nil {
		return fault.Inputf("--out: %w", err)
	}
	defer os.RemoveAll(aside) // nothing is there any more once it has its name
	result := made{Folder: out}
	collection, split, err := openCollection(words[0], c.String("root"), c.StringSlice("set"))
	if err != nil {
		return err
	}
	for _, split := range madeOf(words[0], collection, split) {
		stats, err := writeSplit(c, collection, split, aside)
		if err != nil {
			return fmt.Errorf("data make: %w", err)
		}
		result.Splits = append(result.Splits, stats)
	}
	if err := os.Chmod(aside, 0o755); err != nil { // a temporary folder is its owner's alone
		return fmt.Errorf("data make: %w", err)
	}
	if err := os.Rename(aside, out); err != nil {
		return fmt.Errorf("data make: %w", err)
	}
	return answer(c, result, result.print)
}

// madeOf names the splits that are written: the one asked for, those of a
// dataset by name, or all of a folder or list.
func madeOf(spec string, collection data.Collection, split string) []string {
	switch name, _, _ := strings.Cut(spec, ":"); {
	case split != "":
		return []string{split}
	case !slices.Contains(data.Names(), name) || name == "list":
		return []string{data.All}
	}
	return slices.DeleteFunc(collection.Splits(), func(s string) bool { return s == data.Query || s == data.Gallery })
}

// writeSplit writes the images and the list of one split.
func writeSplit(c *call, collection data.Collection, split, folder string) (stats data.Stats, err error) {
	d, err := collection.Open(split)
	if err != nil {
		return data.Stats{}, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := os.Mkdir(filepath.Join(folder, d.Split), 0o755); err != nil {
		return data.Stats{}, err
	}
	list := [][]string{{"path", "label", "category"}}
	bar := newProgress(c, "write "+d.Split, "images", d.Len())
	for i := range d.Items {
		if err := c.ctx.Err(); err != nil {
			return data.Stats{}, err
		}
		item := &d.Items[i]
		name := path.Join(d.Split, fmt.Sprintf("%06d.png", item.ID))
		if err := writeImage(filepath.Join(folder, filepath.FromSlash(name)), item); err != nil {
			return data.Stats{}, err
		}
		list = append(list, []string{name, item.Class, item.Category})
		bar.set(i+1, "")
	}
	bar.finish()
	return d.Stats(), writeFile(filepath.Join(folder, d.Split+".csv"), func(w io.Writer) error {
		return csv.NewWriter(w).WriteAll(list)
	})
}

func writeImage(path string, item *data.Item) error {
	img, err := item.Image()
	if err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error { return png.Encode(w, img) })
}

// writeFile makes a file in a folder that has yet to get its name.
func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return tensorio.Unwritable(err)
	}
	buffer := bufio.NewWriter(file)
	return tensorio.Unwritable(cmp.Or(write(buffer), buffer.Flush(), file.Close()))
}

func (m *made) print(w io.Writer) error {
	for _, s := range m.Splits {
		if _, err := fmt.Fprintf(w, "%s: %d images of %d classes\n", filepath.Join(m.Folder, s.Split+".csv"), s.Images, s.Classes); err != nil {
			return err
		}
	}
	return nil
}
