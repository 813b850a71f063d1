package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/configs"
	"roadmap/pkg/config"
	"roadmap/pkg/train"
)

func init() {
	register(trainVerb)
	computing["train"] = true
}

func trainVerb() *cli.Command {
	return &cli.Command{
		Name:      "train",
		Usage:     "train a network by a recipe",
		ArgsUsage: "[RECIPE] [KEY=VALUE ...]",
		Description: "Trains by a recipe, one of the program's own (see --list) or a YAML file, with overrides of its\n" +
			"keys. Weights, log, metrics and checkpoints go to a run folder. An interrupted run goes on exactly\n" +
			"where it was with --resume; there, train.*, eval.* and optimizer.lr can be overridden, and other\n" +
			"changes of the recipe or the data are refused without --accept-changes.\n\n" +
			"Examples:\n  roadmap train glyphs_demo\n  roadmap train omniglot_convnet data.root=omniglot loss=smoothap seed=2\n" +
			"  roadmap train --resume runs/omniglot_convnet\n  roadmap train glyphs_demo loss.lambda=0.3 --print-config",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Usage: "run folder (default: runs/RECIPE, with a number behind it if that is taken)"},
			&cli.StringFlag{Name: "resume", Usage: "run folder of a run to continue"},
			&cli.BoolFlag{Name: "accept-changes", Usage: "with --resume: go on although recipe or data are not as they were"},
			&cli.StringFlag{Name: "device", Usage: "auto, cpu or cuda:0; short for train.device=…"},
			&cli.BoolFlag{Name: "force", Usage: "replace the run that is in --out"},
			&cli.BoolFlag{Name: "print-config", Usage: "print the recipe with all defaults and overrides, and train nothing"},
			&cli.BoolFlag{Name: "list", Usage: "list the program's recipes"},
			quietFlag(), jsonFlag(),
		},
		Action: action(trainAction),
	}
}

func trainAction(c *call) error {
	words, err := positional(c, 0, -1)
	if err != nil {
		return err
	}
	if c.Bool("list") {
		if _, err := positional(c, 0, 0); err != nil {
			return err
		}
		return listRecipes(c)
	}
	if c.String("resume") != "" && (c.String("out") != "" || c.Bool("force")) {
		return usageError(c.FullName(), "--resume goes on in the run's own folder: drop --out and --force")
	}
	if c.Bool("accept-changes") && c.String("resume") == "" {
		return usageError(c.FullName(), "--accept-changes belongs to --resume")
	}
	recipe, overrides, err := recipeWords(c, words)
	if err != nil {
		return err
	}
	resolved, tree, err := readRecipe(c, recipe, overrides)
	if err != nil {
		return err
	}
	if c.Bool("print-config") {
		return printConfig(c, resolved, tree)
	}
	return runRecipe(c, recipe, resolved)
}

// recipeWords takes the arguments apart: a recipe, then overrides.
func recipeWords(c *call, words []string) (recipe string, overrides []string, err error) {
	resume := c.String("resume")
	for _, word := range words {
		switch {
		case strings.Contains(word, "="):
			overrides = append(overrides, word)
		case resume != "":
			return "", nil, usageError(c.FullName(), "--resume takes its recipe from the run folder, so %q has no place here", word)
		case recipe == "":
			recipe = word
		default:
			return "", nil, usageError(c.FullName(), "two recipes, %q and %q; overrides have the form key=value", recipe, word)
		}
	}
	if recipe == "" && resume == "" {
		return "", nil, usageError(c.FullName(), "which recipe? give one of %s, or a YAML file", strings.Join(configs.Names(), ", "))
	}
	if d := c.String("device"); d != "" {
		overrides = append(overrides, "train.device="+strconv.Quote(d))
	}
	return recipe, overrides, nil
}

// readRecipe reads the recipe, and the tree that has its comments.
func readRecipe(c *call, name string, overrides []string) (*train.Recipe, *config.Tree, error) {
	if folder := c.String("resume"); folder != "" {
		recipe, err := train.ReadRecipe(folder, overrides)
		return recipe, config.Empty(), err
	}
	tree, err := config.Load(name, configs.Open)
	if err != nil {
		return nil, nil, err
	}
	recipe, err := train.LoadRecipe(tree, overrides)
	return recipe, tree, err
}

