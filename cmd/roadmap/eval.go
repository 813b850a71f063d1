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

func init() {
	register(evalVerb)
	computing["eval"] = true
}

func evalVerb() *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "measure retrieval: recall@k, mAP@R and others, exactly",
		Description: "Ranks the gallery for every query and measures where the relevant items stand. Without a gallery the\n" +
			"queries are the gallery, and no query finds its own row. Scores are float32, ties go by index, and\n" +
			"nothing but the embeddings and labels has an influence on the figures.\n\n" +
			"Embeddings are .npy or .safetensors, of any size (they are mapped); labels .npy, .txt, or .csv such as\n" +
			"embed writes. --run, or --model, --weights and --data, embed the images first.\n\n" +
			"Metrics, means over the queries:\n" + metricsHelp() + "\n" +
			"Examples:\n  roadmap eval --embeddings test.npy --labels test.csv --metrics r@1,r@10,map@r --bootstrap 1000\n" +
			"  roadmap eval --embeddings query.npy --labels query.txt --gallery gallery.npy --gallery-labels gallery.txt\n" +
			"  roadmap eval --run runs/glyphs_demo --json\n" +
			"  roadmap eval --embeddings q.npy --gallery g.npy --protocol revisited --ground-truth gnd_roxford5k.pkl\n" +
			"  roadmap eval --embeddings test.npy --labels test.npy --gap random=128 --batch-curve 16,64,256",
		Flags: slices.Concat([]cli.Flag{
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
			&cli.StringFlag{Name: "protocol", Usage: strings.Join(eval.ProtocolNames(), " or ")},
		}, protocolFlags(), []cli.Flag{
			&cli.StringFlag{Name: "gap", Usage: "decomposability gap over batches=FILE.npy ([K, B] rows from 0, -1 for none) or random=SIZE"},
			&cli.Float64Flag{Name: "alpha", Value: 0.9, Usage: "of --gap: cosine that positives should reach"},
			&cli.Float64Flag{Name: "beta", Value: 0.6, Usage: "of --gap: cosine that negatives should stay below"},
			&cli.StringFlag{Name: "batch-curve", Usage: "map of random batches of these sizes, as 16,32,64"},
			&cli.IntFlag{Name: "draws", Value: 10, Usage: "of --batch-curve: batches of each size"},
			&cli.StringFlag{Name: "precision", Value: "exact", Usage: "exact, or float32: no integers to screen with; the same figures"},
			memoryFlag(),
		}, imageFlags(), []cli.Flag{quietFlag(), jsonFlag()}),
		Action: action(evalAction),
	}
}

// imageFlags are those of networkFlags that do not mean something else here.
func imageFlags() []cli.Flag {
	return slices.DeleteFunc(networkFlags(), func(f cli.Flag) bool { return f.Names()[0] == "precision" })
}

// metricsHelp is a line a metric.
func metricsHelp() (text string) {
	for _, name := range rank.MetricNames() {
		if m, err := rank.ParseMetric(strings.Replace(name, "K", "1", 1)); err == nil {
			text += fmt.Sprintf("  %-5s  %s\n", name, m.About())
		}
	}
	return text
}

// eachProtocol calls use with every protocol and its name.
func eachProtocol(use func(name string, p eval.Protocol)) {
	for _, name := range eval.ProtocolNames() {
		if p, err := eval.NewProtocol(name); err == nil {
			use(name, p)
		}
	}
}

// protocolFlags are the settings of the protocols.
func protocolFlags() (flags []cli.Flag) {
	eachProtocol(func(name string, p eval.Protocol) {
		for _, s := range p.Settings() {
			usage := fmt.Sprintf("of --protocol %s: %s", name, s.Usage)
			if s.Text != nil {
				flags = append(flags, &cli.StringFlag{Name: s.Name, Value: *s.Text, Usage: usage})
			} else {
				flags = append(flags, &cli.IntFlag{Name: s.Name, Value: *s.Number, Usage: usage})
			}
		}
	})
	return flags
}

// protocol is the one that the options name, with its settings; nil for none.
func protocol(c *call) (eval.Protocol, error) {
	chosen := c.String("protocol")
	var foreign error
	eachProtocol(func(name string, p eval.Protocol) {
		for _, s := range p.Settings() {
			if name != chosen && c.IsSet(s.Name) {
				foreign = usageError(c.FullName(), "--%s needs --protocol %s", s.Name, name)
			}
		}
	})
	if chosen == "" || foreign != nil {
		return nil, foreign
	}
	p, err := eval.NewProtocol(chosen)
	if err != nil {
		return nil, usageError(c.FullName(), "--protocol: %w", err)
	}
	for _, s := range p.Settings() {
		if s.Text != nil {
			*s.Text = c.String(s.Name)
		} else {
			*s.Number = c.Int(s.Name)
		}
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("--%w", err) // it begins with the setting's name
	}
	return p, nil
}

