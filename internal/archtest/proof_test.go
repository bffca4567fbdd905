package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The two pages that say which test shows what. A test is named as `internal/engine: TestA, TestB` (functions of a Go package),
// as `sdk/typescript/test/call.test.ts: a test's name`, or by its file where the whole file is one (transcripts, scripts).
const (
	rulesPage     = "docs/internals/rules-tested.md"
	scenariosPage = "docs/internals/scenarios.md"
)

var (
	ruleStated  = regexp.MustCompile(`(?m)^- \*\*([A-Z][0-9]+)\b`)
	tableRow    = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|(.+)\|$`)
	quoted      = regexp.MustCompile("`([^`]+)`")
	postponed   = regexp.MustCompile(`(^|; )(not yet|later): \S`)
	testEnds    = regexp.MustCompile(`\n\}?\);?\n`)
	placeOfTest = regexp.MustCompile(`^[\w./-]+$`)
)

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows are a page's table rows by their number: what follows it, cell by cell.
func rows(t *testing.T, name string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, row := range tableRow.FindAllStringSubmatch(readPage(t, name), -1) {
		if found[row[1]] != nil {
			t.Errorf("%s has two rows of %s", name, row[1])
		}
		var cells []string
		for cell := range strings.SplitSeq(row[2], " | ") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		found[row[1]] = cells
	}
	if len(found) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return found
}

// named are the tests that a cell names, each with its text.
func named(t *testing.T, row, cell string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, ref := range quoted.FindAllStringSubmatch(cell, -1) {
		place, name, isPart := strings.Cut(ref[1], ": ")
		if !placeOfTest.MatchString(place) || !strings.Contains(place, "/") && !isPart {
			continue // a word of the product
		}
		names := []string{name}
		if isPart && !strings.HasSuffix(place, ".ts") {
			names = strings.Split(name, ", ")
		}
		for _, name := range names {
			text, err := testText(t, place, name)
			if err != nil {
				t.Errorf("%s names %s, and %v", row, ref[1], err)
			}
			texts[cmp.Or(name, place)] = text
		}
	}
	return texts
}

// testText finds a test and gives it with the comment above it; without a name it is the whole file.
func testText(t *testing.T, place, name string) (string, error) {
	t.Helper()
	if name == "" || strings.HasSuffix(place, ".ts") {
		text, err := os.ReadFile(filepath.Join(root, place))
		if err != nil || name == "" {
			return string(text), err
		}
		return blockOf(string(text), name)
	}
	for _, f := range written(t) {
		if f.dir != place {
			continue
		}
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Name.Name == name {
				from := fn.Pos()
				if fn.Doc != nil {
					from = fn.Doc.Pos()
				}
				return f.text[fset.Position(from).Offset:fset.Position(fn.End()).Offset], nil
			}
		}
	}
	return "", fmt.Errorf("%s has no such function", place)
}

// blockOf is the call of test that has the name, from the blank line before it to its end.
func blockOf(text, name string) (string, error) {
	for _, quote := range []string{"'", "`", `"`} {
		at := strings.Index(text, quote+name+quote)
		if at < 0 {
			continue
		}
		start := strings.LastIndex(text[:at], "\n\n") + 1
		end := testEnds.FindStringIndex(text[at:])
		if !strings.Contains(text[start:at], "test") || end == nil {
			return "", fmt.Errorf("%q is no test's name", name)
		}
		return text[start : at+end[1]], nil
	}
	return "", fmt.Errorf("there is no %q", name)
}

func TestEveryRuleIsCitedByTheTestsThatShowIt(t *testing.T) {
	table := rows(t, rulesPage)
	stated := ruleStated.FindAllStringSubmatch(readPage(t, "docs/internals/rules.md"), -1)
	if len(stated) == 0 {
		t.Fatal("rules.md states no rule: is it written otherwise now?")
	}
	known := map[string]bool{}
	for _, rule := range stated {
		known[rule[1]] = true
		cells := table[rule[1]]
		if len(cells) != 2 {
			t.Errorf("%s has no row for %s with its tests and with what is not yet there", rulesPage, rule[1])
			continue
		}
		cites := regexp.MustCompile(`\b` + rule[1] + `\b`)
		tests := named(t, rulesPage+": "+rule[1], cells[0])
		for name, text := range tests {
			if text != "" && !cites.MatchString(text) {
				t.Errorf("%s should show %s and does not cite it: whoever changes the test must know which rule it holds", name, rule[1])
			}
		}
		if len(tests) == 0 && !postponed.MatchString(cells[1]) {
			t.Errorf("%s: no test shows %s, and the page does not say that it is not yet there", rulesPage, rule[1])
		}
	}
	for rule := range table {
		if !known[rule] {
			t.Errorf("%s has a row for %s, which rules.md does not state", rulesPage, rule)
		}
	}
}

func TestEveryScenarioIsShownOrSaysWhyNot(t *testing.T) {
	for number, cells := range rows(t, scenariosPage) {
		if len(cells) != 2 || cells[0] == "" {
			t.Errorf("%s: the row of %s has an outcome and what shows it", scenariosPage, number)
			continue
		}
		tests := named(t, scenariosPage+": "+number, cells[1])
		if len(tests) == 0 && !postponed.MatchString(cells[1]) && !strings.HasPrefix(cells[1], "can't apply: ") {
			t.Errorf("%s: nothing shows %s, and the row does not say why", scenariosPage, number)
		}
	}
}
