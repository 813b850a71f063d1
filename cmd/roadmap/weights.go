package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"roadmap/backbones"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/nn"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

func init() { register(weightsVerb) }

func weightsVerb() *cli.Command {
	key := &cli.StringFlag{Name: "key", Usage: "part of a checkpoint that holds the weights, such as state_dict"}
	return &cli.Command{
		Name:  "weights",
		Usage: "look into files of weights and convert them",
		Commands: []*cli.Command{
			{
				Name:      "inspect",
				Usage:     "list the tensors of a file",
				ArgsUsage: "FILE",
				Description: "Lists name, shape and type of every tensor of a .pth, .pt, .safetensors, .npy or TorchScript file.\n" +
					"Nothing of the file is run, and no tensor is read.\n\n" +
					"Examples:\n  roadmap weights inspect resnet50.pth\n  roadmap weights inspect checkpoint.pth --key model_ema --json",
				Flags:  []cli.Flag{key, jsonFlag()},
				Action: action(weightsInspect),
			},
			{
				Name:      "convert",
				Usage:     "write weights in another format, under another network's names",
				ArgsUsage: "FILE OUT",
				Description: "Writes the weights of FILE to OUT, a .pth or .pt (which torch.load reads) or .safetensors. With --model\n" +
					"the names become those of that network, as torchvision or timm has it: prefixes and classifier go, and what\n" +
					"is missing or does not fit is an error. Without it, names stay but for --strip.\n\n" +
					"Examples:\n  roadmap weights convert resnet50.pth resnet50.safetensors\n" +
					"  roadmap weights convert checkpoint.pth trunk.pth --model resnet50 --set model.dim=512\n" +
					"  roadmap weights convert deit.pth half.safetensors --strip module. --drop head.weight --drop head.bias --dtype float16",
				Flags: []cli.Flag{
					key,
					&cli.StringFlag{Name: "model", Usage: "network whose names the tensors are to have: " + strings.Join(backbones.Registry.Names(), ", ")},
					&cli.StringSliceFlag{Name: "set", Usage: "a setting of the network as model.key=value; may be repeated"},
					&cli.StringSliceFlag{Name: "drop", Usage: "a tensor to leave out; may be repeated"},
					&cli.StringFlag{Name: "strip", Usage: "prefix to take off every name (without --model)"},
					&cli.StringFlag{Name: "dtype", Usage: "type of the floating-point tensors: float32, float16, bfloat16 or float64"},
					&cli.BoolFlag{Name: "force", Usage: "replace OUT if it is there"},
					quietFlag(), jsonFlag(),
				},
				Action: action(weightsConvert),
			},
		},
	}
}

