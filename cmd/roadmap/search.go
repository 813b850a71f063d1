package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"roadmap/eval"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
)

func init() {
	register(searchVerb)
	computing["search"] = true
}

func searchVerb() *cli.Command {
	return &cli.Command{
		Name:  "search",
		Usage: "find the exact nearest neighbours",
		Description: "Finds, for every query, the k gallery items of the highest score, exactly; equal scores go by\n" +
			"gallery row. Without --gallery the queries are the gallery, and no query finds its own row.\n\n" +
			"--out X.npy gets the gallery rows, int64 [N, k] from 0, and X.scores.npy beside it the scores, float32;\n" +
			"--out X.csv gets a line a neighbour, with the paths of --query-paths and --gallery-paths (a .csv with a\n" +
			"column path, as embed writes beside its embeddings).\n\n" +
			"Examples:\n  roadmap search --queries query.npy --gallery gallery.npy -k 10 --out found.npy\n" +
			"  roadmap search --queries photos.npy -k 5 --query-paths photos.csv --out twins.csv",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "queries", Required: true, Usage: "embeddings, .npy [N, d] or .safetensors"},
			&cli.StringFlag{Name: "gallery", Usage: "embeddings to be found, where they are not the queries"},
			&cli.IntFlag{Name: "k", Value: 10, Usage: "neighbours of each query"},
			&cli.StringFlag{Name: "out", Required: true, Usage: "file to write: .npy or .csv"},
			&cli.StringFlag{Name: "query-paths", Usage: ".csv with the queries' paths"},
			&cli.StringFlag{Name: "gallery-paths", Usage: ".csv with the gallery's paths (default without --gallery: --query-paths)"},
			&cli.StringFlag{Name: "distance", Value: string(eval.Cosine), Usage: "cosine or l2"},
			&cli.StringFlag{Name: "precision", Value: "exact", Usage: "exact, or float32: no integers to screen with; the same neighbours"},
			memoryFlag(),
			&cli.StringFlag{Name: "device", Value: "auto", Usage: "auto, cpu or cuda:0; the same neighbours"},
			&cli.BoolFlag{Name: "force", Usage: "replace --out if it is there"},
			quietFlag(), jsonFlag(),
		},
		Action: action(searchAction),
	}
}

// searched is the result of the verb.
type searched struct {
	Out     []string `json:"out"`
	Queries int      `json:"queries"`
	Gallery int      `json:"gallery"`
	K       int      `json:"k"`
	Dim     int      `json:"dim"`
	Seconds float64  `json:"seconds"`
}

func searchAction(c *call) error {
	if _, err := positional(c, 0, 0); err != nil {
		return err
	}
	out, err := searchOut(c)
	if err != nil {
		return err
	}
	o, err := comparison(c)
	if err != nil {
		return err
	}
	begin := time.Now()
	s := &sets{}
	defer s.close()
	query, err := s.embeddings(c.String("queries"))
	if err != nil {
		return err
	}
	result := searched{Out: out, Queries: query.Shape[0], Gallery: query.Shape[0], K: c.Int("k"), Dim: query.Shape[1]}
	s.in.Query = eval.Stored(query.Path, query.Tensor)
	if path := c.String("gallery"); path != "" {
		gallery, err := s.embeddings(path)
		if err != nil {
			return err
		}
		s.in.Gallery = eval.Stored(path, gallery.Tensor)
		result.Gallery = gallery.Shape[0]
	}
	if n := s.candidates(); result.K < 1 || result.K > n {
		return usageError(c.FullName(), "-k is %d; there are %d candidates: give a number from 1 to %d", result.K, n, n)
	}
	bar := newProgress(c, "compare", "pairs", 0)
	o.Progress = bar.pairs
	if filepath.Ext(out[0]) == ".csv" {
		err = s.searchCSV(c, out[0], result, o)
	} else {
		err = s.searchNPY(c, out, o)
	}
	if err != nil {
		return err
	}
	bar.finish()
	result.Seconds = time.Since(begin).Seconds()
	return answer(c, result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d neighbours of %d queries among %d, %.2f s\n", strings.Join(out, ", "), result.K, result.Queries, result.Gallery, result.Seconds)
		return err
	})
}

