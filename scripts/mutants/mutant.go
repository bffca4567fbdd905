package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// mutant is one deliberate fault.
type mutant struct {
	name   string
	says   string   // what the faulty code does
	breaks string   // the rules that it breaks
	tests  []string // folders of packages, from the root, in the order in which they are asked
	edits  []edit
}

// edit is one text of a file and what takes its place.
type edit struct{ file, find, replace string }

// load reads the faults of a folder, in the order of their names.
func load(folder string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no faults in %s: run this from the repository's root, or give -root", folder)
	}
	slices.Sort(files)
	var all []mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		m.name = strings.TrimSuffix(filepath.Base(file), ".txtar")
		all = append(all, m)
	}
	return all, nil
}

// parse reads one fault: a sentence, `breaks:` and `tests:` lines, then pairs of sections `FILE find` and `FILE replace`.
func parse(text []byte) (mutant, error) {
	archive := txtar.Parse(text)
	var m mutant
	for line := range strings.Lines(string(archive.Comment)) {
		line = strings.TrimSpace(line)
		if rules, ok := strings.CutPrefix(line, "breaks:"); ok {
			m.breaks = strings.TrimSpace(rules)
		} else if packages, ok := strings.CutPrefix(line, "tests:"); ok {
			m.tests = strings.Fields(packages)
		} else if line != "" {
			m.says = strings.TrimSpace(m.says + " " + line)
		}
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		find, replace := archive.Files[i], archive.Files[i+1]
		file, ok := strings.CutSuffix(find.Name, " find")
		if !ok || replace.Name != file+" replace" {
			return m, fmt.Errorf("sections come in pairs, `FILE find` and `FILE replace`, not %q and %q", find.Name, replace.Name)
		}
		m.edits = append(m.edits, edit{file, strings.TrimSuffix(string(find.Data), "\n"), strings.TrimSuffix(string(replace.Data), "\n")})
	}
	if m.says == "" || m.breaks == "" || len(m.tests) == 0 || len(m.edits) == 0 || len(archive.Files)%2 != 0 {
		return m, errors.New("a fault has a sentence, `breaks:`, `tests:` and pairs of sections")
	}
	return m, nil
}

// apply gives the faulty text of each file that the fault is in.
func (m mutant) apply(root string) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		text, ok := texts[e.file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(read)
		}
		if n := strings.Count(text, e.find); n != 1 || e.find == e.replace {
			return nil, fmt.Errorf("this text is %d times in %s, and must be there once:\n%s", n, e.file, e.find)
		}
		texts[e.file] = strings.Replace(text, e.find, e.replace, 1)
	}
	return texts, nil
}
