package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/eval"
	"roadmap/eval/rank"
	"roadmap/pkg/config"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/torch"
)

func init() { register(evalVerb) }

func evalVerb() *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "measure retrieval: recall@k, mAP@R and others, exactly",
		Description: "Ranks the gallery for every query and measures where the relevant items stand. Without a gallery the\n" +
			"queries are the gallery, and no query finds its own row. Scores are float32, ties go by index, and\n" +
			"nothing but the embeddings and labels has an influence on the figures.\n\n" +
			"Embeddings are .npy or .safetensors, of any size (they are mapped); labels .npy, .txt, or .csv such as\n" +
			"embed writes. --run, or --model, --weights and --data, embed the images first.\n\n" +
			"Metrics: r@K, p@K, map@r, rp, map, mrr.\n\n" +
			"Examples:\n  roadmap eval --embeddings test.npy --labels test.csv --metrics r@1,r@10,map@r --bootstrap 1000\n" +
			"  roadmap eval --embeddings query.npy --labels query.txt --gallery gallery.npy --gallery-labels gallery.txt\n" +
			"  roadmap eval --run runs/glyphs_demo --json\n" +
			"  roadmap eval --embeddings q.npy --gallery g.npy --protocol revisited --ground-truth gnd_roxford5k.pkl\n" +
			"  roadmap eval --embeddings test.npy --labels test.npy --gap random=128 --batch-curve 16,64,256",
		Flags: append(append([]cli.Flag{
			&cli.StringFlag{Name: "embeddings", Usage: "queries: .npy [N, d] or .safetensors"},
			&cli.StringFlag{Name: "labels", Usage: "their labels: .npy, .csv or .txt (default: those in the .safetensors)"},
			&cli.StringFlag{Name: "gallery", Usage: "embeddings to be retrieved, where they are not the queries"},
			&cli.StringFlag{Name: "gallery-labels", Usage: "their labels"},
			&cli.StringSliceFlag{Name: "level", Usage: "a further label, as a column of the .csv of --labels or as NAME=FILE[,GALLERY_FILE]; may be repeated"},
			&cli.StringFlag{Name: "metrics", Usage: "comma-separated (default: r@1,r@10,map@r,rp,map,mrr as far as there are candidates)"},
			&cli.StringFlag{Name: "lone", Value: string(rank.Skip), Usage: "queries without relevant items: skip, or zero in every mean"},
			&cli.StringFlag{Name: "ties", Value: string(rank.ByIndex), Usage: "equal scores: index, pessimistic or optimistic"},
			&cli.StringFlag{Name: "distance", Value: string(eval.Cosine), Usage: "cosine or l2"},
			&cli.IntFlag{Name: "bootstrap", Usage: "resamples of the queries for 95 % intervals; 0: none"},
			&cli.Uint64Flag{Name: "seed", Usage: "of everything random"},
			&cli.StringFlag{Name: "per-query", Usage: "file to write: a .csv with a row a query"},
			&cli.BoolFlag{Name: "force", Usage: "replace --per-query if it is there"},
			&cli.StringFlag{Name: "protocol", Usage: "revisited (Oxford, Paris) or vehicleid"},
			&cli.StringFlag{Name: "ground-truth", Usage: "of --protocol revisited: gnd_roxford5k.pkl or gnd_rparis6k.pkl"},
			&cli.IntFlag{Name: "repeats", Value: 10, Usage: "of --protocol vehicleid: random galleries"},
			&cli.StringFlag{Name: "gap", Usage: "decomposability gap over batches=FILE.npy ([K, B] rows from 0, -1 for none) or random=SIZE"},
			&cli.Float64Flag{Name: "alpha", Value: 0.9, Usage: "of --gap: cosine that positives should reach"},
			&cli.Float64Flag{Name: "beta", Value: 0.6, Usage: "of --gap: cosine that negatives should stay below"},
			&cli.StringFlag{Name: "batch-curve", Usage: "map of random batches of these sizes, as 16,32,64"},
			&cli.IntFlag{Name: "draws", Value: 10, Usage: "of --batch-curve: batches of each size"},
			&cli.StringFlag{Name: "precision", Value: "exact", Usage: "exact, or float32: no integers to screen with; the same figures"},
			memoryFlag(),
		}, imageFlags()...), quietFlag(), jsonFlag()),
		Action: action(evalAction),
	}
}