// inspected is what weights inspect found.
type inspected struct {
	File     string            `json:"file"`
	Format   tensorio.Format   `json:"format"`
	Tensors  []tensorFacts     `json:"tensors"`
	Elements int               `json:"elements"`
	Bytes    int               `json:"bytes"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type tensorFacts struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	DType string `json:"dtype"`
}

func weightsInspect(c *call) error {
	words, err := positional(c, 1, 1)
	if err != nil {
		return err
	}
	file, err := tensorio.Open(words[0])
	if err != nil {
		return err
	}
	defer file.Close()
	entries := file.Entries()
	if key := c.String("key"); key != "" {
		if entries, err = file.StateDict(key); err != nil {
			return err
		}
	}
	found := inspected{File: words[0], Format: file.Format, Tensors: []tensorFacts{}, Metadata: file.Metadata}
	for _, e := range entries {
		shape, elements := slices.Clone(e.Shape), 1
		if shape == nil {
			shape = []int{}
		}
		for _, n := range shape {
			elements *= n
		}
		found.Tensors = append(found.Tensors, tensorFacts{e.Name, shape, e.Type()})
		found.Elements += elements
		found.Bytes += e.Bytes()
	}
	return answer(c, found, found.print)
}

func (f *inspected) print(w io.Writer) error {
	rows := make([][]string, len(f.Tensors))
	for i, t := range f.Tensors {
		rows[i] = []string{t.Name, fmt.Sprint(t.Shape), t.DType}
	}
	if err := printTable(w, []string{"tensor", "shape", "type"}, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s: %s, %d tensors, %d elements, %.1f MB\n", f.File, f.Format, len(f.Tensors), f.Elements, float64(f.Bytes)/1e6)
	return err
}

// converted is what weights convert wrote.
type converted struct {
	Out       string   `json:"out"`
	Tensors   int      `json:"tensors"`
	Dropped   []string `json:"dropped"`
	Resampled []string `json:"resampled"`
}

func weightsConvert(c *call) error {
	words, err := positional(c, 2, 2)
	if err != nil {
		return err
	}
	make := renameTensors
	if c.String("model") != "" {
		make = fitTensors
	} else if len(c.StringSlice("set")) > 0 {
		return usageError(c.FullName(), "--set belongs to --model")
	}
	if err := separate(c, words[1:], words[0]); err != nil {
		return err
	}
	result := converted{Out: words[1], Dropped: []string{}, Resampled: []string{}}
	tensors, err := make(c, words[0], &result)
	if err != nil {
		return err
	}
	if err := changeTypes(tensors, c.String("dtype")); err != nil {
		return err
	}
	if err := backbones.WriteWeights(words[1], tensors, c.Bool("force")); err != nil {
		return err
	}
	result.Tensors = len(tensors)
	return answer(c, result, func(w io.Writer) error {
		left := ""
		if len(result.Dropped) > 0 {
			left = ", left out: " + strings.Join(result.Dropped, ", ")
		}
		_, err := fmt.Fprintf(w, "%s: %d tensors%s\n", result.Out, result.Tensors, left)
		return err
	})
}

// renameTensors reads a file's tensors as they are, but for --strip and --drop.
func renameTensors(c *call, path string, result *converted) ([]tensorio.Named, error) {
	file, err := tensorio.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, err := file.StateDict(c.String("key"))
	if err != nil {
		return nil, err
	}
	if err := bounded(file, entries); err != nil {
		return nil, err
	}
	unused := slices.Clone(c.StringSlice("drop"))
	var tensors []tensorio.Named
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name, c.String("strip"))
		if !ok {
			return nil, fault.Inputf("%s: --strip %s: the name %q does not begin with it", path, c.String("strip"), e.Name)
		}
		if i := slices.IndexFunc(unused, func(d string) bool { return d == e.Name || d == name }); i >= 0 {
			unused = slices.Delete(unused, i, i+1)
			result.Dropped = append(result.Dropped, e.Name)
			continue
		}
		t, err := e.Read()
		if err != nil {
			return nil, fault.Inputf("%s: tensor %q: %w", path, e.Name, err)
		}
		t.Data = slices.Clone(t.Data) // the file is closed before it is written
		tensors = append(tensors, tensorio.Named{Name: name, Tensor: t})
	}
	if len(unused) > 0 {
		return nil, fault.Inputf("%s: --drop %s: there is no such tensor", path, unused[0])
	}
	return tensors, nil
}

// bounded refuses a file whose tensors repeat each other's storage until they
// need far more memory than the file has bytes. A few that share one, such as
// tied weights, are usual.
func bounded(file *tensorio.File, entries []tensorio.Entry) error {
	const times, spare = 4, 256 << 20
	total := 0
	for _, e := range entries {
		if total += e.Bytes(); total > times*file.Size()+spare {
			return fault.Inputf("%s: its tensors share storage: %d bytes in the file would become more than %d; save those you need with .clone()", file.Path, file.Size(), total)
		}
	}
	return nil
}

// fitTensors loads a file into the network that --model names and returns the
// network's tensors, without the head if the file has none.
func fitTensors(c *call, path string, result *converted) ([]tensorio.Named, error) {
	if c.String("strip") != "" {
		return nil, usageError(c.FullName(), "--strip is for names as they are; --model takes prefixes off by itself")
	}
	var settings []string
	for _, word := range c.StringSlice("set") {
		setting, ok := strings.CutPrefix(word, "model.")
		if !ok {
			return nil, usageError(c.FullName(), "--set %s: give model.key=value", word)
		}
		settings = append(settings, setting)
	}
	section, err := config.Assign(c.String("model"), settings...)
	if err != nil {
		return nil, err
	}
	backbone, err := config.Build(backbones.Registry, section)
	if err != nil {
		return nil, err
	}
	s := torch.NewScope()
	defer s.Close()
	model, err := backbone.Build(s, torch.CPU, 0)
	if err != nil {
		return nil, err
	}
	loaded, err := model.Load(backbones.Weights{File: path, Key: c.String("key"), Strict: true, Drop: c.StringSlice("drop")})
	if err != nil {
		return nil, err
	}
	result.Dropped = append(result.Dropped, loaded.Dropped...)
	result.Resampled = append(result.Resampled, loaded.Resampled...)
	for _, name := range loaded.Initial {
		if model.IsHead(name) {
			return nil, fault.Inputf("%s: it has no %s, which the network with model.dim=%d needs; leave the projection out with --set model.dim=0 and a pooling without parameters", path, name, model.Dim())
		}
	}
	return model.State().Snapshot()
}

// changeTypes converts the floating-point tensors; "" leaves them as they are.
func changeTypes(tensors []tensorio.Named, name string) error {
	if name == "" {
		return nil
	}
	dtype, err := torch.ParseDType(name)
	if err != nil || !dtype.IsFloat() {
		return fault.Inputf("--dtype %s: use float32, float16, bfloat16 or float64", name)
	}
	for i, t := range tensors {
		if !t.DType.IsFloat() {
			continue
		}
		s := torch.NewScope()
		tensors[i].Tensor, err = nn.ToStored(nn.FromStored(s, t.Tensor).ToDType(dtype))
		s.Close()
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return nil
}
