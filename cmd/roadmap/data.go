package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
)

func init() { register(dataVerb) }

// datasetWords explains the argument that the verbs share.
const datasetWords = "DATASET is the name of a dataset (see roadmap data list), a folder or zip archive of classes, or\n" +
	"a CSV list of path,label, with :train, :test, :all or a further split behind it.\n\n"

func dataVerb() *cli.Command {
	return &cli.Command{
		Name:  "data",
		Usage: "list, count, check, show and write datasets",
		Commands: []*cli.Command{
			{
				Name:        "list",
				Usage:       "list the datasets and their settings",
				Description: "Lists the datasets that recipes and --data can name, with the defaults of their settings.\n\nExample:\n  roadmap data list",
				Flags:       []cli.Flag{jsonFlag()},
				Action:      action(dataList),
			},
			dataStatsVerb(),
			dataValidateVerb(),
			dataShowVerb(),
			dataMakeVerb(),
		},
	}
}

func datasetFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "root", Usage: "folder in which the dataset, or the paths of the list, are found"},
		&cli.StringSliceFlag{Name: "set", Usage: "a setting of the dataset as key=value; may be repeated"},
	}
}

// openDataset opens what the user names, with its root and settings key=value,
// or data.key=value as in a recipe.
func openDataset(spec, root string, settings []string) (*data.Dataset, error) {
	collection, split, err := openCollection(spec, root, settings)
	if err != nil {
		return nil, err
	}
	if split == "" {
		split = data.All
	}
	return collection.Open(split)
}

// openCollection finds the collection that the user names, and the split; "":
// none is named.
func openCollection(spec, root string, settings []string) (c data.Collection, split string, err error) {
	var plain []string
	name, split, _ := strings.Cut(spec, ":")
	if !slices.Contains(data.Names(), name) {
		path, part := fileAndSplit(spec)
		if _, err := os.Stat(path); err != nil || root != "" && !isList(path) {
			if _, err := data.Find(spec, root); err != nil { // which says what is wrong
				return nil, "", err
			}
			return nil, "", fault.Inputf("data %s: neither a dataset nor a file", spec)
		}
		split = part
		if isList(path) {
			name, plain = "list", []string{"test=" + strconv.Quote(path)}
		} else {
			name, plain = "folder", []string{"root=" + strconv.Quote(path)}
		}
	}
	if root != "" {
		plain = append(plain, "root="+strconv.Quote(root))
	}
	for _, s := range settings {
		plain = append(plain, strings.TrimPrefix(s, "data."))
	}
	if c, err = data.New(name); err != nil {
		return nil, "", err
	}
	section, err := config.Assign(name, plain...)
	if err != nil {
		return nil, "", err
	}
	return c, split, section.Decode(c)
}

// fileAndSplit cuts "photos:train" where there is no file of the whole name.
func fileAndSplit(spec string) (path, split string) {
	if _, err := os.Stat(spec); err == nil {
		return spec, ""
	}
	if i := strings.LastIndexByte(spec, ':'); i > 0 {
		if _, err := os.Stat(spec[:i]); err == nil {
			return spec[:i], spec[i+1:]
		}
	}
	return spec, ""
}

// isList says whether a file is a list of images, by its name.
func isList(spec string) bool { return strings.EqualFold(filepath.Ext(spec), ".csv") }

func dataList(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	type listed struct {
		Name     string         `json:"name"`
		Settings map[string]any `json:"settings"`
	}
	var result struct {
		Datasets []listed `json:"datasets"`
	}
	var rows [][]string
	for _, name := range data.Names() {
		collection, err := data.New(name)
		if err != nil {
			return err
		}
		settings, err := config.Values(collection)
		if err != nil {
			return err
		}
		pairs, err := config.Pairs(collection)
		if err != nil {
			return err
		}
		result.Datasets = append(result.Datasets, listed{name, settings})
		for i, pair := range pairs {
			shown := name
			if i > 0 {
				shown = ""
			}
			rows = append(rows, []string{shown, pair.Key, pair.Value})
		}
	}
	return answer(c, result, func(w io.Writer) error { return printTable(w, []string{"dataset", "setting", "default"}, rows) })
}