// imageFlags are those of networkFlags that do not mean something else here.
func imageFlags() []cli.Flag {
	return slices.DeleteFunc(networkFlags(), func(f cli.Flag) bool { return f.Names()[0] == "precision" })
}

// evaluated is the result of the verb.
type evaluated struct {
	Metrics    map[string]float64    `json:"metrics"`
	Queries    int                   `json:"queries"`
	Gallery    int                   `json:"gallery"`
	Lone       any                   `json:"lone"` // a number; by difficulty for revisited
	Dim        int                   `json:"dim"`
	Ties       string                `json:"ties,omitempty"`
	Distance   string                `json:"distance"`
	Seconds    float64               `json:"seconds"`
	Confidence map[string][2]float64 `json:"confidence,omitempty"`
	First      []quantile            `json:"first,omitempty"` // of the rank of the first relevant item
	SD         map[string]float64    `json:"sd,omitempty"`    // over repeats
	Repeats    int                   `json:"repeats,omitempty"`
	Gap        *gapFigures           `json:"gap,omitempty"`
	Curve      []curvePoint          `json:"curve,omitempty"`
	Levels     []levelFigures        `json:"levels,omitempty"` // the further ones

	order []string // of the metrics in print
}

type quantile struct {
	Share float64 `json:"share"`
	Rank  int     `json:"rank"`
}

// levelFigures are a further level's, beside its metrics.
type levelFigures struct {
	Name  string     `json:"name"`
	Lone  int        `json:"lone"`
	First []quantile `json:"first"`
}

type gapFigures struct {
	DG      float64 `json:"dg"`
	Bound8  float64 `json:"bound8"`
	Bound9  float64 `json:"bound9"`
	Worst8  float64 `json:"worst8"`
	Worst9  float64 `json:"worst9"`
	AP      float64 `json:"ap"`
	InBatch float64 `json:"in_batch"`
	Batches int     `json:"batches"`
	Alpha   float64 `json:"alpha"`
	Beta    float64 `json:"beta"`
}

type curvePoint struct {
	Batch int      `json:"batch"`
	Mean  *float64 `json:"mean"` // null where no draw has relevant pairs
	SD    *float64 `json:"sd"`
	Draws int      `json:"draws"`
	Lone  int      `json:"lone"`
}

func evalAction(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	if err := checkEval(c); err != nil {
		return err
	}
	options, err := evalOptions(c)
	if err != nil {
		return err
	}
	x, err := readExtras(c)
	if err != nil {
		return err
	}
	defer x.close()
	begin := time.Now()
	s, err := openSets(c)
	if err != nil {
		return err
	}
	defer s.close()
	if err := x.check(s, options); err != nil {
		return err
	}
	var result *evaluated
	switch c.String("protocol") {
	case "revisited":
		result, err = evalRevisited(c, s, options)
	case "vehicleid":
		result, err = evalVehicleID(c, s, options)
	default:
		result, err = evalPlain(c, s, x, options)
	}
	if err != nil {
		return err
	}
	result.Distance = c.String("distance")
	result.Seconds = time.Since(begin).Seconds()
	return answer(c, result, result.print)
}

