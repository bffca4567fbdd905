package postgres

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

	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// statementFiles hold all statements.
var statementFiles = []string{"statements.go", "statements_write.go"}

// statements are all of those files by their names.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range statementFiles {
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	pkg, err := new(types.Config).Check("postgres", files, parsed, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if strings.HasPrefix(name, "sql") {
			out[name] = constant.StringVal(pkg.Scope().Lookup(name).(*types.Const).Val())
		}
	}
	if len(out) < 80 {
		t.Fatalf("only %d statements were found", len(out))
	}
	return out
}

// TestEveryStatementFitsTheSchema prepares each against a freshly migrated database.
func TestEveryStatementFitsTheSchema(t *testing.T) {
	server := pgtest.Shared(t)
	s, err := Open(t.Context(), server.URL(server.Database(t, pgtest.Kind{Name: "bare", Prepare: func(string) error { return nil }, Empty: "DROP OWNED BY CURRENT_USER"})))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for name, text := range statements(t) {
		if _, err := conn.Conn().PgConn().Prepare(t.Context(), "", text, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStatementsStandInOnePlace: one that stands elsewhere would not be prepared above.
func TestStatementsStandInOnePlace(t *testing.T) {
	statement := regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|BEGIN|SET)\b`)
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasPrefix(path, "statements") || strings.HasSuffix(path, "_test.go") {
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
