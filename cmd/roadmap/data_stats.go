package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/fault"
	"roadmap/sampler"
)

func dataStatsVerb() *cli.Command {
	return &cli.Command{
		Name:      "stats",
		Usage:     "count images, classes and what a sampler's batches hold",
		ArgsUsage: "DATASET[:SPLIT]",
		Description: "Counts the images and classes of each split, and the classes by their size. With --sampler it\n" +
			"counts the batches of an epoch as well, and what they show. No image is opened.\n\n" + datasetWords +
			"Examples:\n  roadmap data stats glyphs\n  roadmap data stats omniglot:test --root data/omniglot --set protocol=background80\n" +
			"  roadmap data stats sop:train --root DIR --sampler hard --set sampler.batch=256 --set sampler.batches_per_pair=5",
		Flags:  append(append(datasetFlags(), samplerFlags()...), jsonFlag()),
		Action: action(dataStats),
	}
}

// samplerFlags choose a sampler; its settings are --set sampler.key=value.
func samplerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "sampler", Usage: "batches by this sampler, with --set sampler.key=value: " + strings.Join(sampler.Names(), ", ")},
		&cli.Uint64Flag{Name: "seed", Value: 1, Usage: "of the batches"},
		&cli.IntFlag{Name: "epoch", Usage: "whose batches, from 0"},
	}
}

// splitSettings tells --set sampler.key=value from the dataset's settings.
func splitSettings(c *call) (dataset, ofSampler []string, err error) {
	for _, s := range c.StringSlice("set") {
		if rest, ok := strings.CutPrefix(s, "sampler."); ok {
			ofSampler = append(ofSampler, rest)
		} else {
			dataset = append(dataset, s)
		}
	}
	if len(ofSampler) > 0 && c.String("sampler") == "" {
		return nil, nil, usageError(c.FullName(), "--set sampler.%s belongs to --sampler", ofSampler[0])
	}
	if c.Int("epoch") < 0 {
		return nil, nil, usageError(c.FullName(), "--epoch is %d; epochs count from 0", c.Int("epoch"))
	}
	return dataset, ofSampler, nil
}

// planOf lays out batches of a dataset as the options say. A sampler whose
// categories come from a network has none yet.
func planOf(c *call, d *data.Dataset, settings []string) (p sampler.Plan, categories []int64, err error) {
	section, err := config.Assign(c.String("sampler"), settings...)
	if err != nil {
		return nil, nil, err
	}
	s, err := config.Build(sampler.Registry, section)
	if err != nil {
		return nil, nil, err
	}
	if categories = d.Categories(); isRegrouper(s) {
		categories = nil
	}
	p, err = s.Plan(d.Labels(), categories, c.Uint64("seed"))
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", d.Name, d.Split, err)
	}
	return p, categories, nil
}

func isRegrouper(s sampler.Sampler) bool {
	_, ok := s.(sampler.Regrouper)
	return ok
}

// splitStats is the numbers of a split.
type splitStats struct {
	data.Stats
	Histogram  []data.Bin    `json:"histogram"`
	Official   []data.Counts `json:"official,omitempty"`
	Miscounted []string      `json:"miscounted,omitempty"`
}

// stats is the result of the verb.
type stats struct {
	Splits     []splitStats      `json:"splits"`
	PassedOver string            `json:"passed_over,omitempty"` // files that are no images, classes without any
	Sampler    string            `json:"sampler,omitempty"`
	Coverage   *sampler.Coverage `json:"coverage,omitempty"`
}

