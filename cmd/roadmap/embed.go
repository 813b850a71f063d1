package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/backbones"
	"roadmap/pkg/config"
	"roadmap/pkg/data"
	"roadmap/pkg/embed"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
	"roadmap/pkg/train"
)

func init() {
	register(embedVerb)
	computing["embed"] = true
}

func embedVerb() *cli.Command {
	return &cli.Command{
		Name:  "embed",
		Usage: "turn images into embeddings",
		Description: "Embeds every image of a dataset with a trained network and writes the embeddings, [N, d] float32,\n" +
			"as .npy or .safetensors, and beside them a .csv with row, path, label, class and the dataset's\n" +
			"further levels. Rows are in the dataset's order.\n\n" +
			"Examples:\n  roadmap embed --run runs/glyphs_demo --out glyphs.npy\n" +
			"  roadmap embed --run runs/omniglot_convnet --data photos/ --out photos.npy\n" +
			"  roadmap embed --model convnet --weights w.safetensors --set model.dim=64 --data omniglot:test --root omniglot \\\n" +
			"      --transform resize=28,channels=1,invert=true --out test.npy",
		Flags: append(networkFlags(),
			&cli.StringFlag{Name: "out", Required: true, Usage: "file to write: .npy or .safetensors"},
			&cli.BoolFlag{Name: "force", Usage: "replace --out if it is there"},
			quietFlag(), jsonFlag()),
		Action: action(embedAction),
	}
}

// networkFlags choose a network, its weights and the images it is to embed.
func networkFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "run", Usage: "run folder that gives network, weights and transform"},
		&cli.StringFlag{Name: "model", Usage: "network by name, where there is no --run: " + strings.Join(backbones.Registry.Names(), ", ")},
		&cli.StringFlag{Name: "weights", Usage: "weights to load into the network"},
		&cli.StringFlag{Name: "key", Usage: "part of a checkpoint that holds the weights, such as state_dict"},
		&cli.StringSliceFlag{Name: "drop", Usage: "a tensor of the weights to leave out; may be repeated"},
		&cli.StringSliceFlag{Name: "set", Usage: "a setting of network or dataset as model.key=value or data.key=value; may be repeated"},
		&cli.StringFlag{Name: "data", Usage: "DATASET[:split], a folder of classes, or a CSV list of path,label (default with --run: its test split)"},
		&cli.StringFlag{Name: "root", Usage: "folder in which the dataset, or the paths of the list, are found"},
		&cli.StringFlag{Name: "transform", Usage: "what happens to an image first, as resize=256,crop=224,mean=imagenet"},
		&cli.IntFlag{Name: "batch", Value: 64, Usage: "images at once"},
		&cli.IntFlag{Name: "workers", Usage: "goroutines that decode; 0: one a processor"},
		&cli.StringFlag{Name: "device", Value: "auto", Usage: "auto, cpu or cuda:0"},
		&cli.StringFlag{Name: "precision", Usage: "of the network: float32, bfloat16, float16 or auto (default: the run's; without --run float32)"},
	}
}

// network is what networkFlags name, ready to embed.
type network struct {
	scope   *torch.Scope
	model   *backbones.Model
	device  torch.Device
	dataset *data.Dataset
	images  *embed.Embedder

	deviation *embed.Deviation // of 16 bits from float32, once it is known
}

func (n *network) close() {
	n.scope.Close()
	if n.dataset != nil {
		_ = n.dataset.Close() // opened for reading: nothing can be lost
	}
}

// openNetwork builds the network, loads its weights and opens the images. The
// network computes in a precision; "": the run's, or float32.
func openNetwork(c *call, precision string) (opened *network, err error) {
	n := &network{scope: torch.NewScope()}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	choice, err := choose(c)
	if err != nil {
		return nil, err
	}
	if n.device, err = torch.ParseDevice(c.String("device")); err != nil {
		return nil, err
	}
	backbone, err := config.Build(backbones.Registry, choice.model)
	if err != nil {
		return nil, err
	}
	if n.model, err = backbone.Build(n.scope, n.device, choice.seed); err != nil {
		return nil, err
	}
	if choice.weights != "" {
		if err := loadWeights(c, n.model, choice.weights); err != nil {
			return nil, err
		}
	} else if untrained := n.model.Untrained(); len(untrained) > 0 {
		logger(c).Warn("no --weights, so as initialised", "tensors", len(untrained), "first", untrained[0].Name)
	}
	if n.dataset, err = choice.open(); err != nil {
		return nil, err
	}
	if note := n.dataset.PassedOver(); note != "" {
		logger(c).Warn("passed over: " + note)
	}
	if choice.transform == nil {
		t := usualTransform(n.model.Input())
		choice.transform = &t
	}
	dtype, err := embed.Precision(cmp.Or(precision, choice.precision), n.device)
	if err != nil {
		return nil, usageError(c.FullName(), "--%w", err)
	}
	bar := newProgress(c, "embed", "images", n.dataset.Len())
	n.images, err = embed.New(n.dataset, *choice.transform, embed.Options{Batch: c.Int("batch"), Workers: c.Int("workers"), Precision: dtype,
		Deviation: func(d embed.Deviation) { n.deviation = &d },
		Progress: func(done int) {
			if bar.set(done, ""); done == n.dataset.Len() {
				bar.finish()
			}
		}})
	return n, err
}

