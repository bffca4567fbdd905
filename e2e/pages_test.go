package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The programs on the pages of docs/ compile as they stand: each TypeScript snippet is a module, and each Go snippet a program.
func TestThePagesProgramsCompile(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	typescript, goModule := t.TempDir(), t.TempDir()
	modules, programs := 0, 0
	for _, page := range pages {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		snippets := snippetsOf(pageOf(t, page))
		for i, snippet := range snippets["ts"] {
			modules++
			write(t, filepath.Join(typescript, fmt.Sprintf("%s-%d.ts", name, i)), snippet)
		}
		for i, snippet := range snippets["go"] {
			programs++
			folder := filepath.Join(goModule, fmt.Sprintf("%s%d", strings.ReplaceAll(name, "-", ""), i))
			if err := os.Mkdir(folder, 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(folder, "main.go"), snippet)
		}
	}
	if modules == 0 || programs == 0 {
		t.Fatalf("the pages have %d TypeScript and %d Go programs", modules, programs)
	}
	t.Run("typescript", func(t *testing.T) {
		t.Parallel()
		if err := os.Symlink(filepath.Join(built.typescript, "node_modules"), filepath.Join(typescript, "node_modules")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(typescript, "package.json"), `{"type":"module"}`)
		write(t, filepath.Join(typescript, "tsconfig.json"), `{"compilerOptions":{"module":"nodenext","target":"es2022","strict":true,"noEmit":true,"skipLibCheck":true,"types":[]},"include":["*.ts"]}`)
		compile(t, typescript, "node", filepath.Join(typescriptCompiler(t), "bin", "tsc"), "-p", ".")
	})
	t.Run("go", func(t *testing.T) {
		t.Parallel()
		sdk, err := filepath.Abs("../sdk/go")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"mod init example.com/pages", "mod edit -replace github.com/nelkap/nelkap/sdk/go=" + sdk, "mod tidy", "vet ./..."} {
			compile(t, goModule, "go", strings.Fields(line)...)
		}
	})
}

// typescriptCompiler is where the examples have the compiler.
func typescriptCompiler(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(examplesDir, "node_modules", "typescript"))
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Fatalf("the compiler is not installed: run npm ci in the folder examples (%v)", err)
	}
	return dir
}

func compile(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	command := exec.Command(name, args...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
