package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/data"
	"roadmap/pkg/tensorio"
)

func dataValidateVerb() *cli.Command {
	return &cli.Command{
		Name:      "validate",
		Usage:     "read every image and say what is wrong with the dataset",
		ArgsUsage: "DATASET[:SPLIT]",
		Description: "Reads every image and reports missing and broken files, pictures that are there twice, classes of\n" +
			"one image, images that both train and test (by path and by content), and numbers that are not\n" +
			"the dataset's published ones. Missing and broken images, leaks and wrong numbers end the program\n" +
			"with code 2; with --fix a list of what is fit for use is written instead.\n\n" + datasetWords +
			"Examples:\n  roadmap data validate photos/\n  roadmap data validate sop --root DIR --fix sop.csv",
		Flags: append(datasetFlags(),
			&cli.StringFlag{Name: "fix", Usage: "write a list (.csv) without missing, broken and second images, leaks and lone training classes"},
			&cli.IntFlag{Name: "workers", Usage: "goroutines that decode; 0: one a processor"}, quietFlag(), jsonFlag()),
		Action: action(dataValidate),
	}
}

// validation is what data validate found.
type validation struct {
	*data.Audit
	PassedOver string `json:"passed_over,omitempty"` // files that are no images, classes without any
	Fixed      string `json:"fixed,omitempty"`       // the list that was written
	Kept       int    `json:"kept,omitempty"`        // its images
}

func dataValidate(c *call) (err error) {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	collection, split, err := openCollection(words[0], c.String("root"), c.StringSlice("set"))
	if err != nil {
		return err
	}
	all, parts, err := openForAudit(collection, split)
	defer func() {
		for _, d := range append(parts, all) {
			if d != nil {
				err = errors.Join(err, d.Close())
			}
		}
	}()
	if err != nil {
		return err
	}
	bar := newProgress(c, "decode", "images", all.Len())
	audit, err := data.NewAudit(c.ctx, all, parts, c.Int("workers"), func(done int) { bar.set(done, "") })
	if err != nil {
		return fmt.Errorf("data validate: %w", err)
	}
	bar.finish()
	found := validation{Audit: audit, PassedOver: all.PassedOver()}
	if list := c.String("fix"); list != "" {
		found.Fixed = list
		err := tensorio.Save(list, false, func(w io.Writer) (err error) {
			found.Kept, err = audit.WriteList(w)
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := answer(c, found, found.print); err != nil {
		return err
	}
	if err := audit.Err(); err != nil && found.Fixed == "" {
		return fmt.Errorf("%s: %w; mend them, or write a list without them with --fix", words[0], err)
	}
	return nil
}

// openForAudit opens what is read, and the splits it is divided into.
func openForAudit(collection data.Collection, split string) (all *data.Dataset, parts []*data.Dataset, err error) {
	if split != "" {
		all, err = collection.Open(split)
		return all, nil, err
	}
	if all, err = collection.Open(data.All); err != nil {
		return nil, nil, err
	}
	for _, split := range collection.Splits() {
		d, err := collection.Open(split)
		if err != nil && emptySplit(collection, split, err) {
			continue
		}
		if err != nil {
			return all, parts, err
		}
		if redundant(d) {
			err = d.Close()
		} else {
			parts = append(parts, d)
		}
		if err != nil {
			return all, parts, err
		}
	}
	return all, parts, nil
}

// most is how many of a kind are named for people; JSON has all.
const most = 10

func (v *validation) print(w io.Writer) error {
	var lines []string
	some := func(title string, n int, line func(i int) string) {
		for i := range min(n, most) {
			lines = append(lines, title+line(i))
		}
		if n > most {
			lines = append(lines, fmt.Sprintf("%sand %d more", title, n-most))
		}
	}
	some("missing: ", len(v.Missing), func(i int) string { return v.Missing[i].Path + ": " + v.Missing[i].Error })
	some("broken: ", len(v.Broken), func(i int) string { return v.Broken[i].Path + ": " + v.Broken[i].Error })
	some("listed twice: ", len(v.Repeated), func(i int) string { return v.Repeated[i].Path + ": " + v.Repeated[i].Error })
	some("trains and tests: ", len(v.LeakedPaths), func(i int) string { return v.LeakedPaths[i] })
	some("the same picture: ", len(v.Duplicates), func(i int) string {
		d := v.Duplicates[i]
		line := strings.Join(d.Paths[:min(len(d.Paths), most)], " = ")
		if len(d.Classes) > 1 {
			line += fmt.Sprintf(", of the classes %s", strings.Join(d.Classes[:min(len(d.Classes), most)], ", "))
		}
		if len(d.Splits) > 1 {
			line += fmt.Sprintf(", in %s", strings.Join(d.Splits, ", "))
		}
		return line
	})
	some("names that differ in case: ", len(v.Alike), func(i int) string { return strings.Join(v.Alike[i], ", ") })
	if v.PassedOver != "" {
		lines = append(lines, "passed over: "+v.PassedOver)
	}
	for _, s := range v.Splits {
		lines = append(lines, s.Stats.String())
		for _, o := range s.Official {
			lines = append(lines, fmt.Sprintf("  published: %s", published(o)))
		}
		for _, wrong := range s.Miscounted {
			lines = append(lines, "  wrong: "+wrong)
		}
		if n := len(s.Lone); n > 0 {
			names := strings.Join(s.Lone[:min(n, most)], ", ")
			if n > most {
				names += ", …"
			}
			lines = append(lines, fmt.Sprintf("  classes of one image: %d (%s)", n, names))
		}
	}
	lines = append(lines, fmt.Sprintf("images read: %d; missing: %d; broken: %d; pictures there twice: %d, of several classes: %d, in training and test: %d; classes in training and test: %d",
		v.Checked, len(v.Missing), len(v.Broken), len(v.Duplicates), v.Conflicts, v.Leaked, v.Shared))
	if v.Fixed != "" {
		lines = append(lines, fmt.Sprintf("%s: a list of the %d images that are fit for use", v.Fixed, v.Kept))
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// published is official counts in words.
func published(c data.Counts) string {
	text := fmt.Sprintf("%d images", c.Images)
	if c.Classes > 0 {
		text += fmt.Sprintf(", %d classes", c.Classes)
	}
	if c.Categories > 0 {
		text += fmt.Sprintf(", %d categories", c.Categories)
	}
	if c.Note != "" {
		text += " (" + c.Note + ")"
	}
	return text
}
