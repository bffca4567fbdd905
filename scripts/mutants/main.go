// Command mutants puts one deliberate fault after the other into the code and runs the tests that should see it. A fault that no
// test sees, one that no longer applies and one that does not compile fail it. It changes no file of the code: the go command
// lays the faulty text over it. `make mutants` runs it, and writes the table in docs/internals/mutants.md.
//
// A fault is a file in patches: a sentence that says what the faulty code does, the rule that it breaks, the packages whose tests are
// asked, in order, and for each place the text to find and the text that replaces it. A text must be there exactly once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// page is where the table is kept, from the repository's root.
const page = "docs/internals/mutants.md"

func main() {
	only := flag.String("only", "", "a pattern: only faults whose name matches; the table keeps its lines of the others")
	limit := flag.Duration("limit", 2*time.Minute, "how long one package's tests may take")
	root := flag.String("root", ".", "the repository's folder")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // what is deferred ends with the process
	}
}

func run(ctx context.Context, root, only string, limit time.Duration) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	all, err := load(filepath.Join(root, "scripts/mutants/patches"))
	if err != nil {
		return err
	}
	r, err := newRunner(root, limit)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.checkHealth(ctx, all, pattern); err != nil {
		return err
	}
	seen, failed := map[string]string{}, 0 // by the fault's name: the test that saw it
	for _, m := range all {
		if !pattern.MatchString(m.name) {
			continue
		}
		started := time.Now()
		by, err := r.try(ctx, m)
		if err != nil {
			failed++
			fmt.Printf("FAILED  %-32s %v\n", m.name, err)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue
		}
		fmt.Printf("caught  %-32s by %s (%v)\n", m.name, by, time.Since(started).Round(100*time.Millisecond))
		seen[m.name] = by
	}
	fmt.Printf("mutants=%d caught=%d survived=%d\n", len(seen)+failed, len(seen), failed)
	if failed > 0 {
		return errors.New("a fault that no test sees needs a test; one that no longer applies or compiles needs its text brought up to date")
	}
	file := filepath.Join(root, page)
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(table(all, seen, string(before))), 0o644) // a page of the repository
}

// line is a fault's line in the table, up to the test that saw it.
func (m *mutant) line() string {
	return fmt.Sprintf("| %s | %s | `%s` | ", m.says, m.breaks, m.edits[0].file)
}

// table is the page that lists which test sees which fault: the one that saw it now, or as the page had it before.
func table(all []mutant, seen map[string]string, before string) string {
	var out strings.Builder
	out.WriteString("# The mutants\n\n<!-- Written by make mutants. -->\n\n" +
		"A suite that passes proves little until it has been seen to fail. Each line is a fault that `make mutants` puts into the code\n" +
		"(`scripts/mutants/patches`), the rule that it breaks ([rules.md](rules.md)), and the first test that saw it. A fault that no\n" +
		"test sees fails `make mutants`.\n\n" +
		"| the faulty code | breaks | in | seen by |\n| - | - | - | - |\n")
	for i := range all {
		m := &all[i]
		_, rest, known := strings.Cut(before, m.line())
		by, _, _ := strings.Cut(rest, " |\n")
		if now := seen[m.name]; now != "" {
			by, known = now, true
		}
		if known {
			out.WriteString(m.line() + by + " |\n")
		}
	}
	return out.String()
}
