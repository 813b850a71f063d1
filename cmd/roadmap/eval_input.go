package main

import (
	"path/filepath"
	"slices"
	"strings"

	"roadmap/eval"
	"roadmap/pkg/fault"
	"roadmap/pkg/tensorio"
	"roadmap/pkg/train"
)

// sets are the embeddings and labels that options name.
type sets struct {
	in    eval.Input
	names []string // of the classes; nil: they are numbers
	files []*tensorio.Embeddings
}

func (s *sets) close() {
	for _, f := range s.files {
		_ = f.Close() // only read
	}
}

// candidates is the number of gallery items ranked for each query.
func (s *sets) candidates() int {
	if s.in.Gallery != nil {
		return s.in.Gallery.Rows()
	}
	return s.in.Query.Rows() - 1
}

// name is the label of a query in print.
func (s *sets) name(query int) string { return s.names[s.in.QueryLabels[query]] }

// openSets opens what eval's options name: files, with labels or without, or
// images to be embedded.
func openSets(c *call, labelled bool) (*sets, error) {
	if !c.IsSet("embeddings") {
		return embedSets(c)
	}
	s := &sets{}
	if err := s.open(c, labelled); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *sets) open(c *call, labelled bool) error {
	query, err := s.embeddings(c.String("embeddings"))
	if err != nil {
		return err
	}
	var gallery *tensorio.Embeddings
	if path := c.String("gallery"); path != "" {
		if gallery, err = s.embeddings(path); err != nil {
			return err
		}
		s.in.Gallery = eval.Stored(path, gallery.Tensor)
	}
	s.in.Query = eval.Stored(query.Path, query.Tensor)
	if !labelled {
		return nil
	}
	labels, err := labelsOf(query, "labels", c.String("labels"))
	if err != nil {
		return err
	}
	lists := []tensorio.Labels{labels}
	if gallery != nil {
		if labels, err = labelsOf(gallery, "gallery-labels", c.String("gallery-labels")); err != nil {
			return err
		}
		lists = append(lists, labels)
	}
	level := s.number("", lists)
	s.in.QueryLabels, s.in.GalleryLabels = level.Query, level.Gallery
	for _, spec := range c.StringSlice("level") {
		if err := s.level(c, spec); err != nil {
			return err
		}
	}
	return nil
}

// embeddings opens a file and keeps it open.
func (s *sets) embeddings(path string) (*tensorio.Embeddings, error) {
	e, err := tensorio.OpenEmbeddings(path)
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, e)
	return e, nil
}

// labelsOf reads the labels of embeddings: from the file that an option names,
// or from that of the embeddings.
func labelsOf(e *tensorio.Embeddings, option, path string) (tensorio.Labels, error) {
	if path == "" {
		labels, err := e.Labels()
		switch {
		case err != nil:
			return tensorio.Labels{}, err
		case labels == nil:
			return tensorio.Labels{}, fault.Inputf("%s holds no labels; give them with --%s", e.Path, option)
		}
		return *labels, nil
	}
	labels, err := tensorio.ReadLabels(path)
	if err == nil && labels.Len() != e.Shape[0] {
		err = fault.Inputf("%s: %d labels, but %s has %d rows", path, labels.Len(), e.Path, e.Shape[0])
	}
	return labels, err
}

// number numbers labels of queries and gallery jointly.
func (s *sets) number(name string, lists []tensorio.Labels) eval.Level {
	classes, names := tensorio.Number(lists...)
	if name == "" {
		s.names = names
	}
	level := eval.Level{Name: name, Query: classes[0]}
	if len(classes) > 1 {
		level.Gallery = classes[1]
	}
	return level
}

// level reads --level: a column of the labels' .csv, or NAME=FILE[,GALLERY_FILE].
func (s *sets) level(c *call, spec string) error {
	name, files, given := strings.Cut(spec, "=")
	paths := strings.Split(files, ",")
	sides := 1
	if s.in.Gallery != nil {
		sides = 2
	}
	switch {
	case name == "":
		return fault.Inputf("--level %s: the level has no name; give a column, or NAME=FILE", spec)
	case given && (len(paths) != sides || slices.Contains(paths, "")):
		return fault.Inputf("--level %s: give %d file(s), one for the queries and one for a gallery", spec, sides)
	}
	var lists []tensorio.Labels
	for side := range sides {
		path := []string{c.String("labels"), c.String("gallery-labels")}[side]
		var labels tensorio.Labels
		var err error
		if given {
			path = paths[side]
			labels, err = tensorio.ReadLabels(path)
		} else {
			labels, err = column(path, name)
		}
		if err != nil {
			return err
		}
		if of := s.files[side]; labels.Len() != of.Shape[0] {
			return fault.Inputf("--level %s: %s has %d labels, but %s has %d rows", name, path, labels.Len(), of.Path, of.Shape[0])
		}
		lists = append(lists, labels)
	}
	for _, l := range s.in.Levels {
		if l.Name == name {
			return fault.Inputf("--level %s is given twice", name)
		}
	}
	s.in.Levels = append(s.in.Levels, s.number(name, lists))
	return nil
}

// column reads the labels in one column of a .csv.
func column(path, name string) (tensorio.Labels, error) {
	if ext := filepath.Ext(path); ext != ".csv" && ext != ".tsv" {
		return tensorio.Labels{}, fault.Inputf("--level %s names a column, but %q is no .csv or .tsv; give --level %s=FILE", name, path, name)
	}
	table, err := tensorio.ReadTable(path, name)
	if err != nil {
		return tensorio.Labels{}, err
	}
	return table.Labels(name)
}

// embedSets embeds the images that the options name; their dataset gives the
// labels and the further levels.
func embedSets(c *call) (*sets, error) {
	n, err := openNetwork(c, "")
	if err != nil {
		return nil, err
	}
	defer n.close()
	rows, err := n.images.All(c.ctx, n.model, n.device)
	if err != nil {
		return nil, err
	}
	in, err := train.Input(n.dataset, rows, n.model.Dim())
	if err != nil {
		return nil, err
	}
	s := &sets{in: in, names: n.dataset.Classes}
	return s, nil
}
