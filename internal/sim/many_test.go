package sim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/sim"
)

// partSeeds is how many seeds one process of the long form plays: the Go SDK keeps what it knows of every process that it was for.
const partSeeds = 2_000

// seenSeedsMin is from how many seeds on every kind of fault and every rare situation must have come up.
const seenSeedsMin = 20_000

// TestManySeeds is the long form. Since crypto/rand is the process's, each process plays one seed at a time, and there is one for
// each core.
func TestManySeeds(t *testing.T) {
	switch {
	case *seedsFlag == 0:
		t.Skip("for -seeds N")
	case *partFlag != "":
		playPart(t)
		return
	}
	began := time.Now()
	dir := t.TempDir()
	total := sim.NewReport()
	var mu sync.Mutex // guards total
	var group sync.WaitGroup
	parts := make(chan int)
	for range runtime.NumCPU() {
		group.Go(func() {
			for from := range parts {
				report := runPart(t, dir, from, min(partSeeds, *seedsFlag-from))
				mu.Lock()
				total.Add(report)
				mu.Unlock()
			}
		})
	}
	for from := 0; from < *seedsFlag; from += partSeeds {
		parts <- from
	}
	close(parts)
	group.Wait()
	took := time.Since(began)
	summary = fmt.Sprintf("%s store, %v, %.0f seeds/s\n%s", *storeFlag, took.Round(time.Second), float64(total.Seeds)/took.Seconds(), total)
	for _, v := range total.Violations {
		t.Error(v)
	}
	form := sim.Form(*formFlag)
	if missing := total.Missing(form); *seedsFlag >= seenSeedsMin && form.Whole() && len(missing) > 0 {
		t.Errorf("never seen, so that this proves less than it says: %q", missing)
	}
}

// runPart plays some seeds in a process of its own.
func runPart(t *testing.T, dir string, from, seeds int) *sim.Report {
	report := sim.NewReport()
	file := filepath.Join(dir, strconv.Itoa(from))
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestManySeeds$", "-test.timeout=0",
		"-form", *formFlag, "-seeds", strconv.Itoa(seeds), "-from", strconv.FormatUint(*fromFlag+uint64(from), 10), "-store", *storeFlag, "-part", file)
	output, err := command.CombinedOutput()
	text, readErr := os.ReadFile(file)
	if readErr == nil {
		readErr = json.Unmarshal(text, report)
	}
	if readErr != nil || err != nil && len(report.Violations) == 0 {
		t.Errorf("the process of seeds %d to %d failed: %v\n%s", from, from+seeds-1, err, output)
	}
	return report
}

// playPart is what such a process does.
func playPart(t *testing.T) {
	report := sim.NewReport()
	for seed := *fromFlag; seed < *fromFlag+uint64(*seedsFlag); seed++ {
		r := play(t, seed, *storeFlag, report)
		for _, v := range r.Violations {
			report.Violations = append(report.Violations, fmt.Sprintf("seed %d: %s", seed, v))
		}
		check(t, seed, r)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*partFlag, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
