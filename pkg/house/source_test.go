package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is what the import paths of the project's own packages begin with.
const module = "roadmap/"

// source is one parsed Go file of the project.
type source struct {
	path  string // from the checkout's root, with slashes
	file  *ast.File
	files *token.FileSet
}

// read parses every Go file below root, as `go build ./...` sees them: without
// hidden folders and testdata.
func read(root fs.FS) ([]source, error) {
	var project []source
	files := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || path.Ext(base) != ".go":
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		project = append(project, source{name, file, files})
		return nil
	})
	return project, err
}

func (s source) folder() string { return path.Dir(s.path) }

// pkg is the package of the list that the file belongs to, "" for none.
func (s source) pkg() string {
	home, _ := pkgOf(s.folder())
	return home.folder
}

// test tells whether the file never becomes part of the program.
func (s source) test() bool {
	return strings.HasSuffix(s.path, "_test.go") || strings.HasSuffix(s.folder(), "test")
}

// at is the place of a node, as file:line.
func (s source) at(node ast.Node) string {
	position := s.files.Position(node.Pos())
	return fmt.Sprintf("%s:%d", s.path, position.Line)
}

func imported(spec *ast.ImportSpec) string {
	importPath, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
	return importPath
}

// called is the name by which the file knows the package, "" if it does not.
func (s source) called(importPath string) string {
	for _, spec := range s.file.Imports {
		if imported(spec) != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		base := path.Base(importPath)
		if strings.HasPrefix(base, "v") && strings.Trim(base[1:], "0123456789") == "" {
			base = path.Base(path.Dir(importPath))
		}
		return base
	}
	return ""
}

// uses finds the names of the package from (of the language, where from is
// empty) that the file mentions; each is named as it stands in the file.
func (s source) uses(from string, names []string) []*ast.Ident {
	var found []*ast.Ident
	local := s.called(from)
	if from != "" && local == "" {
		return nil
	}
	ast.Inspect(s.file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			if of, ok := node.X.(*ast.Ident); ok && from != "" && of.Name == local && slices.Contains(names, node.Sel.Name) {
				found = append(found, &ast.Ident{NamePos: node.Pos(), Name: path.Base(strings.TrimSuffix(from, "/v2")) + "." + node.Sel.Name})
			}
		case *ast.CallExpr:
			if of, ok := node.Fun.(*ast.Ident); ok && from == "" && slices.Contains(names, of.Name) {
				found = append(found, of)
			}
		}
		return true
	})
	return found
}

// understood are methods whose meaning the language has fixed.
var understood = []string{"String", "Error", "Unwrap", "Len", "Less", "Swap"}

// undocumented finds the exported names that no comment stands above: of a
// group of constants, variables or types, the group's comment counts for all.
func (s source) undocumented() []*ast.Ident {
	var found []*ast.Ident
	note := func(name *ast.Ident, comments ...*ast.CommentGroup) {
		if name.IsExported() && !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil }) {
			found = append(found, name)
		}
	}
	for _, declaration := range s.file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) && !slices.Contains(understood, d.Name.Name) {
				note(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					note(spec.Name, d.Doc, spec.Doc, spec.Comment)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						note(name, d.Doc, spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
	return found
}

// receiver is the name of the type that a method belongs to.
func receiver(method *ast.FuncDecl) string {
	kind := method.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name
		default:
			return ""
		}
	}
}
