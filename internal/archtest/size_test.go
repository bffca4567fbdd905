package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Sizes past which a piece of code needs a word of explanation. They start a conversation: an entry in grown, with its
// reason, ends it.
const (
	fileLinesMax        = 600
	functionLinesMax    = 70
	interfaceMethodsMax = 8
	parametersMax       = 5
)

// grown lists what is larger than the limits for a reason: a file's path, or "path: name" for what is in it.
var grown = map[string]string{
	"internal/store/store.go: Reader": "one method for each question that is asked of a store; three stores and their contract suite share it",
}

func TestFilesStayReadable(t *testing.T) {
	for _, name := range textFiles(".go", ".ts", ".tsx", ".sql") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		if strings.Contains(firstLine(string(text)), "Code generated") {
			continue
		}
		if lines := strings.Count(string(text), "\n"); lines > fileLinesMax {
			tooLarge(t, name, "has %d lines, more than %d: does it hold two things?", lines, fileLinesMax)
		}
	}
}

// Tests' functions may be long: a table of cases reads best in one piece.
func TestFunctionsAndInterfacesStaySmall(t *testing.T) {
	for _, file := range written(t) {
		if file.test {
			continue
		}
		for node := range ast.Preorder(file.syntax) {
			switch node := node.(type) {
			case *ast.FuncDecl:
				what := file.path + ": " + node.Name.Name
				if lines := fset.Position(node.End()).Line - fset.Position(node.Pos()).Line + 1; lines > functionLinesMax {
					tooLarge(t, what, "has %d lines, more than %d: which part has a name of its own?", lines, functionLinesMax)
				}
				if count := parameters(node.Type); count > parametersMax {
					tooLarge(t, what, "has %d parameters, more than %d: which of them are one thing?", count, parametersMax)
				}
			case *ast.TypeSpec:
				methods, ok := node.Type.(*ast.InterfaceType)
				if ok && methods.Methods.NumFields() > interfaceMethodsMax {
					tooLarge(t, file.path+": "+node.Name.Name, "has %d methods, more than %d: whose interface is it?",
						methods.Methods.NumFields(), interfaceMethodsMax)
				}
			}
		}
	}
}

// parameters counts what a function is given. A context says how long it may take, not what it is to do, and does not count.
func parameters(function *ast.FuncType) int {
	count := function.Params.NumFields()
	if count == 0 {
		return 0
	}
	first, ok := function.Params.List[0].Type.(*ast.SelectorExpr)
	if ok && isName(first.X, "context") && first.Sel.Name == "Context" {
		count--
	}
	return count
}

func TestWhatIsGrownIsStillThere(t *testing.T) {
	for what := range grown {
		name, _, _ := strings.Cut(what, ": ")
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("grown lists %q, which is not there: remove the entry", what)
		}
	}
}

func tooLarge(t *testing.T, what, format string, args ...any) {
	t.Helper()
	if grown[what] == "" {
		t.Errorf(what+" "+format+" Cut it, or say in `grown` why it is one piece.", args...)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