func listRecipes(c *call) error {
	type listed struct {
		Name    string `json:"name"`
		Summary string `json:"summary"`
	}
	var result struct {
		Recipes []listed `json:"recipes"`
	}
	var rows [][]string
	for _, name := range configs.Names() {
		result.Recipes = append(result.Recipes, listed{name, configs.Summary(name)})
		rows = append(rows, []string{name, configs.Summary(name)})
	}
	return answer(c, result, func(w io.Writer) error { return printTable(w, []string{"recipe", "what it is"}, rows) })
}

// printConfig prints the recipe, with the comments of its files.
func printConfig(c *call, recipe *train.Recipe, tree *config.Tree) error {
	if err := recipe.Resolve(); err != nil {
		return err
	}
	for _, note := range recipe.Notes() {
		logger(c).Warn(note)
	}
	values, err := config.Values(recipe)
	if err != nil {
		return err
	}
	return answer(c, values, func(w io.Writer) error {
		text, err := config.MarshalLike(recipe, tree)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

// runRecipe builds the run, gives it its folder and lets it go.
func runRecipe(c *call, name string, recipe *train.Recipe) (err error) {
	watch := &watcher{c: c, metrics: recipe.Eval.Metrics}
	defer watch.finish()
	run, err := openRun(c, name, recipe, train.Observer{Begin: watch.begin, Step: watch.step, Embed: watch.embed, Evaluated: watch.evaluated, Note: watch.note})
	if err != nil {
		return err
	}
	defer func() {
		if closing := run.Close(); err == nil {
			err = closing
		}
	}()
	result, err := run.Train(c.ctx)
	watch.finish()
	if err != nil {
		return err
	}
	return answer(c, result, func(w io.Writer) error { return printRun(w, recipe, result) })
}

// openRun makes a new run with a folder, or takes up that of --resume.
func openRun(c *call, name string, recipe *train.Recipe, o train.Observer) (*train.Run, error) {
	if folder := c.String("resume"); folder != "" {
		f, err := train.OpenFolder(folder)
		if err != nil {
			return nil, err
		}
		run, err := train.Resume(recipe, f, c.Bool("accept-changes"), o)
		if err == nil {
			logger(c).Info(fmt.Sprintf("continuing %s after step %d of %d", folder, run.Step(), recipe.Train.Steps))
		}
		return run, err
	}
	run, err := train.New(recipe, o)
	if err != nil {
		return nil, err
	}
	out := outFolder(c, name)
	err = separateFolder(out, append(sources(recipe), name))
	var f *train.Folder
	if err == nil {
		f, err = train.CreateFolder(out, c.Bool("force"))
	}
	if err == nil {
		err = run.Begin(f)
	}
	if err != nil {
		return nil, errors.Join(err, run.Close())
	}
	return run, nil
}

// outFolder is --out, or the first of runs/NAME, runs/NAME-2, … that is free.
func outFolder(c *call, recipe string) string {
	if out := c.String("out"); out != "" {
		return out
	}
	base := filepath.Join("runs", strings.TrimSuffix(filepath.Base(recipe), ".yaml"))
	path := base
	for i := 2; ; i++ {
		if c.Bool("force") || train.Vacant(path) {
			return path
		}
		path = fmt.Sprintf("%s-%d", base, i)
	}
}

// printRun is the table at the end: the network before and after.
func printRun(w io.Writer, recipe *train.Recipe, result *train.Result) error {
	header := append([]string{"training"}, recipe.Eval.Metrics...)
	var rows [][]string
	for _, name := range []string{"before", "after"} {
		if metrics, ok := result.Metrics[name]; ok {
			row := []string{name}
			for _, m := range recipe.Eval.Metrics {
				row = append(row, fmt.Sprintf("%.4f", metrics[m]))
			}
			rows = append(rows, row)
		}
	}
	if err := printTable(w, header, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d queries, each against all other test images; lone queries: %d\n%d steps in %s\nrun folder: %s\n",
		result.Queries, result.Lone, result.Steps, duration(result.Seconds), result.Folder)
	return err
}

// duration is seconds as people read them.
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// watcher shows a run's progress: what it is made of, one bar for the steps, one
// for each evaluation, and the metrics of each.
type watcher struct {
	c        *call
	metrics  []string // to print, in order
	stage    string
	progress *progress

	steps       int           // of the whole run
	first, done int           // step that this process began with, and the last one
	from        time.Time     // when the steps of this stage began
	stepping    time.Duration // spent on steps, before this stage
	evaluation  float64       // seconds of the last one
	evaluations int           // still to come
	estimated   bool
}

// begin prints what the run is made of.
func (w *watcher) begin(s train.Summary) {
	w.steps = s.Steps
	start := "random weights"
	if s.Weights != "" {
		start = "weights of " + s.Weights
	}
	log := logger(w.c)
	for _, line := range []string{
		fmt.Sprintf("train: %d images of %d classes (%s); test: %d images of %d classes (%s)", s.Train.Images, s.Train.Classes, s.Train.Name, s.Test.Images, s.Test.Classes, s.Test.Name),
		fmt.Sprintf("%s, %d parameters to train, embeddings of %d dimensions, from %s", s.Model, s.Parameters, s.Dim, start),
		fmt.Sprintf("%s, %s: %d steps of %d images, %d steps an epoch", s.Loss, s.Optimizer, s.Steps, s.Batch, s.Epoch),
		fmt.Sprintf("%s, threads: %d, %s (another number of threads rounds otherwise; train.threads sets it)", s.Device, s.Threads, s.Precision),
	} {
		log.Info(line)
	}
}

func (w *watcher) show(stage, unit string, done, total int, note string) {
	if w.stage != stage {
		w.finish()
		w.stage, w.progress = stage, newProgress(w.c, stage, unit, total)
		w.from = time.Now()
	}
	w.progress.set(done, note)
}

func (w *watcher) step(done, total int, loss float64) {
	if w.done == 0 {
		w.first = done - 1
	}
	w.done = done
	w.show("train", "steps", done, total, fmt.Sprintf("loss %.4f", loss))
	w.progress.remaining = w.left()
	if settled := done - w.first; !w.estimated && settled >= 20 && done < total {
		w.estimated = true
		logger(w.c).Info(fmt.Sprintf("about %s to go, evaluations included", w.progress.remaining.Round(time.Second)))
	}
}

// left estimates the time to the end of the run: steps at the pace of those
// taken, evaluations as long as the last one.
func (w *watcher) left() time.Duration {
	spent := w.stepping + time.Since(w.from)
	each := spent / time.Duration(max(w.done-w.first, 1))
	return time.Duration(w.steps-w.done)*each + time.Duration(float64(w.evaluations)*w.evaluation*float64(time.Second))
}

func (w *watcher) embed(done, total int) { w.show("evaluate", "images", done, total, "") }

// evaluated prints the metrics of an evaluation, and how they changed.
func (w *watcher) evaluated(e train.Evaluated) {
	w.finish()
	w.evaluation, w.evaluations = e.Seconds, e.Left
	parts := make([]string, len(w.metrics))
	for i, name := range w.metrics {
		parts[i] = fmt.Sprintf("%s %.4f", name, e.Metrics[name])
		if before, known := e.Before[name]; known {
			parts[i] += fmt.Sprintf(" (%+.4f)", e.Metrics[name]-before)
		}
	}
	logger(w.c).Info(fmt.Sprintf("step %d: %s", e.Step, strings.Join(parts, ", ")))
}

func (w *watcher) note(text string) { logger(w.c).Warn(text) }

func (w *watcher) finish() {
	if w.progress != nil {
		if w.stage == "train" {
			w.stepping += time.Since(w.from)
		}
		w.progress.finish()
		w.stage, w.progress = "", nil
	}
}
