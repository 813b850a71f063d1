package tensorio

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"roadmap/pkg/fault"
	"roadmap/pkg/files"
	"roadmap/pkg/registry"
)

// textLimit and rowLimit bound what a text file of labels may make us hold.
const (
	textLimit = 256 << 20 // bytes
	rowLimit  = 1 << 25
)

// Labels say of each row which class it belongs to: whole numbers or text.
type Labels struct {
	numbers []int64
	words   []string // used instead of numbers when not nil
}

// NumberLabels are labels that are whole numbers.
func NumberLabels(numbers []int64) Labels { return Labels{numbers: numbers} }

// TextLabels are labels read from text. If every one is a whole number as a
// program would print it ("7", and "7.0" or "7e+00" as numpy.savetxt does),
// they are numbers; "007" makes them all words. Numbers that are not whole are
// an input error that names the row (from 0).
func TextLabels(words []string) (Labels, error) {
	if numbers, ok := plainNumbers(words); ok {
		return Labels{numbers: numbers}, nil
	}
	numbers := make([]int64, 0, len(words))
	fraction := -1
	for i, word := range words {
		x, err := strconv.ParseFloat(word, 64)
		if err != nil || !strings.ContainsAny(word, ".eE") || strings.ContainsAny(word, "xXpPnN_") {
			return Labels{words: words}, nil
		}
		n, whole := wholeNumber(x)
		if !whole && fraction < 0 {
			fraction = i
		}
		numbers = append(numbers, n)
	}
	if fraction >= 0 {
		return Labels{}, fault.Inputf("row %d (from 0): the label %s is not a whole number", fraction, clip(words[fraction]))
	}
	return Labels{numbers: numbers}, nil
}

// plainNumbers reads canonical decimal numbers.
func plainNumbers(words []string) ([]int64, bool) {
	numbers := make([]int64, len(words))
	for i, word := range words {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || strconv.FormatInt(n, 10) != word {
			return nil, false
		}
		numbers[i] = n
	}
	return numbers, true
}

// wholeNumber converts x if it is an integer that a float64 holds exactly.
func wholeNumber(x float64) (int64, bool) {
	if x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, false
	}
	return int64(x), true
}

// Len is the number of rows.
func (l Labels) Len() int { return max(len(l.numbers), len(l.words)) }

// Numbers returns the labels as numbers; it is false if they are words.
func (l Labels) Numbers() ([]int64, bool) { return l.numbers, l.words == nil }

// Text is the label of row i in print.
func (l Labels) Text(i int) string {
	if l.words != nil {
		return l.words[i]
	}
	return strconv.FormatInt(l.numbers[i], 10)
}

// Number numbers the classes of several lists of labels jointly, from 0 in
// ascending order (of the numbers; of the words, if any list has words), so
// that equal labels get equal numbers across the lists. names[c] is class c.
func Number(lists ...Labels) (classes [][]int64, names []string) {
	classes = make([][]int64, len(lists))
	if slices.ContainsFunc(lists, func(l Labels) bool { return l.words != nil }) {
		all := make([][]string, len(lists))
		for i, l := range lists {
			all[i] = make([]string, l.Len())
			for row := range all[i] {
				all[i][row] = l.Text(row)
			}
		}
		words := rankInto(classes, all)
		return classes, words
	}
	all := make([][]int64, len(lists))
	for i, l := range lists {
		all[i] = l.numbers
	}
	for _, n := range rankInto(classes, all) {
		names = append(names, strconv.FormatInt(n, 10))
	}
	return classes, names
}

// rankInto fills classes with the place of each value among the distinct ones,
// which it returns sorted.
func rankInto[T cmp.Ordered](classes [][]int64, lists [][]T) []T {
	var distinct []T
	seen := map[T]int64{}
	for _, list := range lists {
		for _, v := range list {
			if _, known := seen[v]; !known {
				seen[v] = 0
				distinct = append(distinct, v)
			}
		}
	}
	slices.Sort(distinct)
	for i, v := range distinct {
		seen[v] = int64(i)
	}
	for i, list := range lists {
		classes[i] = make([]int64, len(list))
		for row, v := range list {
			classes[i][row] = seen[v]
		}
	}
	return distinct
}

