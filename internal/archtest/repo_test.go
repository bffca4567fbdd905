package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// root is the repository's folder, seen from this package.
const root = "../.."

// modulePath is the server's module; the other modules of the repository live in folders below it and are named alike.
const modulePath = "github.com/nelkap/nelkap"

// skippedDirs hold what others wrote or what tools made.
var skippedDirs = []string{".git", "node_modules", "bin", "dist", "coverage", "testdata", ".nelkap"}

// goFile is one Go file of the repository, parsed with its comments.
type goFile struct {
	path      string // from the repository's root, with slashes
	dir       string
	text      string
	syntax    *ast.File
	test      bool // _test.go
	generated bool
}

var fset = token.NewFileSet()

// goFiles are all Go files, in the order of their paths. They are parsed once.
var goFiles = sync.OnceValues(func() ([]goFile, error) {
	var files []goFile
	for _, name := range textFiles(".go") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, goFile{
			path:      name,
			dir:       path.Dir(name),
			text:      string(text),
			syntax:    syntax,
			test:      strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax),
		})
	}
	return files, nil
})

// written returns the Go files that people write. A file that does not parse fails the test.
func written(t *testing.T) []goFile {
	t.Helper()
	files, err := goFiles()
	if err != nil {
		t.Fatalf("reading the repository's Go files: %v", err)
	}
	return slices.DeleteFunc(slices.Clone(files), func(f goFile) bool { return f.generated })
}

// textFiles returns the paths of all files with one of the given endings.
func textFiles(endings ...string) []string {
	var names []string
	err := filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skippedDirs, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		if slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(entry.Name(), end) }) {
			name, err := filepath.Rel(root, full)
			if err != nil {
				return err
			}
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		panic(err) // the repository's own folder can't be read
	}
	return names
}

// imports returns the paths that a file imports.
func (f goFile) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		// The parser has checked that this is a quoted text.
		name, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, name)
	}
	return paths
}

// importsOfOurs returns the folders of this repository that a file imports.
func (f goFile) importsOfOurs() []string {
	var dirs []string
	for _, name := range f.imports() {
		if rest, ok := strings.CutPrefix(name, modulePath+"/"); ok {
			dirs = append(dirs, rest)
		}
	}
	return dirs
}

// in tells whether dir is one of the folders or lies in one.
func in(dir string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return dir == folder || strings.HasPrefix(dir, folder+"/")
	})
}

// at is the place of a node, such as internal/engine/engine.go:12.
func at(node ast.Node) string {
	place := fset.Position(node.Pos())
	return place.Filename + ":" + strconv.Itoa(place.Line)
}
