package sqlite

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryStatementFitsTheSchema prepares each against a freshly migrated database.
func TestEveryStatementFitsTheSchema(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "statements.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("sqlite", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	prepared := 0
	for _, name := range pkg.Scope().Names() {
		if !strings.HasPrefix(name, "sql") {
			continue
		}
		text := constant.StringVal(pkg.Scope().Lookup(name).(*types.Const).Val())
		statement, more, err := s.writer.PrepareTransient(text)
		if err != nil || more > 0 {
			t.Errorf("%s: %v, and %d bytes follow it", name, err, more)
			continue
		}
		if err := statement.Finalize(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		prepared++
	}
	if prepared < 30 {
		t.Errorf("only %d statements were found", prepared)
	}
}

// TestStatementsStandInOnePlace: one that stands elsewhere would not be prepared above.
func TestStatementsStandInOnePlace(t *testing.T) {
	statement := regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|WITH)\b`)
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if path == "statements.go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING && statement.MatchString(text.Value[1:]) {
				t.Errorf("%s: move this statement to statements.go: %s", files.Position(text.Pos()), text.Value)
			}
			return true
		})
	}
}