// ReadLabels reads one label a row: from an .npy [N] of whole numbers, the
// tensor `labels` of a .safetensors, .npz or .pth, the lines of a .txt, or a .csv
// (.tsv: with tabs) of one column or with a header that has a column `label`.
func ReadLabels(path string) (Labels, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".csv", ".tsv":
		t, err := ReadTable(path)
		if err != nil {
			return Labels{}, err
		}
		return t.Labels("")
	case ".txt":
		return readLines(path)
	}
	f, err := Open(path)
	if err != nil {
		return Labels{}, err
	}
	defer f.Close()
	return f.labels()
}

// LabelsName and EmbeddingsName are the tensors of an embeddings file.
const (
	LabelsName     = "labels"
	EmbeddingsName = "embeddings"
)

// labels reads the tensor of that name, or the only one, into memory of its own.
func (f *File) labels() (Labels, error) {
	t, err := f.Tensor(f.only(LabelsName))
	if err != nil {
		return Labels{}, err
	}
	if len(t.Shape) != 1 && (len(t.Shape) != 2 || t.Shape[1] != 1) {
		return Labels{}, fault.Inputf("%s: the labels have the shape %s; one number a row, [N], is needed", f.Path, shapeText(t.Shape))
	}
	numbers, err := labelNumbers(t)
	if err != nil {
		return Labels{}, fault.Inputf("%s: %w", f.Path, err)
	}
	return Labels{numbers: numbers}, nil
}

// labelNumbers copies integers, and floats that are whole.
func labelNumbers(t Tensor) ([]int64, error) {
	if !t.DType.IsFloat() {
		numbers, err := t.Int64s()
		return slices.Clone(numbers), err
	}
	values, err := t.Float64s()
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, len(values))
	for i, x := range values {
		n, whole := wholeNumber(x)
		if !whole {
			return nil, fmt.Errorf("row %d (from 0): the label %v is not a whole number; save the labels as int64", i, x)
		}
		numbers[i] = n
	}
	return numbers, nil
}

// readText reads a text file whole, without a byte order mark.
func readText(path string) (string, error) {
	m, err := openMapping(path)
	if err != nil {
		return "", err
	}
	defer m.close()
	data := bytes.TrimPrefix(m.data, []byte("\xef\xbb\xbf"))
	switch {
	case len(data) > textLimit:
		return "", fault.Inputf("%s: %d bytes of text are more than the %d that labels may take; use .npy", path, len(data), textLimit)
	case bytes.IndexByte(data, 0) >= 0:
		return "", fault.Inputf("%s: not UTF-8 text; save it as such, or as .npy", path)
	case !utf8.Valid(data):
		number, line := files.NotUTF8(data)
		return "", fault.Inputf("%s:%d: %s is not UTF-8 text; save the file as such (iconv -f latin1 -t utf8)", path, number, line)
	case len(bytes.TrimSpace(data)) == 0:
		return "", fault.Inputf("%s: the file is empty; one label a row is needed", path)
	}
	return string(data), nil
}

// readLines reads a .txt, one label a line; blank lines may only end it.
func readLines(path string) (Labels, error) {
	text, err := readText(path)
	if err != nil {
		return Labels{}, err
	}
	var words []string
	blank := 0 // the number of the last blank line
	row := 0
	for line := range strings.Lines(text) {
		row++
		word := strings.TrimSpace(line)
		if word == "" {
			blank = max(blank, row)
			continue
		}
		if blank > 0 {
			return Labels{}, fault.Inputf("%s:%d: a blank line among the labels; every row needs one", path, blank)
		}
		if len(words) == rowLimit {
			return Labels{}, fault.Inputf("%s: more than %d rows; use .npy", path, rowLimit)
		}
		words = append(words, word)
	}
	labels, err := TextLabels(words)
	if err != nil {
		return Labels{}, fault.Inputf("%s: %w", path, err)
	}
	return labels, nil
}

// Table is a .csv or .tsv by columns, such as the one that `embed` writes beside its
// embeddings (row, path, label, class, and the dataset's further levels).
type Table struct {
	Path    string
	Columns []string   // names from the header; nil when the file has none
	Cells   [][]string // by column, then row
}

// rowColumn is the column that says which row of the embeddings a line is about.
const rowColumn = "row"

// The columns of an embeddings table that are no level of labels of their own.
var plainColumns = []string{rowColumn, "path", "class", "is_query", "is_gallery", "sequence"}

// labelColumn is the column of labels.
const labelColumn = "label"

