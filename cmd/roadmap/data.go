package main

import (
	"fmt"
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
const datasetWords = "DATASET is the name of a dataset (see roadmap data list), with :train, :test or :all\n" +
	"behind it for one split; a folder or zip archive of classes; or a CSV list of path,label.\n\n"

func dataVerb() *cli.Command {
	return &cli.Command{
		Name:  "data",
		Usage: "list, count, check and write datasets",
		Commands: []*cli.Command{
			{
				Name:        "list",
				Usage:       "list the datasets and their settings",
				Description: "Lists the datasets that recipes and --data can name, with the defaults of their settings.\n\nExample:\n  roadmap data list",
				Flags:       []cli.Flag{jsonFlag()},
				Action:      action(dataList),
			},
			{
				Name:      "stats",
				Usage:     "count images, classes and categories",
				ArgsUsage: "DATASET[:SPLIT]",
				Description: "Counts the images and classes of each split. No image is opened.\n\n" + datasetWords +
					"Examples:\n  roadmap data stats glyphs\n  roadmap data stats omniglot:test --root data/omniglot --set protocol=background80",
				Flags:  append(datasetFlags(), jsonFlag()),
				Action: action(dataStats),
			},
			{
				Name:      "validate",
				Usage:     "decode every image and name the broken ones",
				ArgsUsage: "DATASET[:SPLIT]",
				Description: "Decodes every image. Broken ones are listed and end the program with code 2.\n\n" + datasetWords +
					"Example:\n  roadmap data validate photos/",
				Flags: append(datasetFlags(),
					&cli.IntFlag{Name: "workers", Usage: "goroutines that decode; 0: one a processor"}, quietFlag(), jsonFlag()),
				Action: action(dataValidate),
			},
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
	if len(settings) == 0 {
		return data.Find(spec, root)
	}
	name, split, _ := strings.Cut(spec, ":")
	plain := make([]string, 0, len(settings)+2)
	if !slices.Contains(data.Names(), name) {
		if _, err := os.Stat(spec); err != nil || root != "" && !isList(spec) {
			return data.Find(spec, root) // which says what is wrong
		}
		key := "root"
		if name, split = "folder", data.All; isList(spec) {
			name, key = "list", "test"
		}
		plain = append(plain, key+"="+strconv.Quote(spec))
	}
	if root != "" {
		plain = append(plain, "root="+strconv.Quote(root))
	}
	for _, s := range settings {
		plain = append(plain, strings.TrimPrefix(s, "data."))
	}
	collection, err := data.New(name)
	if err != nil {
		return nil, err
	}
	section, err := config.Assign(name, plain...)
	if err != nil {
		return nil, err
	}
	if err := section.Decode(collection); err != nil {
		return nil, err
	}
	if split == "" {
		split = data.All
	}
	return collection.Open(split)
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

func dataStats(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	var result struct {
		Splits     []data.Stats `json:"splits"`
		PassedOver string       `json:"passed_over,omitempty"`
	}
	specs := splitsOf(words[0])
	if len(specs) > 1 {
		specs = append(specs, words[0]+":"+data.All)
	}
	for _, spec := range specs {
		stats, passedOver, err := countDataset(c, spec)
		if err != nil {
			return err
		}
		result.PassedOver = passedOver
		result.Splits = append(result.Splits, stats)
	}
	return answer(c, result, func(w io.Writer) error {
		var rows [][]string
		for _, s := range result.Splits {
			rows = append(rows, []string{s.Name, s.Split, fmt.Sprint(s.Images), fmt.Sprint(s.Classes), fmt.Sprint(s.Categories),
				fmt.Sprint(s.Min), fmt.Sprint(s.Median), fmt.Sprint(s.Max), fmt.Sprint(s.Lone), fmt.Sprint(s.Skipped)})
		}
		if result.PassedOver != "" {
			if _, err := fmt.Fprintln(w, "passed over:", result.PassedOver); err != nil {
				return err
			}
		}
		return printTable(w, []string{"dataset", "split", "images", "classes", "categories", "smallest class", "median", "largest", "lone classes", "skipped"}, rows)
	})
}

// splitsOf names the splits of a dataset that is named without one. A list has
// those for which it has files, so it stays as it is.
func splitsOf(spec string) []string {
	if !slices.Contains(data.Names(), spec) || spec == "list" {
		return []string{spec}
	}
	return []string{spec + ":" + data.Train, spec + ":" + data.Test}
}

func countDataset(c *call, spec string) (s data.Stats, passedOver string, err error) {
	d, err := openDataset(spec, c.String("root"), c.StringSlice("set"))
	if err != nil {
		return s, "", err
	}
	return d.Stats(), d.PassedOver(), d.Close()
}

// validation is what data validate found.
type validation struct {
	data.Stats
	Broken     []brokenImage `json:"broken"`
	PassedOver string        `json:"passed_over,omitempty"`
}

type brokenImage struct {
	Path  string `json:"path"`
	Error string `json:"error"`
}

func dataValidate(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	d, err := openDataset(words[0], c.String("root"), c.StringSlice("set"))
	if err != nil {
		return err
	}
	defer d.Close()
	bar := newProgress(c, "decode", "images", d.Len())
	broken, err := d.Verify(c.ctx, c.Int("workers"), func(done int) { bar.set(done, "") })
	if err != nil {
		return fmt.Errorf("data validate: %w", err)
	}
	bar.finish()
	found := validation{Stats: d.Stats(), Broken: []brokenImage{}, PassedOver: d.PassedOver()}
	for _, b := range append(d.Skipped, broken...) {
		found.Broken = append(found.Broken, brokenImage{b.Path, b.Err.Error()})
	}
	if err := answer(c, found, found.print); err != nil {
		return err
	}
	if n := len(found.Broken); n > 0 {
		return fault.Inputf("%s: %d of %d images are broken; replace or remove them, or leave them out with data.on_error=skip, in a recipe or behind --set", words[0], n, d.Len()+len(d.Skipped))
	}
	return nil
}

func (v *validation) print(w io.Writer) error {
	for _, b := range v.Broken {
		if _, err := fmt.Fprintf(w, "%s: %s\n", b.Path, b.Error); err != nil {
			return err
		}
	}
	if v.PassedOver != "" {
		if _, err := fmt.Fprintln(w, "passed over:", v.PassedOver); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s\nbroken images: %d\n", v.Stats, len(v.Broken))
	return err
}