func dataStats(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	settings, ofSampler, err := splitSettings(c)
	if err != nil {
		return err
	}
	collection, split, err := openCollection(words[0], c.String("root"), settings)
	if err != nil {
		return err
	}
	var result stats
	trained := trainedOn(collection, split)
	for _, split := range splitsOf(collection, split) {
		d, err := collection.Open(split)
		if err != nil && emptySplit(collection, split, err) {
			continue
		}
		if err != nil {
			return err
		}
		result.PassedOver = d.PassedOver()
		if len(result.Splits) == 0 || !redundant(d) {
			result.Splits = append(result.Splits, splitStats{d.Stats(), d.Histogram(), d.Official, d.Miscounted()})
		}
		if name := c.String("sampler"); name != "" && split == trained {
			p, categories, err := planOf(c, d, ofSampler)
			if err != nil {
				_ = d.Close() // opened for reading
				return err
			}
			cover := sampler.Cover(p, d.Labels(), categories, c.Int("epoch"))
			result.Sampler, result.Coverage = name, &cover
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	return answer(c, result, result.print)
}

// redundant says whether a split is the test split under another name: the
// queries or the gallery of a list in which every image is both.
func redundant(d *data.Dataset) bool {
	s := d.Stats()
	return (d.Split == data.Query || d.Split == data.Gallery) && s.Queries == 0 && s.Gallery == 0
}

// splitsOf names the splits that are counted: the one asked for, or all there
// are and, where there are several, all of it.
func splitsOf(collection data.Collection, split string) []string {
	if split != "" {
		return []string{split}
	}
	return append(collection.Splits(), data.All)
}

// trainedOn is the split that a sampler draws from: the one asked for, or that
// which trains.
func trainedOn(collection data.Collection, split string) string {
	switch {
	case split != "":
		return split
	case slices.Contains(collection.Splits(), data.Train):
		return data.Train
	}
	return data.All
}

// emptySplit says whether a split of a folder or list cannot be opened because
// nothing is in it, which is no error where nobody asked for it.
func emptySplit(collection data.Collection, split string, err error) bool {
	switch collection.(type) {
	case *data.Folder, *data.List:
		all, failed := collection.Open(data.All)
		if failed != nil {
			return false
		}
		_ = all.Close() // opened for reading
		return split != data.All && fault.IsInput(err)
	}
	return false
}

func (s *stats) print(w io.Writer) error {
	var rows [][]string
	for _, s := range s.Splits {
		rows = append(rows, []string{s.Name, s.Split, fmt.Sprint(s.Images), fmt.Sprint(s.Classes), fmt.Sprint(s.Categories),
			fmt.Sprint(s.Min), fmt.Sprint(s.Median), fmt.Sprint(s.Max), fmt.Sprint(s.Lone), fmt.Sprint(s.Skipped)})
	}
	if err := printTable(w, []string{"dataset", "split", "images", "classes", "categories", "smallest class", "median", "largest", "lone classes", "skipped"}, rows); err != nil {
		return err
	}
	if s.PassedOver != "" {
		if _, err := fmt.Fprintln(w, "passed over:", s.PassedOver); err != nil {
			return err
		}
	}
	for _, split := range s.Splits {
		line := split.line()
		if line == "" {
			continue
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if s.Coverage == nil {
		return nil
	}
	return printCoverage(w, s.Sampler, s.Coverage)
}

// line is what a table of numbers cannot say: queries, sizes, what is wrong.
func (s *splitStats) line() string {
	var parts []string
	if s.Queries > 0 || s.Gallery > 0 {
		parts = append(parts, fmt.Sprintf("%d queries, %d in the gallery", s.Queries, s.Gallery))
	}
	if s.Without > 0 && s.Categories > 0 {
		parts = append(parts, fmt.Sprintf("%d images without a category", s.Without))
	}
	var bins []string
	for _, b := range s.Histogram {
		size := fmt.Sprint(b.From)
		if b.To > b.From {
			size += fmt.Sprintf("–%d", b.To)
		}
		bins = append(bins, fmt.Sprintf("%s: %d", size, b.Classes))
	}
	if len(bins) > 1 {
		parts = append(parts, "classes by size "+strings.Join(bins, ", "))
	}
	for _, wrong := range s.Miscounted {
		parts = append(parts, "not as published: "+wrong)
	}
	if len(parts) == 0 {
		return ""
	}
	return s.Split + ": " + strings.Join(parts, "; ")
}

// printCoverage writes what an epoch of a sampler shows.
func printCoverage(w io.Writer, name string, c *sampler.Coverage) error {
	size := fmt.Sprint(c.Largest)
	if c.Smallest < c.Largest {
		size = fmt.Sprintf("%d, %d of them shorter, down to %d", c.Largest, c.Short, c.Smallest)
	}
	rows := [][]string{
		{"batches", fmt.Sprintf("%d (%s)", c.Batches, c.Why)},
		{"images a batch", size},
		{"images seen", fmt.Sprintf("%d of %d", c.ImagesSeen, c.Images)},
		{"classes seen", fmt.Sprintf("%d of %d", c.ClassesSeen, c.Classes)},
		{"images repeated", fmt.Sprintf("%d times, %d of them within a batch", c.Repeats, c.Copies)},
		{"positives of an image", fmt.Sprintf("%.4g in the mean, %d to %d; none: %d times", c.PositivesMean, c.PositivesMin, c.PositivesMax, c.Lone)},
	}
	if c.Categories > 0 {
		rows = append(rows, []string{"pairs of categories", fmt.Sprintf("%d of %d", c.Pairs, c.PairsPossible)})
	}
	return printTable(w, []string{fmt.Sprintf("%s, epoch %d", name, c.Epoch), ""}, rows)
}