// checkEval refuses options that do not go together.
func checkEval(c *call) error {
	refuse := func(format string, args ...any) error { return usageError(c.FullName(), format, args...) }
	images := c.IsSet("run") || c.IsSet("model") || c.IsSet("data") || c.IsSet("weights")
	protocol := c.String("protocol")
	plain := []string{"per-query", "gap", "batch-curve", "bootstrap", "level"}
	switch {
	case c.IsSet("embeddings") == images:
		return refuse("what is to be evaluated? give --embeddings, or --run, or --model with --weights and --data")
	case images && (c.IsSet("labels") || c.IsSet("gallery") || c.IsSet("level")):
		return refuse("--labels, --level and --gallery go with --embeddings; images bring their own labels")
	case protocol != "" && protocol != "revisited" && protocol != "vehicleid":
		return refuse("--protocol is %q; give revisited or vehicleid", protocol)
	case (protocol == "revisited") != c.IsSet("ground-truth"):
		return refuse("--protocol revisited and --ground-truth FILE go together")
	case protocol == "revisited" && (c.IsSet("metrics") || c.IsSet("labels") || c.IsSet("ties") || images):
		return refuse("--protocol revisited has its own metrics and relevance: give --embeddings, --gallery and --ground-truth")
	case protocol == "revisited" && !c.IsSet("gallery"):
		return refuse("--protocol revisited needs --gallery, in the order of the ground truth's imlist")
	case protocol == "vehicleid" && c.IsSet("gallery"):
		return refuse("--protocol vehicleid draws its galleries from --embeddings: drop --gallery")
	case c.IsSet("gallery") && (c.IsSet("gap") || c.IsSet("batch-curve")):
		return refuse("--gap and --batch-curve are about one set: drop --gallery")
	case c.IsSet("gallery-labels") && !c.IsSet("gallery"):
		return refuse("--gallery-labels needs --gallery")
	case c.IsSet("repeats") && protocol != "vehicleid":
		return refuse("--repeats needs --protocol vehicleid")
	case c.IsSet("draws") && !c.IsSet("batch-curve"):
		return refuse("--draws needs --batch-curve")
	case (c.IsSet("alpha") || c.IsSet("beta")) && !c.IsSet("gap"):
		return refuse("--alpha and --beta need --gap")
	}
	for _, name := range plain {
		if protocol != "" && c.IsSet(name) {
			return refuse("--%s does not go with --protocol", name)
		}
	}
	if err := rank.CheckRepeats("--repeats", c.Int("repeats")); err != nil {
		return err
	}
	return rank.CheckRepeats("--draws", c.Int("draws"))
}

// extras are what is asked for beside the metrics, read and checked before they
// are computed.
type extras struct {
	perQuery *tensorio.Pending // file to write; nil: none
	random   int               // size of --gap's random batches
	batches  [][]int           // of --gap; nil: none
	bounds   eval.GapOptions
	sizes    []int // of --batch-curve; nil: none
	draws    int
}

func readExtras(c *call) (x *extras, err error) {
	x = &extras{bounds: eval.GapOptions{Alpha: c.Float64("alpha"), Beta: c.Float64("beta")}, draws: c.Int("draws")}
	switch kind, value, _ := strings.Cut(c.String("gap"), "="); {
	case !c.IsSet("gap"):
	case kind == "random":
		if x.random, err = strconv.Atoi(value); err != nil || x.random < 2 {
			return nil, fault.Inputf("--gap random=%s: give the size of a batch, from 2 on", value)
		}
	case kind == "batches" && value != "":
		if x.batches, err = batchFile(value); err != nil {
			return nil, err
		}
	default:
		return nil, fault.Inputf("--gap %s: give batches=FILE.npy or random=SIZE", c.String("gap"))
	}
	if c.IsSet("batch-curve") {
		for word := range strings.SplitSeq(c.String("batch-curve"), ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil {
				return nil, fault.Inputf("--batch-curve %s: %q is no size; give whole numbers, as 16,32,64", c.String("batch-curve"), word)
			}
			x.sizes = append(x.sizes, n)
		}
	}
	if path := c.String("per-query"); path != "" {
		x.perQuery, err = tensorio.Create(path, c.Bool("force"))
	}
	return x, err
}

func (x *extras) close() {
	if x.perQuery != nil {
		x.perQuery.Discard()
	}
}

// check finds what does not fit the embeddings.
func (x *extras) check(s *sets, o eval.Options) error {
	rows := s.in.Query.Rows()
	if x.random > rows {
		return fault.Inputf("--gap random=%d: give the size of a batch, from 2 to %d", x.random, rows)
	}
	if x.random > 0 {
		x.batches = eval.RandomBatches(rows, x.random, o.Seed)
	}
	if x.batches != nil {
		if err := eval.CheckGap(s.in, x.batches, x.bounds, o); err != nil {
			return err
		}
	}
	if x.sizes != nil {
		return eval.CheckBatchCurve(s.in, x.sizes, x.draws)
	}
	return nil
}

