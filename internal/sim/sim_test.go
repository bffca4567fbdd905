package sim_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/nelkap/nelkap/internal/sim"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/store/sqlite"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this seed alone; with -v its whole trace is shown")
	seedsFlag = flag.Int("seeds", 0, "the long form: play so many seeds, on all cores")
	fromFlag  = flag.Uint64("from", 1, "the first seed of the long form")
	storeFlag = flag.String("store", "memory", "what the long form runs on: memory or sqlite")
	partFlag  = flag.String("part", "", "for the long form's own processes: where the report goes")
)

// summary is what the long form prints last.
var summary string

func TestMain(m *testing.M) {
	flag.Parse()
	// One core and one order of goroutines for each process: the long form starts many.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	code := m.Run()
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}

// traceMax is how much of a trace is shown before a violation.
const traceMax = 80

// warm makes what the SDK and the runtime draw but once per process, so that no seed depends on the seed before.
var warm sync.Once

// play plays a seed.
func play(t *testing.T, seed uint64, kind string, report *sim.Report) sim.Result {
	t.Helper()
	warm.Do(func() { playOnce(t, 1, "memory", sim.NewReport(), false) })
	return playOnce(t, seed, kind, report, false)
}

func playOnce(t *testing.T, seed uint64, kind string, report *sim.Report, prefixes bool) (result sim.Result) {
	t.Helper()
	dir := ""
	if kind == "sqlite" {
		dir = t.TempDir()
		defer os.RemoveAll(dir) // at once: there may be thousands
	}
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		model := memory.New()
		var s store.Store = model
		if kind == "sqlite" {
			opened, err := sqlite.Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			s = opened
		}
		result = sim.Run(seed, sim.Options{Store: s, Model: model}, report)
		if prefixes {
			if _, err := result.PlayPrefixes(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		}
	})
	return result
}

// check fails the test with what a seed broke, and what came before it.
func check(t *testing.T, seed uint64, r sim.Result) {
	t.Helper()
	if len(r.Violations) == 0 {
		return
	}
	before, _, _ := strings.Cut(r.Trace, "VIOLATION")
	lines := strings.Split(before, "\n")
	t.Errorf("seed %d: %s\n%s\nPlay it with: go test ./internal/sim -seed %d -v", seed, strings.Join(r.Violations, "\n"),
		strings.Join(lines[max(0, len(lines)-traceMax):], "\n"), seed)
}

// keptSeeds are the seeds that have found a fault.
func keptSeeds(t *testing.T) (seeds []uint64) {
	t.Helper()
	file, err := os.Open("seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		number, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if number == "" || number == "#" {
			continue
		}
		seed, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("seeds.txt: %v", err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

func TestOneSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("for -seed N")
	}
	r := play(t, *seedFlag, *storeFlag, sim.NewReport())
	check(t, *seedFlag, r)
	t.Log("\n" + r.Trace)
}

func TestKeptSeedsStayMended(t *testing.T) {
	short(t)
	for _, seed := range keptSeeds(t) {
		check(t, seed, play(t, seed, "memory", sim.NewReport()))
	}
}

func TestNoInvariantBreaks(t *testing.T) {
	short(t)
	const seeds = 160
	report := sim.NewReport()
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		check(t, seed, play(t, seed, "memory", report))
	}
	t.Log("\n" + report.String())
	for _, kind := range sim.FaultKinds() {
		if report.Faults[kind] == 0 {
			t.Errorf("the fault %q was never injected", kind)
		}
	}
}

func TestNoInvariantBreaksOnSQLite(t *testing.T) {
	short(t)
	const seeds = 30
	report := sim.NewReport()
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		check(t, seed, play(t, seed, "sqlite", report))
	}
	t.Log("\n" + report.String())
}

// short skips a test of the short form where another form was asked for.
func short(t *testing.T) {
	t.Helper()
	if *seedFlag != 0 || *seedsFlag != 0 {
		t.Skip("another form was asked for")
	}
}
