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
	only := flag.String("only", "", "a pattern: only faults whose name matches, and no table is written")
	limit := flag.Duration("limit", time.Minute, "how long one package's tests may take")
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
	var caught []result
	failed := 0
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
		caught = append(caught, result{m, by})
	}
	fmt.Printf("mutants=%d caught=%d survived=%d\n", len(caught)+failed, len(caught), failed)
	if failed > 0 {
		return errors.New("a fault that no test sees needs a test; one that no longer applies or compiles needs its text brought up to date")
	}
	if only != "" {
		return nil
	}
	return os.WriteFile(filepath.Join(root, page), []byte(table(caught)), 0o644) // a page of the repository
}

// result is a fault, and the test that saw it.
type result struct {
	mutant mutant
	by     string
}

// table is the page that lists which test sees which fault.
func table(caught []result) string {
	var out strings.Builder
	out.WriteString("# The mutants\n\n<!-- Written by make mutants. -->\n\n" +
		"A suite that passes proves little until it has been seen to fail. Each line is a fault that `make mutants` puts into the code\n" +
		"(`scripts/mutants/patches`), the rule that it breaks ([rules.md](rules.md)), and the first test that saw it. A fault that no\n" +
		"test sees fails `make mutants`.\n\n" +
		"| the faulty code | breaks | in | seen by |\n| - | - | - | - |\n")
	for _, r := range caught {
		fmt.Fprintf(&out, "| %s | %s | `%s` | %s |\n", r.mutant.says, r.mutant.breaks, r.mutant.edits[0].file, r.by)
	}
	return out.String()
}