// comparison reads the options about comparing rows, which eval and search share.
func comparison(c *call) (o eval.Options, err error) {
	memory, precision := *c.Text("memory").(*config.Bytes), c.String("precision")
	switch {
	case memory < config.MiB:
		return o, usageError(c.FullName(), "--memory is %s; give at least 1MiB", memory)
	case precision != "exact" && precision != "float32":
		return o, usageError(c.FullName(), "--precision is %q; give exact or float32", precision)
	}
	o = eval.Options{Distance: eval.Distance(c.String("distance")), Float32: precision == "float32", MemoryBytes: int64(memory)}
	if o.Device, err = torch.ParseDevice(c.String("device")); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// evalOptions adds what is measured.
func evalOptions(c *call) (eval.Options, error) {
	o, err := comparison(c)
	if err != nil {
		return o, err
	}
	o.Seed, o.Bootstrap = c.Uint64("seed"), c.Int("bootstrap")
	o.Lone, o.Ties = rank.Lone(c.String("lone")), rank.Ties(c.String("ties"))
	if list := c.String("metrics"); list != "" {
		for name := range strings.SplitSeq(list, ",") {
			o.Metrics = append(o.Metrics, strings.TrimSpace(name))
		}
	}
	return o, o.Validate()
}

// usualMetrics are those of a table, as far as there are candidates.
func usualMetrics(candidates int) []string {
	metrics := []string{"r@1"}
	if candidates >= 10 {
		metrics = append(metrics, "r@10")
	}
	return append(metrics, "map@r", "rp", "map", "mrr")
}

// evalPlain evaluates one set, or queries with a gallery.
func evalPlain(c *call, s *sets, x *extras, o eval.Options) (*evaluated, error) {
	if len(o.Metrics) == 0 {
		o.Metrics = usualMetrics(s.candidates())
	}
	bar := newProgress(c, "compare", "pairs", 0)
	o.Progress = bar.pairs
	found, err := eval.Run(c.ctx, s.in, o)
	if err != nil {
		return nil, err
	}
	bar.finish()
	r := &evaluated{Metrics: found.Metrics, Queries: found.Queries, Gallery: found.Gallery, Lone: found.Lone, Dim: found.Dim, Ties: string(o.Ties)}
	for _, level := range found.Levels {
		for _, v := range level.Report.Values {
			r.order = append(r.order, levelName(v.Metric.String(), level.Name))
		}
	}
	r.First = quantiles(found.Levels[0].Report.First)
	for _, level := range found.Levels[1:] {
		r.Levels = append(r.Levels, levelFigures{level.Name, level.Report.Lone, quantiles(level.Report.First)})
	}
	for name, i := range found.Intervals {
		if r.Confidence == nil {
			r.Confidence = map[string][2]float64{}
		}
		r.Confidence[name] = [2]float64{i.Low, i.High}
	}
	if x.batches != nil {
		if r.Gap, err = evalGap(c, s, x, o); err != nil {
			return nil, err
		}
	}
	if x.sizes != nil {
		if r.Curve, err = evalCurve(c, s, x, o); err != nil {
			return nil, err
		}
	}
	if x.perQuery != nil {
		err = writePerQuery(x.perQuery, s, found, o.Metrics)
	}
	return r, err
}

func quantiles(list []rank.Quantile) []quantile {
	var out []quantile
	for _, q := range list {
		out = append(out, quantile{q.Q, q.Rank})
	}
	return out
}

func levelName(metric, level string) string {
	if level == "" {
		return metric
	}
	return metric + "/" + level
}

// pairs shows progress in pairs compared, whose number is known once they are
// being compared.
func (p *progress) pairs(done, total int64) {
	p.expect(int(total))
	p.set(int(done), "")
}

func evalRevisited(c *call, s *sets, o eval.Options) (*evaluated, error) {
	truth, err := eval.ReadGroundTruth(c.String("ground-truth"))
	if err != nil {
		return nil, err
	}
	found, err := eval.Revisited(c.ctx, s.in.Query, s.in.Gallery, truth, o)
	if err != nil {
		return nil, err
	}
	r := &evaluated{Metrics: found.Metrics, Queries: found.Queries, Gallery: found.Gallery, Lone: found.Lone, Dim: found.Dim, Ties: string(rank.ByIndex)}
	for _, d := range rank.Difficulties {
		r.order = append(r.order, "map/"+string(d))
		for _, k := range eval.RevisitedKs {
			r.order = append(r.order, fmt.Sprintf("mp@%d/%s", k, d))
		}
	}
	return r, nil
}

func evalVehicleID(c *call, s *sets, o eval.Options) (*evaluated, error) {
	repeats := c.Int("repeats")
	s.in.Levels = nil
	spread, last, err := eval.VehicleID(c.ctx, s.in, repeats, o)
	if err != nil {
		return nil, err
	}
	r := &evaluated{Metrics: map[string]float64{}, SD: map[string]float64{}, Repeats: repeats,
		Queries: last.Queries, Gallery: last.Gallery, Lone: last.Lone, Dim: last.Dim, Ties: string(o.Ties)}
	for _, v := range last.Levels[0].Report.Values {
		name := v.Metric.String()
		r.order = append(r.order, name)
		r.Metrics[name], r.SD[name] = spread[name].Mean, spread[name].SD
	}
	return r, nil
}

func evalGap(c *call, s *sets, x *extras, o eval.Options) (*gapFigures, error) {
	bar := newProgress(c, "gap", "pairs", 0)
	o.Progress = bar.pairs
	g, err := eval.DecomposabilityGap(c.ctx, s.in, x.batches, x.bounds, o)
	if err != nil {
		return nil, err
	}
	bar.finish()
	return &gapFigures{g.DG, g.Bound8, g.Bound9, g.Worst8, g.Worst9, g.AP, g.InBatch, g.Batches, x.bounds.Alpha, x.bounds.Beta}, nil
}

// batchFile reads rows by batch, [K, B]; numbers below 0 fill short batches up.
func batchFile(path string) ([][]int, error) {
	f, err := tensorio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := f.Tensor(tensorio.Single)
	if err != nil {
		return nil, err
	}
	if len(t.Shape) != 2 || !t.DType.IsInteger() {
		return nil, fault.Inputf("%s: holds %v of shape %v; batches are whole numbers, [K, B]: a row of row numbers a batch", path, t.DType, t.Shape)
	}
	numbers, err := t.Int64s()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	batches := make([][]int, t.Shape[0])
	for i, n := range numbers {
		if n >= 0 {
			batches[i/t.Shape[1]] = append(batches[i/t.Shape[1]], int(n))
		}
	}
	return batches, nil
}

func evalCurve(c *call, s *sets, x *extras, o eval.Options) ([]curvePoint, error) {
	o.Metrics = []string{"map"}
	found, err := eval.BatchCurve(c.ctx, s.in, x.sizes, x.draws, o)
	if err != nil {
		return nil, err
	}
	var curve []curvePoint
	for _, p := range found {
		point := curvePoint{Batch: p.Batch, Draws: p.Draws, Lone: p.Lone}
		if spread, ok := p.Metrics["map"]; ok {
			point.Mean, point.SD = &spread.Mean, &spread.SD
		}
		curve = append(curve, point)
	}
	return curve, nil
}

// writePerQuery writes a row a query: its label, how many items are relevant,
// the rank of the first, and every metric, at every level.
func writePerQuery(file *tensorio.Pending, s *sets, found *eval.Result, names []string) error {
	metrics, err := rank.ParseMetrics(strings.Join(names, ","))
	if err != nil {
		return err
	}
	header := []string{"row", "label"}
	for _, level := range found.Levels {
		header = append(header, levelName("relevant", level.Name), levelName("first", level.Name))
		for _, m := range metrics {
			header = append(header, levelName(m.String(), level.Name))
		}
	}
	table := csv.NewWriter(file)
	table.UseCRLF = true
	if err := table.Write(header); err != nil {
		return err
	}
	for i := range found.Queries {
		row := []string{strconv.Itoa(i), s.name(i)}
		for _, level := range found.Levels {
			row = append(row, perQuery(level.Rankings[i], metrics)...)
		}
		if err := table.Write(row); err != nil {
			return err
		}
	}
	table.Flush()
	if err := table.Error(); err != nil {
		return err
	}
	return file.Commit()
}

// perQuery is the cells of one query at one level; those of a lone one are empty.
func perQuery(q rank.Query, metrics []rank.Metric) []string {
	if q.Lone() {
		return append([]string{"0"}, make([]string, 1+len(metrics))...)
	}
	cells := []string{strconv.Itoa(len(q.Ranks)), strconv.Itoa(int(q.Ranks[0]))}
	for _, m := range metrics {
		cells = append(cells, strconv.FormatFloat(m.Of(q), 'g', -1, 64))
	}
	return cells
}

// lone is the number of lone queries in print.
func (r *evaluated) lone() string {
	text := fmt.Sprint(r.Lone)
	if by, ok := r.Lone.(map[string]int); ok {
		var parts []string
		for _, d := range rank.Difficulties {
			parts = append(parts, fmt.Sprintf("%s %d", d, by[string(d)]))
		}
		text = strings.Join(parts, ", ")
	}
	for _, l := range r.Levels {
		text += fmt.Sprintf(", by %s %d", l.Name, l.Lone)
	}
	return text
}

// printFirst is a line of quantiles.
func printFirst(what string, first []quantile) string {
	var parts []string
	for _, q := range first {
		parts = append(parts, fmt.Sprintf("%g %% ≤ %d", 100*q.Share, q.Rank))
	}
	return what + ": " + strings.Join(parts, ", ") + "\n"
}

// print writes the result for people.
func (r *evaluated) print(w io.Writer) error {
	var rows [][]string
	header := []string{"metric", "value"}
	if r.Confidence != nil {
		header = append(header, "95 % from", "to")
	}
	if r.SD != nil {
		header = append(header, "sd")
	}
	for _, name := range r.order {
		row := []string{name, fmt.Sprintf("%.4f", r.Metrics[name])}
		if i, ok := r.Confidence[name]; ok {
			row = append(row, fmt.Sprintf("%.4f", i[0]), fmt.Sprintf("%.4f", i[1]))
		}
		if sd, ok := r.SD[name]; ok {
			row = append(row, fmt.Sprintf("%.4f", sd))
		}
		rows = append(rows, row)
	}
	if err := printTable(w, header, rows); err != nil {
		return err
	}
	text := fmt.Sprintf("%d queries, %d in the gallery, %d dimensions, %s, ties by %s; lone queries: %s; %.2f s\n",
		r.Queries, r.Gallery, r.Dim, r.Distance, r.Ties, r.lone(), r.Seconds)
	if len(r.First) > 0 {
		text += printFirst("rank of the first relevant item", r.First)
	}
	for _, l := range r.Levels {
		text += printFirst("  by "+l.Name, l.First)
	}
	if g := r.Gap; g != nil {
		text += fmt.Sprintf("decomposability gap over %d batches: %.4f (AP in batches %.4f, over all %.4f)\n"+
			"  if AP in every batch were 1, at most %.4f (eq. 8) or %.4f (eq. 9, alpha %g, beta %g: a bound too, which may be the looser one); with the batches in the order given %.4f and %.4f\n",
			g.Batches, g.DG, g.InBatch, g.AP, g.Worst8, g.Worst9, g.Alpha, g.Beta, g.Bound8, g.Bound9)
	}
	if _, err := io.WriteString(w, text); err != nil || r.Curve == nil {
		return err
	}
	rows = nil
	for _, p := range r.Curve {
		mean, sd := "-", "-"
		if p.Mean != nil {
			mean, sd = fmt.Sprintf("%.4f", *p.Mean), fmt.Sprintf("%.4f", *p.SD)
		}
		rows = append(rows, []string{strconv.Itoa(p.Batch), mean, sd, strconv.Itoa(p.Draws), strconv.Itoa(p.Lone)})
	}
	return printTable(w, []string{"batch", "map", "sd", "draws", "without relevant pairs"}, rows)
}
