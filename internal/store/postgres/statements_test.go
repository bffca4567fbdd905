package postgres

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// statementFiles hold all statements.
var statementFiles = []string{"statements.go", "statements_write.go", "statements_examine.go"}

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
	conn := bare(t)
	for name, text := range statements(t) {
		if _, err := conn.Prepare(t.Context(), "", text, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// bare is a connection to a freshly migrated database.
func bare(t *testing.T) *pgconn.PgConn {
	t.Helper()
	server := pgtest.Shared(t)
	s, err := Open(t.Context(), server.URL(server.Database(t, pgtest.Kind{Name: "bare", Prepare: func(string) error { return nil }, Empty: "DROP SCHEMA public CASCADE; CREATE SCHEMA public"})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return conn.Conn().PgConn()
}

// TestABatchReadsNoTableWhole: with the settings of its transaction, what a batch gathers and changes is found through indexes, whatever
// is known of the tables, but for those that have a handful of rows. And it is found by all that the statement says of it: a filter would
// mean that more is read than is asked for, such as a run's whole history for one of its steps.
func TestABatchReadsNoTableWhole(t *testing.T) {
	small := regexp.MustCompile(`nelkap_schema|counters`)
	ofBatches := regexp.MustCompile(`^sql(Gather|Lock|Insert|Update|Delete|Drop|Put|Copy|Count|Empty)`)
	// These leave out some of what they find: entries after a point that a replay names, what is too young to go, the one run of a child.
	choosy := regexp.MustCompile(`^sql(Drop|CopySteps|GatherInvokes|GatherLineCounts)`)
	whole := regexp.MustCompile(`Seq Scan|Hash.*Join|Merge.*Join|Join Filter:|Index (Only )?Scan (Backward )?using .*\n *[^ I]`)
	limited := regexp.MustCompile(`Limit\n +->  Index (Only Scan.*\n|Scan.*\n +->)`) // it stops by itself, and leaves out nothing
	conn, looked := bare(t), 0
	for name, text := range statements(t) {
		if !ofBatches.MatchString(name) || small.MatchString(text) {
			continue
		}
		plan := planOf(t, conn, text, func(b *batch) { b.add(sqlBounds, (&params{}).int(0).int(0), nil) })
		if whole.MatchString(limited.ReplaceAllString(plan, "")) || (!choosy.MatchString(name) && strings.Contains(plan, "Filter:")) {
			t.Errorf("%s reads more than it asks for:\n%s", name, plan)
		}
		looked++
	}
	if looked < 50 {
		t.Errorf("only %d statements were looked at", looked)
	}
}

// TestAPlanThatIsKeptReadsNoTableWhole: nor does what is read by itself, on a connection that keeps its plan.
func TestAPlanThatIsKeptReadsNoTableWhole(t *testing.T) {
	conn := bare(t)
	for name, text := range statements(t) {
		if !slices.Contains(often, text) || text == sqlBounds { // which looks at the one row of phase
			continue
		}
		plan := planOf(t, conn, text, func(*batch) {})
		if regexp.MustCompile(`Seq Scan|Hash.*Join|Merge.*Join`).MatchString(plan) {
			t.Errorf("%s reads a table whole:\n%s", name, plan)
		}
	}
}

// planOf is a statement's plan for whatever parameters.
func planOf(t *testing.T, conn *pgconn.PgConn, text string, settle func(*batch)) string {
	t.Helper()
	count := 0
	for _, found := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		count = max(count, n)
	}
	arguments := ""
	if count > 0 {
		arguments = "(" + strings.TrimSuffix(strings.Repeat("NULL, ", count), ", ") + ")"
	}
	plan := strings.Builder{}
	b := &batch{}
	b.add(sqlBegin, nil, nil)
	settle(b)
	b.add("SET LOCAL plan_cache_mode = force_generic_plan", nil, nil)
	b.add("PREPARE it AS "+text, nil, nil)
	b.add("EXPLAIN (COSTS off) EXECUTE it"+arguments, nil, func(r *scanner) error { plan.WriteString(r.text() + "\n"); return nil })
	b.add("DEALLOCATE it", nil, nil)
	b.add(sqlRollback, nil, nil)
	if err := b.run(t.Context(), conn); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return plan.String()
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
