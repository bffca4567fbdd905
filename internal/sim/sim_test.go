package sim_test

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
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
	sameFlag  = flag.Int("same", 40, "how many seeds of each form are played twice, for the same trace")
	storeFlag = flag.String("store", "memory", "what the long form runs on: memory or sqlite")
	formFlag  = flag.String("form", string(sim.FormWhole), fmt.Sprintf("with -seed or -seeds: what the seeds are seeds of, one of %v", sim.Forms))
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
	return playAs(t, seed, kind, report, sim.Form(*formFlag))
}

func playAs(t *testing.T, seed uint64, kind string, report *sim.Report, form sim.Form) sim.Result {
	t.Helper()
	warm.Do(func() { playOnce(t, 1, "memory", sim.NewReport(), sim.Options{}, nil) })
	return playOnce(t, seed, kind, report, sim.Options{Form: form}, nil)
}

// playOnce plays a seed; then, where it is given, is called in its world.
func playOnce(t *testing.T, seed uint64, kind string, report *sim.Report, options sim.Options, then func(sim.Result)) (result sim.Result) {
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
		options.Store, options.Model = s, model
		result = sim.Run(seed, options, report)
		if then != nil {
			then(result)
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
	before, _, _ := strings.Cut(r.Trace(), "VIOLATION")
	lines := strings.Split(before, "\n")
	t.Errorf("seed %d: %s\n%s\nPlay it with: go test ./internal/sim -seed %d -form %s -v", seed, strings.Join(r.Violations, "\n"),
		strings.Join(lines[max(0, len(lines)-traceMax):], "\n"), seed, *formFlag)
}

// keptSeed is a seed that has found a fault, and what it is a seed of.
type keptSeed struct {
	seed uint64
	form sim.Form
}

// keptSeeds are those of seeds.txt.
func keptSeeds(t *testing.T) (seeds []keptSeed) {
	t.Helper()
	file, err := os.Open("seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		seed, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil || len(words) < 2 || !slices.Contains(sim.Forms, sim.Form(words[1])) {
			t.Fatalf("seeds.txt: %q is not a seed, its form (one of %v) and what it has found: %v", lines.Text(), sim.Forms, err)
		}
		seeds = append(seeds, keptSeed{seed, sim.Form(words[1])})
	}
	return seeds
}

func TestOneSeed(t *testing.T) {
	if *seedFlag == 0 {
		t.Skip("for -seed N")
	}
	r := play(t, *seedFlag, *storeFlag, sim.NewReport())
	check(t, *seedFlag, r)
	t.Log("\n" + r.Trace())
}

func TestKeptSeedsStayMended(t *testing.T) {
	short(t)
	for _, kept := range keptSeeds(t) {
		check(t, kept.seed, playAs(t, kept.seed, "memory", sim.NewReport(), kept.form))
	}
}

// playMany plays the first seeds of a form, until one fails.
func playMany(t *testing.T, seeds uint64, kind string, form sim.Form) *sim.Report {
	t.Helper()
	short(t)
	report := sim.NewReport()
	for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
		check(t, seed, playAs(t, seed, kind, report, form))
	}
	t.Log("\n" + report.String())
	return report
}

func TestNoInvariantBreaks(t *testing.T) {
	report := playMany(t, 160, "memory", sim.FormWhole)
	for _, kind := range sim.FaultKinds() {
		if report.Faults[kind] == 0 {
			t.Errorf("the fault %q was never injected", kind)
		}
	}
}

func TestNoInvariantBreaksOnSQLite(t *testing.T) {
	playMany(t, 30, "sqlite", sim.FormWhole)
}

// Several nodes are at work at once, over one store whose commits come between each other. Rules C1, C2, E1, N2, N4.
func TestNoInvariantBreaksWithManyNodes(t *testing.T) {
	report := playMany(t, 40, "memory", sim.FormNodes)
	for _, situation := range sim.NodeSituations {
		if report.Reached[situation] == 0 {
			t.Errorf("never seen: %s", situation)
		}
	}
}

// Runs are dropped a while after their end, by one node or by several: nothing that somebody waits for, and no key goes with them (K3). And
// schedules tick: each tick starts its run once (D2).
func TestNoInvariantBreaksWhereRunsAreDropped(t *testing.T) {
	report := playMany(t, 40, "memory", sim.FormSwept)
	for _, situation := range sim.SweptSituations[:2] { // the others are rare
		if report.Reached[situation] == 0 {
			t.Errorf("never seen: %s", situation)
		}
	}
}

// What a node has read is often old when it decides: only what a commit expects protects it (N1, N2).
func TestNoInvariantBreaksWhereReadsAreOld(t *testing.T) {
	if report := playMany(t, 30, "memory", sim.FormStale); report.Faults[sim.StaleRead] == 0 {
		t.Error("no read was old")
	}
}

// Code throws while its run waits for something, keys have a time, and schedules are paused (promise 13, K3, D2).
func TestNoInvariantBreaksInBroadSeeds(t *testing.T) {
	report := playMany(t, 60, "memory", sim.FormBroad)
	for _, situation := range sim.BroadSituations[:3] { // the others take schedules
		if report.Reached[situation] == 0 {
			t.Errorf("never seen: %s", situation)
		}
	}
}

// On deploys more changes than what the code does: steps say what they were called before (S7), and schedules
// have another expression or catch up otherwise (D1, D2).
func TestNoInvariantBreaksInChangingSeeds(t *testing.T) {
	report := playMany(t, 60, "memory", sim.FormChanging)
	for _, situation := range sim.ChangingSituations[:5] { // the others are rare
		if report.Reached[situation] == 0 {
			t.Errorf("never seen: %s", situation)
		}
	}
}

// Somebody locks runs for a while: what is to be written of them is refused alone, and comes again (N3).
func TestNoInvariantBreaksWhereRunsAreLocked(t *testing.T) {
	if report := playMany(t, 40, "memory", sim.FormLocked); report.Faults[sim.RunLocked] == 0 {
		t.Error("no change was refused")
	}
}

// short skips a test of the short form where another form was asked for.
func short(t *testing.T) {
	t.Helper()
	if *seedFlag != 0 || *seedsFlag != 0 {
		t.Skip("another form was asked for")
	}
}
