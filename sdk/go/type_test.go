package nelkap_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// compile compiles a program of testdata against this module, and gives what the compiler says, by line.
func compile(t *testing.T, name string) (said map[int]string, output string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return compileText(t, strings.TrimSuffix(name, ".txt"), text)
}

func compileText(t *testing.T, name string, text []byte) (said map[int]string, output string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The directory of the test is the module's, so that the file's imports are found there.
	out, _ := exec.Command("go", "build", "-gcflags=-e", "-o", os.DevNull, file).CombinedOutput()
	said = map[int]string{}
	for _, match := range regexp.MustCompile(`(?m)^\S*\.go:(\d+):\d+: (.*(?:\n\t.*)*)`).FindAllStringSubmatch(string(out), -1) {
		line, _ := strconv.Atoi(match[1])
		said[line] += match[2]
	}
	return said, string(out)
}

func TestProgramsThatMustCompile(t *testing.T) {
	if _, output := compile(t, "good.go.txt"); output != "" {
		t.Errorf("the compiler says:\n%s", output)
	}
}

// pages are the README of this module, and in a clone of the whole repository those of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	found := []string{"README.md"}
	docs := filepath.Join("..", "..", "docs")
	if _, err := os.Stat(docs); errors.Is(err, fs.ErrNotExist) {
		return found // the module alone
	}
	err := filepath.WalkDir(docs, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestProgramsOnPagesCompile(t *testing.T) {
	programs := 0
	block := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllSubmatch(text, -1) {
			programs++
			if _, output := compileText(t, "page.go", found[1]); output != "" {
				t.Errorf("%s: the compiler says of a program:\n%s", page, output)
			}
		}
	}
	if programs == 0 {
		t.Error("the README has no program")
	}
}

func TestLinesThatMustNotCompile(t *testing.T) {
	said, output := compile(t, "bad.go.txt")
	text, err := os.ReadFile(filepath.Join("testdata", "bad.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		_, want, expected := strings.Cut(line, "// ERROR ")
		got, refused := said[i+1]
		if expected != refused || !strings.Contains(got, want) {
			t.Errorf("line %d: the compiler says %q, want %q\n%s", i+1, got, want, line)
		}
	}
	if len(said) == 0 {
		t.Error(fmt.Sprint("nothing was refused: ", output))
	}
}

func TestWorkflowsThatNameEachOtherAreAnInitializationCycle(t *testing.T) {
	_, output := compile(t, "cycle.go.txt")
	if !strings.Contains(output, "initialization cycle") || !strings.Contains(output, "Ping refers to") {
		t.Errorf("the compiler says:\n%s", output)
	}
}