// evaluated is the result of the verb.
type evaluated struct {
	Metrics    map[string]float64    `json:"metrics"`
	Queries    int                   `json:"queries"`
	Gallery    int                   `json:"gallery"`
	Lone       any                   `json:"lone"` // a number; by setup where a protocol has several
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

	order  []string // of the metrics in print
	setups []string // of a protocol, likewise
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
	p, err := protocol(c)
	if err != nil {
		return err
	}
	if err := checkEval(c, p); err != nil {
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
	s, err := openSets(c, p == nil || p.Takes().Labels)
	if err != nil {
		return err
	}
	defer s.close()
	if err := x.check(s, options); err != nil {
		return err
	}
	var result *evaluated
	if p != nil {
		result, err = evalProtocol(c, p, s, options)
	} else {
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
func checkEval(c *call, p eval.Protocol) error {
	refuse := func(format string, args ...any) error { return usageError(c.FullName(), format, args...) }
	images := c.IsSet("run") || c.IsSet("model") || c.IsSet("data") || c.IsSet("weights")
	switch {
	case c.IsSet("embeddings") == images:
		return refuse("what is to be evaluated? give --embeddings, or --run, or --model with --weights and --data")
	case images && (c.IsSet("labels") || c.IsSet("gallery") || c.IsSet("level")):
		return refuse("--labels, --level and --gallery go with --embeddings; images bring their own labels")
	case c.IsSet("gallery") && (c.IsSet("gap") || c.IsSet("batch-curve")):
		return refuse("--gap and --batch-curve are about one set: drop --gallery")
	case c.IsSet("gallery-labels") && !c.IsSet("gallery"):
		return refuse("--gallery-labels needs --gallery")
	case c.IsSet("draws") && !c.IsSet("batch-curve"):
		return refuse("--draws needs --batch-curve")
	case (c.IsSet("alpha") || c.IsSet("beta")) && !c.IsSet("gap"):
		return refuse("--alpha and --beta need --gap")
	}
	if p != nil {
		if err := checkProtocol(c, p.Takes(), images); err != nil {
			return err
		}
	}
	return rank.CheckRepeats("--draws", c.Int("draws"))
}

// checkProtocol refuses options that a protocol makes no use of.
func checkProtocol(c *call, takes eval.Takes, images bool) error {
	refuse := func(format string, args ...any) error {
		return usageError(c.FullName(), "--protocol %s "+format, append([]any{c.String("protocol")}, args...)...)
	}
	unused := []string{"per-query", "gap", "batch-curve", "bootstrap", "level"}
	if !takes.Labels {
		unused = append(unused, "labels", "gallery-labels", "ties")
	}
	if !takes.Metrics {
		unused = append(unused, "metrics", "lone")
	}
	for _, name := range unused {
		if c.IsSet(name) {
			return refuse("has no use for --%s: drop it", name)
		}
	}
	switch {
	case !takes.Labels && images:
		return refuse("compares embeddings in the order of its ground truth: give --embeddings and --gallery")
	case takes.Gallery && !c.IsSet("gallery"):
		return refuse("needs --gallery")
	case !takes.Gallery && c.IsSet("gallery"):
		return refuse("draws its galleries from --embeddings: drop --gallery")
	}
	return nil
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
		if err := separate(c, []string{path}); err != nil {
			return nil, err
		}
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
		names := strings.Split(list, ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		if o.Metrics, err = rank.ParseMetrics(names...); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}

// usualMetrics are those of a table, as far as there are candidates.
func usualMetrics(candidates int) ([]rank.Metric, error) {
	names := []string{"r@1", "r@10", "map@r", "rp", "map", "mrr"}
	if candidates < 10 {
		names = slices.Delete(names, 1, 2)
	}
	return rank.ParseMetrics(names...)
}

// evalPlain evaluates one set, or queries with a gallery.
func evalPlain(c *call, s *sets, x *extras, o eval.Options) (*evaluated, error) {
	var err error
	if len(o.Metrics) == 0 {
		if o.Metrics, err = usualMetrics(s.candidates()); err != nil {
			return nil, err
		}
	}
	if uniform(s.in.QueryLabels, s.in.GalleryLabels) {
		logger(c).Warn("all labels are equal, so every item is relevant to every query: there are no negatives, and the metrics say nothing about the embeddings")
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

// uniform says whether all labels of all lists are the same.
func uniform(lists ...[]int64) bool {
	all := slices.Concat(lists...)
	return len(all) > 0 && !slices.ContainsFunc(all, func(l int64) bool { return l != all[0] })
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

// evalProtocol evaluates by a protocol.
func evalProtocol(c *call, p eval.Protocol, s *sets, o eval.Options) (*evaluated, error) {
	s.in.Levels = nil
	found, err := p.Run(c.ctx, s.in, o)
	if err != nil {
		return nil, err
	}
	r := &evaluated{Metrics: map[string]float64{}, Queries: found.Queries, Gallery: found.Gallery, Dim: found.Dim, Repeats: found.Repeats, Ties: string(o.Ties)}
	for _, f := range found.Figures {
		r.order = append(r.order, f.Name)
		r.Metrics[f.Name] = f.Value
		if f.Spread != nil {
			if r.SD == nil {
				r.SD = map[string]float64{}
			}
			r.SD[f.Name] = *f.Spread
		}
	}
	by := map[string]int{}
	for _, l := range found.Lone {
		if l.Setup == "" {
			r.Lone = l.Queries
			continue
		}
		by[l.Setup], r.Lone = l.Queries, by
		r.setups = append(r.setups, l.Setup)
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
	var err error
	if o.Metrics, err = rank.ParseMetrics("map"); err != nil {
		return nil, err
	}
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
func writePerQuery(file *tensorio.Pending, s *sets, found *eval.Result, metrics []rank.Metric) error {
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
		for _, setup := range r.setups {
			parts = append(parts, fmt.Sprintf("%s %d", setup, by[setup]))
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
