package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that decide: values in, values out.
var pure = []string{
	"internal/workflow", "internal/backoff", "internal/schedule", "internal/filter", "internal/wire", "internal/webhook",
}

// stores are the implementations of the store. Only cmd chooses one.
var stores = []string{"internal/store/memory", "internal/store/sqlite", "internal/store/postgres"}

// edges are the packages that face the world.
var edges = []string{"internal/httpapi", "internal/dashboard", "internal/call"}

// onlyImports lists packages that may import nothing of ours but what is named.
var onlyImports = []struct {
	dir     string
	allowed []string
	reason  string
}{
	{
		"internal/workflow",
		[]string{"internal/backoff", "internal/schedule", "internal/filter"},
		"the core decides from values alone, so that every transition can be played in a table",
	},
	{"internal/backoff", nil, "pure helpers stand alone, so that the core may use them"},
	{"internal/schedule", nil, "pure helpers stand alone, so that the core may use them"},
	{"internal/filter", nil, "pure helpers stand alone, so that the core may use them"},
	{"internal/wire", nil, "the messages are what the protocol's page says, whatever the server does with them"},
	{"internal/signature", nil, "signing is the same for calls out and webhooks in, and knows neither"},
	{"internal/webhook", []string{"internal/signature"}, "what a provider signs is the same wherever its deliveries are taken in"},
	{"internal/apitype", []string{"internal/wire"}, "the API's types are shared with its clients"},
	{
		"internal/client",
		[]string{"internal/apitype", "internal/wire", "internal/id"},
		"the client sees what every client sees: the HTTP API",
	},
	{"internal/call", []string{"internal/wire", "internal/signature"}, "a transport knows no run and no store"},
}

// neverImports lists edges between packages that must not be there. Tests are free: they may put real things together.
var neverImports = []struct {
	from, to []string
	except   []string
	reason   string
}{
	{
		from: []string{"internal"}, to: stores, except: append([]string{"internal/store/storetest", "internal/engine/enginetest"}, stores...),
		reason: "only cmd chooses a store; everything else uses the seam in internal/store",
	},
	{
		from: []string{"internal/store"}, to: append([]string{"internal/engine", "internal/webhook"}, edges...),
		reason: "a store keeps what it is told and asks nobody",
	},
	{
		from: []string{"internal/engine"}, to: []string{"internal/httpapi", "internal/dashboard", "internal/webhook", "internal/client"},
		reason: "the engine is called by the edges, never the other way",
	},
}

func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, file := range written(t) {
		for _, rule := range onlyImports {
			if file.test || !in(file.dir, rule.dir) {
				continue
			}
			for _, dir := range file.importsOfOurs() {
				if !in(dir, rule.dir) && !in(dir, rule.allowed...) {
					t.Errorf("%s imports %s, but %s imports nothing of ours but %v: %s", file.path, dir, rule.dir, rule.allowed, rule.reason)
				}
			}
		}
		for _, rule := range neverImports {
			if file.test || !in(file.dir, rule.from...) || in(file.dir, rule.except...) {
				continue
			}
			for _, dir := range file.importsOfOurs() {
				if in(dir, rule.to...) {
					t.Errorf("%s imports %s: %s", file.path, dir, rule.reason)
				}
			}
		}
	}
}

func TestAdaptersDoNotKnowEachOther(t *testing.T) {
	for _, group := range [][]string{stores, edges} {
		for _, file := range written(t) {
			for _, dir := range file.importsOfOurs() {
				from := slices.IndexFunc(group, func(a string) bool { return in(file.dir, a) })
				to := slices.IndexFunc(group, func(a string) bool { return in(dir, a) })
				if !file.test && from >= 0 && to >= 0 && from != to {
					t.Errorf("%s imports %s: adapters do not know each other, so that each can be replaced alone", file.path, dir)
				}
			}
		}
	}
}

// Modules of their own use both sides: they prove the whole.
var wholeSystem = []string{"internal/sim", "e2e", "bench", "examples"}

func TestServerAndSDKMeetOnlyInTheProtocol(t *testing.T) {
	for _, file := range written(t) {
		if in(file.dir, wholeSystem...) {
			continue
		}
		for _, dir := range file.importsOfOurs() {
			switch {
			case in(file.dir, "sdk/go") && !in(dir, "sdk/go"):
				t.Errorf("%s imports %s: an app that uses the SDK must not take the server along", file.path, dir)
			case !in(file.dir, "sdk/go") && in(dir, "sdk/go"):
				t.Errorf("%s imports %s: the server knows apps by the protocol alone", file.path, dir)
			}
		}
	}
}

func TestTheGoSDKHasOneDependency(t *testing.T) {
	allowed := []string{modulePath, "github.com/coder/websocket"}
	for _, file := range written(t) {
		if !in(file.dir, "sdk/go") || file.test {
			continue
		}
		for _, name := range file.imports() {
			if host, _, _ := strings.Cut(name, "/"); strings.Contains(host, ".") && !in(name, allowed...) {
				t.Errorf("%s imports %s: what the SDK depends on, every app depends on", file.path, name)
			}
		}
	}
}

func TestTheWholeSystemsProofsAreModulesOfTheirOwn(t *testing.T) {
	for _, file := range written(t) {
		for _, dir := range []string{"sdk/go", "internal/sim", "e2e", "bench"} {
			if !in(file.dir, dir) {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, dir, "go.mod")); err != nil {
				t.Errorf("%s has Go files but no go.mod: it uses the SDK and the server, which go install must not join", dir)
			}
		}
	}
}

// impureImports are packages by which a pure package would touch the world.
var impureImports = []string{
	"context", "crypto/rand", "database/sql", "log", "math/rand", "math/rand/v2", "net", "net/http", "os",
	"os/exec", "os/signal", "runtime", "sync", "sync/atomic", "syscall", "testing",
}

// clockReads are the functions of package time that ask the clock or wait for it.
var clockReads = []string{
	"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer",
}

func TestPurePackagesTouchNothing(t *testing.T) {
	const reason = "pure packages get their time, chance and data as arguments, so that the same values give the same answer"
	for _, file := range written(t) {
		if file.test || !in(file.dir, pure...) {
			continue
		}
		for _, name := range file.imports() {
			if slices.Contains(impureImports, name) || in(name, "net", "os", "database") {
				t.Errorf("%s imports %s: %s", file.path, name, reason)
			}
		}
		for node := range ast.Preorder(file.syntax) {
			switch node := node.(type) {
			case *ast.SelectorExpr:
				if isName(node.X, "time") && slices.Contains(clockReads, node.Sel.Name) {
					t.Errorf("%s uses time.%s: %s", at(node), node.Sel.Name, reason)
				}
				if (isName(node.X, "uuid") || isName(node.X, "ulid")) && (strings.HasPrefix(node.Sel.Name, "New") || node.Sel.Name == "Make") {
					t.Errorf("%s draws an id: %s", at(node), reason)
				}
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s starts or talks to a goroutine: %s", at(node), reason)
			}
		}
	}
}

func isName(expr ast.Expr, name string) bool {
	ident, ok := expr.(*ast.Ident)
	return ok && ident.Name == name
}
