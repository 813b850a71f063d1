package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/losses"
	"roadmap/losses/criterion"
	"roadmap/losses/score"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

func init() {
	register(lossVerb)
	computing["loss"] = true
}

func lossVerb() *cli.Command {
	return &cli.Command{
		Name:      "loss",
		Usage:     "value and gradient of a loss on given embeddings",
		ArgsUsage: "NAME",
		Description: "Evaluates a loss on the embeddings of a file, against each other or against a gallery, or on given\n" +
			"scores with relevance. Gradients are those with respect to the rows of the files, before normalisation.\n\n" +
			"Examples:\n  roadmap loss --list\n" +
			"  roadmap loss roadmap --embeddings E.npy --labels L.npy --set tau=0.02 --set self=include --grad G.npy\n" +
			"  roadmap loss supap --embeddings Q.npy --labels QL.npy --gallery G.npy --gallery-labels GL.csv --json\n" +
			"  roadmap loss blackboxap --scores S.npy --relevance Y.npy --set flatten=true",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "list", Usage: "print every loss with its paper and its parameters"},
			&cli.StringFlag{Name: "embeddings", Usage: "embeddings [N, d]: .npy, .safetensors or .pth"},
			&cli.StringFlag{Name: "labels", Usage: "a label a row: .npy, .csv or .txt (default: those beside the embeddings in their file)"},
			&cli.StringFlag{Name: "gallery", Usage: "embeddings to compare with; for a proxy loss one a class (default: the embeddings themselves)"},
			&cli.StringFlag{Name: "gallery-labels", Usage: "their labels"},
			&cli.StringFlag{Name: "scores", Usage: "scores [queries, gallery] in place of embeddings: .npy"},
			&cli.StringFlag{Name: "relevance", Usage: "0 or 1 for each score: .npy"},
			&cli.StringSliceFlag{Name: "set", Usage: "a parameter as key=value; may be repeated"},
			&cli.StringFlag{Name: "chunk", Usage: "queries at once, or auto"},
			&cli.StringFlag{Name: "dtype", Usage: "of the scores: float32 or float64 (default: float64 for float64 files, else float32)"},
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "auto, cpu or cuda:0"},
			&cli.StringFlag{Name: "grad", Usage: "file to write the gradient of the embeddings, or of the scores, to: .npy"},
			&cli.StringFlag{Name: "grad-gallery", Usage: "file to write the gradient of the gallery to: .npy"},
			&cli.BoolFlag{Name: "force", Usage: "replace the files to write if they are there"},
			jsonFlag(),
		},
		Action: action(lossAction),
	}
}

// lossResult is the answer of the verb.
type lossResult struct {
	Loss       string         `json:"loss"`
	Value      float64        `json:"value"`
	Queries    int            `json:"queries"`
	Lone       int            `json:"lone"`
	Positives  int            `json:"positives"`
	Seconds    float64        `json:"seconds"`
	PeakBytes  int64          `json:"peak_bytes"`
	Parameters map[string]any `json:"parameters"`
}

func lossAction(c *call) error {
	if c.Bool("list") {
		return listLosses(c)
	}
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	name := words[0]
	loss, err := chooseLoss(c, name)
	if err != nil {
		return err
	}
	if err := checkGradientFiles(c); err != nil {
		return err
	}
	device, err := torch.ParseDevice(c.String("device"))
	if err != nil {
		return err
	}
	scope := torch.NewScope()
	defer scope.Close()
	in, err := readLossInput(c, scope, loss, device)
	if err != nil {
		return err
	}
	parameters, err := config.Values(loss)
	if err != nil {
		return err
	}
	result := &lossResult{Loss: name, Parameters: parameters}
	if err := evaluateLoss(c, scope, loss, in, result); err != nil {
		return err
	}
	return answer(c, result, result.print)
}

// chooseLoss makes the loss of that name as the options set it.
func chooseLoss(c *call, name string) (*criterion.Config, error) {
	settings := c.StringSlice("set")
	for _, key := range []string{"chunk", "dtype"} {
		if c.IsSet(key) {
			settings = append(settings, key+"="+c.String(key))
		}
	}
	section, err := config.Assign(name, settings...)
	if err != nil {
		return nil, err
	}
	loss, err := config.Build(criterion.Registry, section)
	if err != nil {
		return nil, err
	}
	if (c.IsSet("grad") || c.IsSet("grad-gallery")) && losses.Traits(loss.Loss).Metric {
		return nil, usageError(c.FullName(), "%s has no gradient: it is a metric; leave --grad away", name)
	}
	return loss, nil
}

