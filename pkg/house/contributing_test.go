package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the checkout.
const root = "../.."

// update, set to anything, has the test write the files that the page shows into it.
const update = "UPDATE"

// shown is a place of the page that shows a file, or some declarations of it,
// and what stands there now.
var shown = regexp.MustCompile("(?s)<!-- shown: (\\S+)([^>]*) -->\n(\n```go\n.*?\n```\n)?")

// The page for contributors shows the files as they are, and names none that
// there is not.
func TestContributingIsTrue(t *testing.T) {
	path := filepath.Join(root, "docs", "contributing.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := shown.ReplaceAllFunc(page, func(place []byte) []byte {
		parts := shown.FindSubmatch(place)
		text, err := excerpt(filepath.Join(root, string(parts[1])), strings.Fields(string(parts[2])))
		if err != nil {
			t.Error(err)
		}
		marker, _, _ := bytes.Cut(place, []byte("\n"))
		return fmt.Appendf(nil, "%s\n\n```go\n%s\n```\n", marker, strings.TrimSpace(text))
	})
	if os.Getenv(update) != "" {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(page, want) {
		t.Errorf("%s shows files as they no longer are; run: UPDATE=1 go test ./pkg/house -run Contributing", path)
	}
	prose := shown.ReplaceAll(page, nil)
	for _, name := range regexp.MustCompile("`([a-z_./]+/[a-z_./]+)`").FindAllSubmatch(prose, -1) {
		file := string(name[1])
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Errorf("%s is named, but there is none", file)
		}
	}
}

// excerpt is a file, or the declarations of it that are named, functions by
// their name or Type.Method.
func excerpt(path string, names []string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil || len(names) == 0 {
		return string(text), err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return "", err
	}
	found := map[string]string{}
	for _, d := range file.Decls {
		from := d.Pos()
		if doc := docOf(d); doc != nil {
			from = doc.Pos()
		}
		found[nameOf(d)] = string(text[files.Position(from).Offset:files.Position(d.End()).Offset])
	}
	var parts []string
	for _, name := range names {
		if found[name] == "" {
			return "", fmt.Errorf("%s has no %s", path, name)
		}
		parts = append(parts, found[name])
	}
	return strings.Join(parts, "\n\n"), nil
}

func docOf(d ast.Decl) *ast.CommentGroup {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

func nameOf(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		return fmt.Sprintf("%s.%s", receiver, d.Name.Name)
	case *ast.GenDecl:
		if len(d.Specs) == 1 {
			if t, ok := d.Specs[0].(*ast.TypeSpec); ok {
				return t.Name.Name
			}
		}
	}
	return ""
}