// choice is what the options say, with what --run fills in.
type choice struct {
	model     config.Section
	seed      uint64
	weights   string
	precision string
	transform *data.Transform // nil: what the network usually wants
	open      func() (*data.Dataset, error)
}

func choose(c *call) (*choice, error) {
	if c.Int("batch") < 1 {
		return nil, usageError(c.FullName(), "--batch is %d; give at least 1", c.Int("batch"))
	}
	model, dataset, err := settings(c)
	if err != nil {
		return nil, err
	}
	chosen := &choice{weights: c.String("weights"), precision: "float32"}
	chosen.open = func() (*data.Dataset, error) { return openDataset(c.String("data"), c.String("root"), dataset) }
	switch run := c.String("run"); {
	case run != "":
		if c.String("data") == "" && len(dataset) > 0 {
			return nil, usageError(c.FullName(), "--set data.* belongs to --data; without it the run's own test split is embedded")
		}
		if err := chosen.fromRun(c, run, model); err != nil {
			return nil, err
		}
	case c.String("model") == "" || c.String("data") == "":
		return nil, usageError(c.FullName(), "which network and images? give --run RUN_FOLDER, or --model and --data")
	default:
		if c.String("model") == "torchscript" && chosen.weights != "" { // the module is the network and its weights
			model, chosen.weights = append(model, "file="+strconv.Quote(chosen.weights)), ""
		}
		if chosen.model, err = config.Assign(c.String("model"), model...); err != nil {
			return nil, err
		}
	}
	if text := c.String("transform"); text != "" {
		t, err := data.ParseTransform(text)
		if err != nil {
			return nil, err
		}
		chosen.transform = &t
	}
	return chosen, nil
}

// settings sorts --set by what it is for.
func settings(c *call) (model, dataset []string, err error) {
	for _, word := range c.StringSlice("set") {
		if setting, ok := strings.CutPrefix(word, "model."); ok {
			model = append(model, setting)
		} else if setting, ok := strings.CutPrefix(word, "data."); ok {
			dataset = append(dataset, setting)
		} else {
			return nil, nil, usageError(c.FullName(), "--set %s: give model.key=value or data.key=value", word)
		}
	}
	return model, dataset, nil
}

// fromRun takes network, weights, transform and, without --data, the test
// split from a run folder.
func (ch *choice) fromRun(c *call, folder string, model []string) error {
	if c.String("model") != "" || len(model) > 0 {
		return usageError(c.FullName(), "--run brings its own network: drop --model and --set model.*")
	}
	recipe, weights, err := train.OpenTrained(folder)
	if err != nil {
		return err
	}
	ch.model, ch.seed, ch.transform, ch.precision = recipe.Model, recipe.Seed, &recipe.Transform, recipe.Train.Precision
	if ch.weights == "" {
		ch.weights = weights
	}
	if c.String("data") == "" {
		if c.String("root") != "" {
			return usageError(c.FullName(), "--root belongs to --data")
		}
		ch.open = func() (*data.Dataset, error) {
			collection, err := config.Build(data.Registry, recipe.Data)
			if err != nil {
				return nil, err
			}
			return collection.Open(data.Test)
		}
	}
	return nil
}

// usualTransform is what networks of an input are usually fed: photographs are
// resized a little larger than the square that is cut from their middle.
func usualTransform(in backbones.Input) data.Transform {
	t := data.Transform{Channels: in.Channels, Resize: in.Size}
	if in.Size >= 128 {
		t.Resize, t.Crop = int(math.Round(float64(in.Size)*256/224)), in.Size
	}
	for i := range in.Mean {
		t.Mean, t.Std = append(t.Mean, float64(in.Mean[i])), append(t.Std, float64(in.Std[i]))
	}
	return t
}

// embedded is the result of the verb.
type embedded struct {
	Out     string  `json:"out"`
	List    string  `json:"list"`
	Images  int     `json:"images"`
	Dim     int     `json:"dim"`
	Seconds float64 `json:"seconds"`

	Deviation *embed.Deviation `json:"deviation,omitempty"` // in 16 bits
}