// searchOut names the files to write and refuses those that are there.
func searchOut(c *call) ([]string, error) {
	out := []string{c.String("out")}
	switch filepath.Ext(out[0]) {
	case ".npy":
		out = append(out, strings.TrimSuffix(out[0], ".npy")+".scores.npy")
		if c.IsSet("query-paths") || c.IsSet("gallery-paths") {
			return nil, usageError(c.FullName(), "--query-paths and --gallery-paths go into a .csv: give --out X.csv")
		}
	case ".csv":
	default:
		return nil, usageError(c.FullName(), "--out %s: the name must end in .npy or .csv", out[0])
	}
	if err := separate(c, out); err != nil || c.Bool("force") {
		return out, err
	}
	for _, path := range out {
		if _, err := os.Stat(path); err == nil {
			return nil, fault.Inputf("%s is there already; choose another --out or replace it with --force", path)
		}
	}
	return out, nil
}

// searchNPY writes rows and scores, [N, k] each.
func (s *sets) searchNPY(c *call, out []string, o eval.Options) error {
	k := c.Int("k")
	files := make([]*tensorio.NPYWriter, 2)
	for i, dtype := range []tensorio.DType{tensorio.Int64, tensorio.Float32} {
		file, err := tensorio.CreateNPY(out[i], dtype, []int{k}, c.Bool("force"))
		if err != nil {
			return err
		}
		defer file.Discard()
		files[i] = file
	}
	rows, scores := make([]int64, k), make([]float32, k)
	err := eval.Search(c.ctx, s.in.Query, s.in.Gallery, k, o, func(_ int, found []eval.Neighbour) error {
		for i, f := range found {
			rows[i], scores[i] = int64(f.Item), f.Score
		}
		if err := files[0].Append(tensorio.Of(rows, 1, k)); err != nil {
			return err
		}
		return files[1].Append(tensorio.Of(scores, 1, k))
	})
	if err != nil {
		return err
	}
	if err := files[1].Commit(); err != nil {
		return err
	}
	return files[0].Commit()
}

// searchCSV writes query, rank, item and score, a line a neighbour, and the
// paths that are known.
func (s *sets) searchCSV(c *call, out string, r searched, o eval.Options) error {
	queryPaths, err := paths(c.String("query-paths"), r.Queries)
	if err != nil {
		return err
	}
	galleryPaths := queryPaths
	if c.IsSet("gallery") || c.IsSet("gallery-paths") {
		if galleryPaths, err = paths(c.String("gallery-paths"), r.Gallery); err != nil {
			return err
		}
	}
	header := []string{"query", "rank", "item", "score"}
	if queryPaths != nil {
		header = append(header, "query_path")
	}
	if galleryPaths != nil {
		header = append(header, "path")
	}
	return tensorio.Save(out, c.Bool("force"), func(w io.Writer) error {
		table := csv.NewWriter(w)
		table.UseCRLF = true
		if err := table.Write(header); err != nil {
			return err
		}
		err := eval.Search(c.ctx, s.in.Query, s.in.Gallery, r.K, o, func(query int, found []eval.Neighbour) error {
			for i, f := range found {
				line := []string{strconv.Itoa(query), strconv.Itoa(i + 1), strconv.Itoa(int(f.Item)), strconv.FormatFloat(float64(f.Score), 'g', -1, 32)}
				if queryPaths != nil {
					line = append(line, queryPaths[query])
				}
				if galleryPaths != nil {
					line = append(line, galleryPaths[f.Item])
				}
				if err := table.Write(line); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		table.Flush()
		return table.Error()
	})
}

// paths reads the column path of a .csv; no name is no paths.
func paths(name string, rows int) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	table, err := tensorio.ReadTable(name, "path")
	if err != nil {
		return nil, err
	}
	column, err := table.Column("path")
	if err == nil && len(column) != rows {
		err = fault.Inputf("%s: %d paths for %d embeddings", name, len(column), rows)
	}
	return column, err
}