// checkGradientFiles refuses names that the gradients cannot be written to,
// before anything is computed and before either is written.
func checkGradientFiles(c *call) error {
	verb := c.FullName()
	if c.IsSet("grad-gallery") && !c.IsSet("gallery") {
		return usageError(verb, "--grad-gallery wants a --gallery")
	}
	taken := map[string]bool{}
	for _, option := range []string{"grad", "grad-gallery"} {
		if !c.IsSet(option) {
			continue
		}
		path := c.String(option)
		if filepath.Ext(path) != ".npy" {
			return usageError(verb, "--%s %s: the name must end in .npy", option, path)
		}
		whole, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if taken[whole] {
			return usageError(verb, "--grad and --grad-gallery both name %s; give each a file of its own", path)
		}
		taken[whole] = true
		if err := separate(c, []string{path}); err != nil {
			return err
		}
		file, err := tensorio.Create(path, c.Bool("force"))
		if err != nil {
			return err
		}
		file.Discard()
	}
	return nil
}

// readLossInput reads the files; tensors that a gradient is asked of require one.
func readLossInput(c *call, s *torch.Scope, l *criterion.Config, device torch.Device) (score.Input, error) {
	verb := c.FullName()
	scores := c.IsSet("scores") || c.IsSet("relevance")
	switch {
	case scores && (c.IsSet("embeddings") || c.IsSet("labels") || c.IsSet("gallery") || c.IsSet("gallery-labels")):
		return score.Input{}, usageError(verb, "give either embeddings or scores, not both")
	case scores && !(c.IsSet("scores") && c.IsSet("relevance")):
		return score.Input{}, usageError(verb, "--scores and --relevance belong together")
	case !scores && !c.IsSet("embeddings"):
		return score.Input{}, usageError(verb, "of what? give --embeddings and --labels, or --scores and --relevance")
	case c.IsSet("gallery-labels") && !c.IsSet("gallery"):
		return score.Input{}, usageError(verb, "--gallery-labels wants a --gallery")
	}
	if scores {
		return readScores(c, s, l, device)
	}
	in := score.Input{QueryName: c.String("embeddings"), GalleryName: c.String("gallery")}
	var lists []tensorio.Labels
	read := func(option, labelsOption string, gradient bool) (*torch.Tensor, error) {
		path := c.String(option)
		file, err := tensorio.OpenEmbeddings(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		labels, err := labelsOf(file, labelsOption, c.String(labelsOption))
		if err != nil {
			return nil, err
		}
		lists = append(lists, labels)
		rows, err := toTensor(s, l, file.Tensor, device, gradient)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return rows, nil
	}
	var err error
	if in.Query, err = read("embeddings", "labels", c.IsSet("grad")); err != nil {
		return in, err
	}
	if c.IsSet("gallery") {
		if in.Gallery, err = read("gallery", "gallery-labels", c.IsSet("grad-gallery")); err != nil {
			return in, err
		}
	}
	var classes [][]int64
	classes, in.LabelNames = tensorio.Number(lists...)
	in.QueryLabels = classes[0]
	if in.Gallery != nil {
		in.GalleryLabels = classes[1]
	}
	return in, nil
}

func readScores(c *call, s *torch.Scope, l *criterion.Config, device torch.Device) (score.Input, error) {
	in := score.Input{QueryName: c.String("scores"), GalleryName: c.String("relevance")}
	for _, part := range []struct {
		option string
		into   **torch.Tensor
	}{{"scores", &in.Scores}, {"relevance", &in.Relevance}} {
		path := c.String(part.option)
		file, err := tensorio.Open(path)
		if err != nil {
			return in, err
		}
		values, err := onlyTensor(file)
		if err == nil {
			*part.into, err = toTensor(s, l, values, device, part.option == "scores" && c.IsSet("grad"))
		}
		file.Close() // opened for reading: nothing can be lost
		if err != nil {
			return in, fmt.Errorf("%s: %w", path, err)
		}
	}
	return in, nil
}

// onlyTensor is the tensor of a file that holds one.
func onlyTensor(f *tensorio.File) (tensorio.Tensor, error) {
	names := f.Names()
	if len(names) != 1 {
		return tensorio.Tensor{}, fault.Inputf("want a file of one tensor, this one holds %d (%s)", len(names), strings.Join(names, ", "))
	}
	return f.Tensor(names[0])
}

// toTensor copies values into libtorch's memory, in the dtype in which the loss
// computes, so that a gradient has it too.
func toTensor(s *torch.Scope, l *criterion.Config, values tensorio.Tensor, device torch.Device, gradient bool) (*torch.Tensor, error) {
	shape := make([]int64, len(values.Shape))
	for i, n := range values.Shape {
		shape[i] = int64(n)
	}
	if !values.DType.IsFloat() {
		numbers, err := values.Int64s()
		if err != nil {
			return nil, err
		}
		return torch.From(s, numbers, shape...).ToDevice(device), nil
	}
	var t *torch.Tensor
	if l.DType == "float64" || l.DType == "auto" && values.DType == tensorio.Float64 {
		numbers, err := values.Float64s()
		if err != nil {
			return nil, err
		}
		t = torch.From(s, numbers, shape...)
	} else {
		numbers, err := values.Float32s()
		if err != nil {
			return nil, err
		}
		t = torch.From(s, numbers, shape...)
	}
	t = t.ToDevice(device).RequireGrad(gradient)
	return t, t.Err()
}

// evaluateLoss runs the loss, measures it, and writes the gradients.
func evaluateLoss(c *call, s *torch.Scope, l *criterion.Config, in score.Input, result *lossResult) error {
	first := in.Query
	if first == nil {
		first = in.Scores
	}
	meter := newPeakMeter(first.Device())
	begin := time.Now()
	r, err := l.Evaluate(in)
	if err != nil {
		return err
	}
	if result.Value, err = r.Value.Item(); err != nil {
		return err
	}
	if r.Value.RequiresGrad() {
		if err := r.Value.Backward(); err != nil {
			return err
		}
		if err := torch.Synchronize(first.Device()); err != nil {
			return err
		}
	}
	result.Seconds = time.Since(begin).Seconds()
	result.PeakBytes = meter.bytes()
	result.Queries, result.Lone, result.Positives = r.Queries, r.Lone, r.Positives
	for _, out := range []struct {
		option string
		of     *torch.Tensor
	}{{"grad", first}, {"grad-gallery", in.Gallery}} {
		if path := c.String(out.option); path != "" {
			if err := writeGradient(path, out.of.Grad(s), c.Bool("force")); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeGradient(path string, grad *torch.Tensor, overwrite bool) error {
	bytes, err := grad.ReadBytes()
	if err != nil {
		return err
	}
	t := tensorio.Tensor{DType: tensorio.Float32, Data: bytes}
	if grad.DType() == torch.Float64 {
		t.DType = tensorio.Float64
	}
	for _, n := range grad.Shape() {
		t.Shape = append(t.Shape, int(n))
	}
	return tensorio.Save(path, overwrite, func(w io.Writer) error { return tensorio.WriteNPY(w, t) })
}

func (r *lossResult) print(w io.Writer) error {
	rows := [][]string{
		{"value", fmt.Sprintf("%.9g", r.Value)},
		{"queries", fmt.Sprint(r.Queries)},
		{"lone", fmt.Sprint(r.Lone)},
		{"positives", fmt.Sprint(r.Positives)},
		{"seconds", fmt.Sprintf("%.4g", r.Seconds)},
		{"peak memory", config.Bytes(r.PeakBytes >> 10 << 10).String()},
	}
	return printTable(w, []string{r.Loss, ""}, rows)
}

// listedLoss is a line of --list.
type listedLoss struct {
	Name       string         `json:"name"`
	Source     string         `json:"source"`
	Proxies    bool           `json:"proxies"`
	Parameters map[string]any `json:"parameters"`
}

func listLosses(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	var listed struct {
		Losses []listedLoss `json:"losses"`
	}
	var rows [][]string
	for _, name := range losses.Names() {
		loss, err := criterion.Registry.Make(name)
		if err != nil {
			return err
		}
		values, err := config.Values(loss)
		if err != nil {
			return err
		}
		pairs, err := config.Pairs(loss)
		if err != nil {
			return err
		}
		words := make([]string, 0, len(pairs))
		for _, p := range pairs {
			words = append(words, p.Key+"="+p.Value)
		}
		listed.Losses = append(listed.Losses, listedLoss{name, losses.Source(name), losses.Traits(loss.Loss).Proxies, values})
		rows = append(rows, []string{name, losses.Source(name), strings.Join(words, " ")})
	}
	return answer(c, listed, func(w io.Writer) error {
		for _, row := range rows {
			if _, err := fmt.Fprintf(w, "%s\n    %s\n    %s\n", row[0], row[1], row[2]); err != nil {
				return err
			}
		}
		return nil
	})
}