// ReadTable reads a .csv (RFC 4180; of a .tsv the separator is a tab) all of
// whose rows have the same width. Its first line is a header if one of its
// fields is `label` or wanted. Lines of a table with a column `row` are put into
// the order that it says, whatever order they stand in.
func ReadTable(path string, wanted ...string) (*Table, error) {
	text, err := readText(path)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(strings.NewReader(text))
	r.ReuseRecord = true
	if strings.EqualFold(filepath.Ext(path), ".tsv") {
		r.Comma = '\t'
	}
	t := &Table{Path: path}
	var lines []int // of the rows
	for first := true; ; first = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fault.Inputf("%s: %w", path, err) // names the line and column
		}
		if first {
			t.Cells = make([][]string, len(record))
			if slices.ContainsFunc(append(wanted, labelColumn), func(name string) bool { return slices.Contains(record, name) }) {
				t.Columns = slices.Clone(record)
				continue
			}
		}
		if len(t.Cells[0]) == rowLimit {
			return nil, fault.Inputf("%s: more than %d rows; use .npy", path, rowLimit)
		}
		line, _ := r.FieldPos(0)
		lines = append(lines, line)
		for i, cell := range record {
			t.Cells[i] = append(t.Cells[i], cell)
		}
	}
	if len(t.Cells[0]) == 0 {
		return nil, fault.Inputf("%s: a header without rows", path)
	}
	return t, t.arrange(lines)
}

// arrange puts the rows into the order of the column `row`, if there is one:
// a table that was sorted by something else still belongs to its embeddings.
func (t *Table) arrange(lines []int) error {
	column := slices.Index(t.Columns, rowColumn)
	if column < 0 {
		return nil
	}
	from := make([]int, len(lines)) // of each row: its place in the file
	for i := range from {
		from[i] = -1
	}
	for i, cell := range t.Cells[column] {
		row, err := strconv.Atoi(cell)
		switch {
		case err != nil || row < 0 || row >= len(lines):
			return fault.Inputf("%s:%d: row is %q; of %d embeddings the rows are 0 to %d: take the file that embed wrote, or drop the column if it means something else",
				t.Path, lines[i], clip(cell), len(lines), len(lines)-1)
		case from[row] >= 0:
			return fault.Inputf("%s:%d: row is %d, as in line %d; each row of the embeddings has one line", t.Path, lines[i], row, lines[from[row]])
		}
		from[row] = i
	}
	if slices.IsSorted(from) {
		return nil
	}
	for c, cells := range t.Cells {
		arranged := make([]string, len(cells))
		for row, i := range from {
			arranged[row] = cells[i]
		}
		t.Cells[c] = arranged
	}
	return nil
}

// Column returns the cells under a name of the header.
func (t *Table) Column(name string) ([]string, error) {
	if i := slices.Index(t.Columns, name); i >= 0 {
		return t.Cells[i], nil
	}
	if t.Columns == nil {
		return nil, fault.Inputf("%s: has no header, so no column %q; name the columns in the first line, one of them %s", t.Path, name, name)
	}
	hint := ""
	if near, ok := registry.Nearest(name, t.Columns); ok {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return nil, fault.Inputf("%s: no column %q%s (the header has %s)", t.Path, name, hint, strings.Join(t.Columns, ", "))
}

// Labels reads the labels in a column; "" is the column `label`, or the only
// one of a file without a header.
func (t *Table) Labels(column string) (Labels, error) {
	cells := t.Cells[0]
	if column != "" || t.Columns != nil {
		var err error
		if cells, err = t.Column(cmp.Or(column, labelColumn)); err != nil {
			return Labels{}, err
		}
	} else if len(t.Cells) > 1 {
		return Labels{}, fault.Inputf("%s: %d columns and no header; name the columns in the first line, that of the labels %s",
			t.Path, len(t.Cells), labelColumn)
	}
	if i := slices.Index(cells, ""); i >= 0 {
		return Labels{}, fault.Inputf("%s: row %d (from 0) has no label", t.Path, i)
	}
	labels, err := TextLabels(cells)
	if err != nil {
		return Labels{}, fault.Inputf("%s: %w", t.Path, err)
	}
	return labels, nil
}

// Levels names the columns that hold labels: `label` first, then the further
// levels of a hierarchy, coarser classes of the same rows.
func (t *Table) Levels() []string {
	levels := []string{labelColumn}
	for _, name := range t.Columns {
		if name != labelColumn && !slices.Contains(plainColumns, name) {
			levels = append(levels, name)
		}
	}
	return levels
}
