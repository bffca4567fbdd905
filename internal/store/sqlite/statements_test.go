package sqlite

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// statements are all of statements.go by their names.
func statements(t *testing.T) map[string]string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "statements.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("sqlite", files, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		if strings.HasPrefix(name, "sql") {
			out[name] = constant.StringVal(pkg.Scope().Lookup(name).(*types.Const).Val())
		}
	}
	if len(out) < 30 {
		t.Fatalf("only %d statements were found", len(out))
	}
	return out
}

// TestEveryStatementFitsTheSchema prepares each against a freshly migrated database.
func TestEveryStatementFitsTheSchema(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, text := range statements(t) {
		statement, more, err := s.writer.PrepareTransient(text)
		if err != nil || more > 0 {
			t.Errorf("%s: %v, and %d bytes follow it", name, err, more)
			continue
		}
		if err := statement.Finalize(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoStatementIsPlannedAnew: SQLite may look at what is bound to a bare parameter when it plans a statement, and then plans it
// anew, at several times its cost, whenever another value is bound. An authorizer sees each planning.
func TestNoStatementIsPlannedAnew(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, text := range statements(t) {
		statement, _, err := s.writer.PrepareTransient(text)
		if err != nil {
			t.Fatal(err)
		}
		planned := 0
		if err := s.writer.SetAuthorizer(sqlite.AuthorizeFunc(func(sqlite.Action) sqlite.AuthResult { planned++; return sqlite.AuthResultOK })); err != nil {
			t.Fatal(err)
		}
		for round := range 6 {
			if round == 1 {
				planned = 0 // a new authorizer has every statement planned once more
			}
			for i := range statement.BindParamCount() {
				if round%2 == 0 {
					statement.BindInt64(i+1, int64(round/2))
				} else {
					statement.BindText(i+1, strings.Repeat("x", round))
				}
			}
			// Many can't be carried out with such values, but a constraint speaks only after the plan.
			_, _ = statement.Step()
			_ = statement.Reset()
		}
		if err := s.writer.SetAuthorizer(nil); err != nil {
			t.Fatal(err)
		}
		if err := statement.Finalize(); err != nil {
			t.Error(err)
		}
		if planned > 0 {
			t.Errorf("%s is planned anew when other values are bound: write +? where a parameter is compared or limits", name)
		}
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

// TestListsFindWhatIsRare: lists by a key and by a status other than completed find their rows by an index that has such rows alone.
func TestListsFindWhatIsRare(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for index, q := range map[string]store.RunQuery{"runs_by_key": {Key: "k"}, "runs_by_status": {Status: workflow.Failed}, "runs_by_workflow": {Workflow: "w"}} {
		text, _ := selectRecords(q)
		if plan := planOf(t, s, text); !strings.Contains(plan, "USING INDEX "+index) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s is not used:\n%s", index, plan)
		}
	}
}

// TestListsOfTheNewestSortNothing: a page of what an environment has takes what its rows take, however many are before them.
func TestListsOfTheNewestSortNothing(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lists := map[string]string{"sqlSelectEvents": sqlSelectEvents, "sqlSelectEventsNamed": sqlSelectEventsNamed, "sqlSelectDeliveries": sqlSelectDeliveries}
	for _, q := range []store.RunQuery{{}, {Before: "run_1"}, {App: "a"}, {Status: workflow.Completed}, {Live: true}, {App: "a", Live: true, Before: "run_1"}, {Workflow: "w", Before: "run_1"}} {
		lists[fmt.Sprintf("%+v", q)], _ = selectRecords(q)
	}
	for name, text := range lists {
		if plan := planOf(t, s, text); strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s sorts:\n%s", name, plan)
		}
	}
}

// TestAChildIsFoundAmongItsSiblings: a run that has ten thousand forgets them one after the other.
func TestAChildIsFoundAmongItsSiblings(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, text := range map[string]string{"sqlSelectInvoke": sqlSelectInvoke, "sqlMarkParents": sqlMarkParents} {
		if plan := planOf(t, s, text); !strings.Contains(plan, "waits_children (child=?)") {
			t.Errorf("%s goes through all of a run's waits:\n%s", name, plan)
		}
	}
}

// planOf says how a statement is carried out.
func planOf(t *testing.T, s *Store, text string) (plan string) {
	t.Helper()
	err := query(s.writer, "EXPLAIN QUERY PLAN "+text, nil, func(r *scanner) error {
		r.int()
		r.int()
		r.int()
		plan += r.text() + "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestWhatIsThereIsFoundAmongAllThatIsWaitedFor: each pass of the matcher looks for it, however many waits are open.
func TestWhatIsThereIsFoundAmongAllThatIsWaitedFor(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for index, text := range map[string]string{"waits_unlooked": sqlWaitsUnlooked, "waits_kin": sqlWaitsOfKin, "waits_posted": sqlWaitsFulfilled} {
		if plan := planOf(t, s, text); !strings.Contains(plan, "USING INDEX "+index) || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s is not used:\n%s", index, plan)
		}
	}
}
