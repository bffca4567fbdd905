package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// emptyNames say nothing of what a package is for, so that anything ends up in it.
var emptyNames = []string{
	"util", "utils", "common", "helper", "helpers", "type", "types", "model", "models", "misc", "base", "lib", "shared",
}

func TestPackagesAreNamedForWhatTheyAre(t *testing.T) {
	for _, file := range written(t) {
		name := strings.TrimSuffix(file.syntax.Name.Name, "_test")
		if slices.Contains(emptyNames, name) {
			t.Errorf("%s: package %s: name it for what it holds, so that it does not gather what belongs nowhere", file.path, name)
		}
		if name != strings.ToLower(name) || strings.Contains(name, "_") {
			t.Errorf("%s: package %s: a package's name is one short word in lower case", file.path, name)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	documented := map[string]bool{}
	for _, file := range written(t) {
		doc := file.syntax.Doc.Text()
		begins := strings.HasPrefix(doc, "Package "+file.syntax.Name.Name+" ") ||
			(file.syntax.Name.Name == "main" && strings.HasPrefix(doc, "Command "))
		documented[file.dir] = documented[file.dir] || begins
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no file begins with \"// Package %s …\": say what it decides, what it refuses to do, and who calls it", dir, path.Base(dir))
		}
	}
}

func TestErrorsAreAClosedAndExplainedList(t *testing.T) {
	for _, file := range written(t) {
		for _, decl := range file.syntax.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.VAR || file.test {
				continue
			}
			for _, spec := range group.Specs {
				value, ok := spec.(*ast.ValueSpec)
				if !ok || !strings.HasPrefix(value.Names[0].Name, "Err") {
					continue
				}
				if value.Doc == nil && value.Comment == nil && group.Doc == nil {
					t.Errorf("%s: %s has no comment: say when it is returned and what its receiver does", at(value), value.Names[0].Name)
				}
			}
		}
	}
}

// textMatchers look into a text.
var textMatchers = []string{"Contains", "HasPrefix", "HasSuffix", "EqualFold", "Index"}

func TestErrorsAreNeverMatchedByText(t *testing.T) {
	const reason = "an error's text is for people and changes: use errors.Is or errors.As"
	for _, file := range written(t) {
		for node := range ast.Preorder(file.syntax) {
			switch node := node.(type) {
			case *ast.CallExpr:
				matcher, ok := node.Fun.(*ast.SelectorExpr)
				if !file.test && ok && isName(matcher.X, "strings") && slices.Contains(textMatchers, matcher.Sel.Name) &&
					slices.ContainsFunc(node.Args, isErrorText) {
					t.Errorf("%s looks into an error's text: %s", at(node), reason)
				}
			case *ast.BinaryExpr:
				if !file.test && (node.Op == token.EQL || node.Op == token.NEQ) && (isErrorText(node.X) || isErrorText(node.Y)) {
					t.Errorf("%s compares an error's text: %s", at(node), reason)
				}
			}
		}
	}
}

// isErrorText tells whether an expression is a call of a method Error without arguments.
func isErrorText(expr ast.Expr) bool {
	call, ok := expr.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Error"
}

func TestNothingSleeps(t *testing.T) {
	const reason = "wait for a signal, or for a timer beside ctx.Done(); in tests use testing/synctest, where a sleep takes no time"
	for _, file := range written(t) {
		// The simulator is played in a bubble of synctest only.
		if in(file.dir, "e2e", "bench", "examples", "internal/sim") || slices.Contains(file.imports(), "testing/synctest") {
			continue
		}
		for node := range ast.Preorder(file.syntax) {
			if sel, ok := node.(*ast.SelectorExpr); ok && isName(sel.X, "time") && sel.Sel.Name == "Sleep" {
				t.Errorf("%s sleeps: %s", at(node), reason)
			}
		}
	}
}

// The words are put together here, so that this file does not hold them.
var unwanted = []struct {
	pattern *regexp.Regexp
	reason  string
}{
	{
		regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`),
		"unfinished work belongs in an issue, where someone sees it",
	},
	{
		regexp.MustCompile(`(^|[^\w./:~-])/(wo` + `rk|ro` + `ot|ho` + `me|Us` + `ers)/`),
		"a path of one machine means nothing on another",
	},
	{
		regexp.MustCompile(`registry\.np` + `mjs\.org|proxy\.go` + `lang\.org|sum\.go` + `lang\.org`),
		"where packages come from is each machine's setting; lock files leave it out (npm: omit-lockfile-registry-resolved)",
	},
	{
		regexp.MustCompile(`^(<<<<<<<|>>>>>>>|=======$)`),
		"a merge was left unfinished",
	},
}

// texts are the endings of files that people read.
var texts = []string{
	".go", ".mod", ".ts", ".tsx", ".mts", ".js", ".mjs", ".cjs", ".json", ".md", ".sql", ".yml", ".yaml", ".toml", ".sh",
	".css", ".html", ".templ", ".txtar", ".editorconfig", ".npmrc", "Makefile", "-check",
}

func TestNoUnwantedWords(t *testing.T) {
	for _, name := range textFiles(texts...) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		for number, line := range strings.Split(string(text), "\n") {
			for _, word := range unwanted {
				if found := word.pattern.FindString(line); found != "" {
					t.Errorf("%s:%d has %q: %s", name, number+1, strings.TrimSpace(found), word.reason)
				}
			}
		}
	}
}
