package archtest

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fences    = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	makeCalls = regexp.MustCompile(`(?m)^make +([a-z-]+)`)
	targets   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	links     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
)

// compiled are the languages of programs on pages, each with the places whose programs a test compiles or runs.
var compiled = map[string][]string{
	"go": {"README.md", "sdk/go/README.md", "docs/", "examples/"}, // e2e/readme_test.go, sdk/go/type_test.go, e2e/examples_test.go
	"ts": {"sdk/typescript/README.md", "docs/", "examples/"},      // sdk/typescript/test/pages.test.ts, e2e/examples_test.go
	"js": {"README.md"}, "mjs": nil, "tsx": nil, "jsx": nil,       // e2e/readme_test.go
}

// pages are what people read, each by its path from the repository's root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, name := range textFiles(".md") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("reading %s: %v", name, err)
		}
		texts[name] = string(text)
	}
	if len(texts) == 0 {
		t.Fatal("there are no pages")
	}
	return texts
}

func TestProgramsOnPagesAreCompiled(t *testing.T) {
	for name, text := range pages(t) {
		for _, block := range fences.FindAllStringSubmatch(text, -1) {
			places, isProgram := compiled[block[1]]
			isCompiled := slices.ContainsFunc(places, func(place string) bool {
				return name == place || strings.HasSuffix(place, "/") && strings.HasPrefix(name, place)
			})
			if isProgram && !isCompiled {
				t.Errorf("%s has a program in %s that no test compiles: a reader would find out that it is wrong", name, block[1])
			}
		}
	}
}

func TestCommandsOnPagesAreThere(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, found := range targets.FindAllStringSubmatch(string(makefile), -1) {
		known = append(known, found[1])
	}
	for name, text := range pages(t) {
		for _, block := range fences.FindAllStringSubmatch(text, -1) {
			for _, call := range makeCalls.FindAllStringSubmatch(block[2], -1) {
				if block[1] == "sh" && !slices.Contains(known, call[1]) {
					t.Errorf("%s has the command make %s, which the Makefile does not know", name, call[1])
				}
			}
		}
	}
}

func TestLinksOnPagesLeadSomewhere(t *testing.T) {
	for name, text := range pages(t) {
		for _, link := range links.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if strings.Contains(link[1], ":") {
				continue // elsewhere
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(name), link[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", name, link[1])
			}
		}
	}
}

// direct are the modules that a go.mod requires for its own code.
var direct = regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`)

func TestEveryDependencyHasASentence(t *testing.T) {
	const list = "docs/internals/dependencies.md"
	sentences, err := os.ReadFile(filepath.Join(root, list))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	check := func(file, name string) {
		if name == "nelkap" || strings.HasPrefix(name, modulePath) {
			return
		}
		found++
		if !strings.Contains(string(sentences), "`"+name+"`") {
			t.Errorf("%s needs %s, which has no sentence in %s", file, name, list)
		}
	}
	for _, file := range textFiles("go.mod") {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, module := range direct.FindAllStringSubmatch(string(text), -1) {
			check(file, module[1])
		}
	}
	for _, file := range textFiles("package.json") {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var needs struct{ Dependencies, DevDependencies map[string]string }
		if err := json.Unmarshal(text, &needs); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, packages := range []map[string]string{needs.Dependencies, needs.DevDependencies} {
			for name := range packages {
				check(file, name)
			}
		}
	}
	if found == 0 {
		t.Error("no dependency was found: are they written otherwise now?")
	}
}

// S6: nothing can stop a body that heeds no signal, and users must know it before they give a step a timeout.
func TestPagesSayThatATimeoutEndsNoBody(t *testing.T) {
	texts := pages(t)
	for _, name := range []string{"sdk/go/README.md", "sdk/typescript/README.md"} {
		if !strings.Contains(strings.Join(strings.Fields(texts[name]), " "), "next attempt may overlap it") {
			t.Errorf("%s does not say that an attempt may overlap the one whose time is over", name)
		}
	}
}