func embedAction(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	out := c.String("out")
	if ext := filepath.Ext(out); ext != ".npy" && ext != ".safetensors" {
		return usageError(c.FullName(), "--out %s: the name must end in .npy or .safetensors", out)
	}
	list := strings.TrimSuffix(out, filepath.Ext(out)) + ".csv"
	if !c.Bool("force") {
		for _, path := range []string{out, list} {
			if _, err := os.Stat(path); err == nil {
				return fault.Inputf("%s is there already; choose another --out or replace it with --force", path)
			}
		}
	}
	if err := separate(c, []string{out, list}); err != nil {
		return err
	}
	begin := time.Now()
	n, err := openNetwork(c, c.String("precision"))
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.write(c, out, list); err != nil {
		return err
	}
	result := embedded{Out: out, List: list, Images: n.dataset.Len(), Dim: n.model.Dim(), Seconds: time.Since(begin).Seconds(), Deviation: n.deviation}
	return answer(c, result, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "%s: %d embeddings of %d dimensions; %s: their labels\n", out, result.Images, result.Dim, list); err != nil || n.deviation == nil {
			return err
		}
		_, err := fmt.Fprintf(w, "cosine to float32, over the first %d: %.6f in the mean, %.6f at least\n", n.deviation.Images, n.deviation.Mean, n.deviation.Least)
		return err
	})
}

// write embeds the images into a file, row by row into an .npy, at once with
// the labels into a .safetensors, and writes the list beside it: both or neither.
func (n *network) write(c *call, out, list string) error {
	rows, err := n.rows(c, out)
	if err != nil {
		return err
	}
	defer rows.Discard()
	labels, err := tensorio.Create(list, c.Bool("force"))
	if err != nil {
		return err
	}
	defer labels.Discard()
	if err := writeList(labels, n.dataset); err != nil {
		return err
	}
	return tensorio.CommitAll(rows, labels)
}

func (n *network) rows(c *call, out string) (*tensorio.Pending, error) {
	if filepath.Ext(out) == ".safetensors" {
		return n.safetensors(c, out)
	}
	file, err := tensorio.CreateNPY(out, tensorio.Float32, []int{n.model.Dim()}, c.Bool("force"))
	if err != nil {
		return nil, err
	}
	err = n.images.Run(c.ctx, n.model, n.device, func(rows []float32) error {
		return file.Append(tensorio.Of(rows, len(rows)/n.model.Dim(), n.model.Dim()))
	})
	if err != nil {
		file.Discard()
		return nil, err
	}
	return file.Finish()
}

func (n *network) safetensors(c *call, out string) (*tensorio.Pending, error) {
	file, err := tensorio.Create(out, c.Bool("force"))
	if err != nil {
		return nil, err
	}
	rows, err := n.images.All(c.ctx, n.model, n.device)
	if err == nil {
		err = tensorio.WriteSafetensors(file, []tensorio.Named{
			{Name: tensorio.EmbeddingsName, Tensor: tensorio.Of(rows, n.dataset.Len(), n.model.Dim())},
			{Name: tensorio.LabelsName, Tensor: tensorio.Of(n.dataset.Labels(), n.dataset.Len())},
		}, nil)
	}
	if err != nil {
		file.Discard()
		return nil, err
	}
	return file, nil
}

// writeList writes the .csv beside the embeddings: RFC 4180, a row an image.
// The label is the class's name: its number holds within one dataset alone, and
// queries and gallery may come from two. Where queries and gallery differ,
// is_query and is_gallery say which a row is; where images of one sequence are
// never compared, sequence names it.
func writeList(w io.Writer, d *data.Dataset) error {
	levels := d.Levels()
	header := []string{"row", "path", "label", "class"}
	for _, level := range levels[1:] { // the first is the class
		header = append(header, level.Name)
	}
	roles := len(d.Queries()) < d.Len() || len(d.Gallery()) < d.Len()
	if roles {
		header = append(header, "is_query", "is_gallery")
	}
	sequences := d.Groups() != nil
	if sequences {
		header = append(header, "sequence")
	}
	table := csv.NewWriter(w)
	table.UseCRLF = true
	if err := table.Write(header); err != nil {
		return err
	}
	for i, item := range d.Items {
		row := []string{strconv.Itoa(i), item.Path, item.Class, item.Class}
		for _, level := range levels[1:] {
			row = append(row, level.Names[level.Labels[i]])
		}
		if roles {
			row = append(row, strconv.FormatBool(item.Role != data.GalleryOnly), strconv.FormatBool(item.Role != data.QueryOnly))
		}
		if sequences {
			row = append(row, item.Group)
		}
		if err := table.Write(row); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}

// loadWeights reads a file of weights into the network and says what the file
// did not have.
func loadWeights(c *call, m *backbones.Model, path string) error {
	loaded, err := m.Load(backbones.Weights{File: path, Key: c.String("key"), Strict: true, Drop: c.StringSlice("drop")})
	if err != nil {
		return fmt.Errorf("weights: %w", err)
	}
	if n := len(loaded.Initial); n > 0 {
		logger(c).Warn("not in the file of weights, so as initialised", "tensors", n, "first", loaded.Initial[0])
	}
	return nil
}
