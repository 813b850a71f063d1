package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/pkg/data"
	"roadmap/pkg/tensorio"
)

func dataShowVerb() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "draw a contact sheet: images by class, or a batch as it is trained on",
		ArgsUsage: "DATASET[:SPLIT]",
		Description: "Draws the first images of the first classes, a column a class, as they are in the files, with the\n" +
			"boxes of queries. With --sampler it draws one batch instead, transformed and augmented as it\n" +
			"will be trained on.\n\n" + datasetWords +
			"Examples:\n  roadmap data show photos/ --out sheet.png\n  roadmap data show roxford5k:query --root DIR --out queries.html\n" +
			"  roadmap data show glyphs:train --sampler balanced --set sampler.classes=8 --transform resize=48,augment.rotate=15 --out batch.png",
		Flags: append(append(datasetFlags(), samplerFlags()...),
			&cli.StringFlag{Name: "out", Required: true, Usage: "file to write: .png or .html"},
			&cli.BoolFlag{Name: "force", Usage: "replace --out if it is there"},
			&cli.IntFlag{Name: "classes", Value: 12, Usage: "columns"},
			&cli.IntFlag{Name: "images", Value: 6, Usage: "most images of a class"},
			&cli.IntFlag{Name: "side", Value: 128, Usage: "of an image on the sheet, in pixels"},
			&cli.StringFlag{Name: "transform", Usage: "of a batch, as resize=256,crop=224,augment.flip=0.5 (default: resize to --side)"},
			&cli.IntFlag{Name: "batch", Usage: "which batch of the epoch, from 0"},
			quietFlag(), jsonFlag()),
		Action: action(dataShow),
	}
}

// drawn is what data show wrote.
type drawn struct {
	Out     string `json:"out"`
	Columns int    `json:"columns"`
	Images  int    `json:"images"`
}

func dataShow(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	out := c.String("out")
	ext := strings.ToLower(filepath.Ext(out))
	if ext != ".png" && ext != ".html" {
		return usageError(c.FullName(), "--out %s: the name must end in .png or .html", out)
	}
	if err := separate(c, []string{out}, words[0]); err != nil {
		return err
	}
	for _, n := range []struct {
		name        string
		least, most int
	}{{"classes", 1, 1000}, {"images", 1, 1000}, {"side", 16, 1024}} {
		if x := c.Int(n.name); x < n.least || x > n.most {
			return usageError(c.FullName(), "--%s is %d; give %d to %d", n.name, x, n.least, n.most)
		}
	}
	settings, ofSampler, err := splitSettings(c)
	if err != nil {
		return err
	}
	collection, split, err := openCollection(words[0], c.String("root"), settings)
	if err != nil {
		return err
	}
	if c.String("sampler") != "" {
		split = trainedOn(collection, split)
	}
	d, err := collection.Open(cmp.Or(split, data.All))
	if err != nil {
		return err
	}
	defer d.Close() // opened for reading
	sheet := &data.Sheet{Title: fmt.Sprintf("%s %s: %d images of %d classes", d.Name, d.Split, d.Len(), len(d.Classes)), Side: c.Int("side")}
	if c.String("sampler") == "" {
		sheet.Classes(d, c.Int("classes"), c.Int("images"))
	} else if err := drawBatch(c, sheet, d, ofSampler); err != nil {
		return err
	}
	write := sheet.WritePNG
	if ext == ".html" {
		write = sheet.WriteHTML
	}
	if err := tensorio.Save(out, c.Bool("force"), write); err != nil {
		return err
	}
	result := drawn{Out: out, Columns: len(sheet.Columns)}
	for _, column := range sheet.Columns {
		result.Images += len(column.Cells)
	}
	return answer(c, result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d images in %d columns\n", out, result.Images, result.Columns)
		return err
	})
}

// drawBatch draws one batch of the sampler as the loader makes it.
func drawBatch(c *call, sheet *data.Sheet, d *data.Dataset, settings []string) error {
	plan, _, err := planOf(c, d, settings)
	if err != nil {
		return err
	}
	number := c.Int("batch")
	if number < 0 || number >= plan.Batches() {
		return usageError(c.FullName(), "--batch is %d; an epoch has the batches 0 to %d", number, plan.Batches()-1)
	}
	transform := data.Transform{Resize: c.Int("side")}
	if text := c.String("transform"); text != "" {
		if transform, err = data.ParseTransform(text); err != nil {
			return err
		}
	}
	loader, err := data.NewLoader(d, transform, data.LoaderOptions{Augment: true, Seed: c.Uint64("seed")})
	if err != nil {
		return err
	}
	epoch := c.Int("epoch")
	sheet.Title += fmt.Sprintf(", %s, epoch %d, batch %d of %d", c.String("sampler"), epoch, number, plan.Batches())
	for batch, err := range loader.Batches(c.ctx, epoch, plan.Epoch(epoch)[number:number+1]) {
		if err != nil {
			return err
		}
		sheet.Batch(d, transform, batch)
	}
	return nil
}
