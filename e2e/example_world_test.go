package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
)

// examplesDir is the folder of the small examples: one folder for each idea, with a program in each language.
const examplesDir = "../examples"

// ideas are the examples, in the order of examples/README.md.
var ideas = []string{
	"reminder", "approval", "wait-for-payment", "fan-out", "race", "nightly-report", "one-per-customer", "careful-charge", "trip", "follow-feed",
}

// builtExamples brings the examples together in a folder, as TestMain does with the rest, when the first of them is played.
var builtExamples = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(built.server), "examples")
	if err := os.MkdirAll(filepath.Join(dir, "go"), 0o755); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "go"), "./...")
	build.Dir = examplesDir
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the examples: %w\n%s", err, out)
	}
	if err := os.Symlink(filepath.Join(built.typescript, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		return "", err
	}
	sources, err := filepath.Glob(filepath.Join(examplesDir, "*", "*.ts"))
	if err != nil {
		return "", err
	}
	for _, file := range append(sources, filepath.Join(examplesDir, "package.json")) {
		to := filepath.Join(dir, strings.TrimPrefix(file, examplesDir))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := copyFile(file, to, 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
})

// example is one example's app beside a server of its own.
type example struct {
	*world
	idea  string
	app   *process
	fixed []string // the flags that each start has
}

// play starts an example's app in a language, with flags, and a server.
func play(t *testing.T, language, idea string, flags ...string) *example {
	t.Helper()
	dir, err := builtExamples()
	if err != nil {
		t.Fatal(err)
	}
	tsx, err := filepath.Abs(filepath.Join(examplesDir, "node_modules", "tsx", "dist", "loader.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tsx); err != nil {
		t.Fatalf("what the examples need is not installed: run npm ci in the folder examples (%v)", err)
	}
	w, addr := newWorld(t), freeAddress(t)
	x := &example{world: w, idea: idea, fixed: []string{"--port", portOf(addr)}}
	x.app = &process{
		t: t, name: "the example", path: filepath.Join(dir, "go", idea), health: appURL(addr),
		env: []string{"NELKAP_APP=" + idea, "NELKAP_DEV=1", "NELKAP_URL=" + w.url},
	}
	if language == "typescript" {
		x.app.path = "node"
		x.fixed = append([]string{"--import", tsx, filepath.Join(dir, idea, idea+".ts")}, x.fixed...)
	}
	x.app.tidy()
	x.start(flags...)
	w.dev("--memory", "--app", appURL(addr)).start()
	w.ready(idea)
	return x
}

// start starts the app with flags, once more where it was killed.
func (x *example) start(flags ...string) {
	x.t.Helper()
	x.app.args = slices.Concat(x.fixed, flags)
	x.app.start()
}

// emit emits an event, and gives the run of the workflow that it has started, where a workflow is named.
func (x *example) emit(event string, payload any, workflow string) (runID string) {
	x.t.Helper()
	emitted, err := x.api.Emit(x.t.Context(), client.Event{Event: event, Payload: asJSON(x.t, payload)})
	if err != nil {
		x.t.Fatalf("emitting %s: %v", event, err)
	}
	if workflow == "" {
		return ""
	}
	for _, run := range x.runs(workflow) {
		if run.EventID != nil && *run.EventID == emitted.ID {
			return run.ID
		}
	}
	x.t.Fatalf("%s has started no run of %s", event, workflow)
	return ""
}

func (x *example) runs(workflow string) []apitype.Run {
	x.t.Helper()
	list, err := x.api.Runs(x.t.Context(), client.RunQuery{Workflow: workflow})
	if err != nil {
		x.t.Fatalf("listing the runs of %s: %v", workflow, err)
	}
	return list.Data
}

// run starts a run by hand.
func (x *example) run(workflow string, payload any) string {
	x.t.Helper()
	started, err := x.api.StartRun(x.t.Context(), client.StartRun{Workflow: workflow, App: x.idea, Payload: asJSON(x.t, payload)})
	if err != nil {
		x.t.Fatalf("starting a run of %s: %v", workflow, err)
	}
	return started.ID
}

// rests waits until a run rests on something: no call of it is open.
func (x *example) rests(runID string) {
	x.t.Helper()
	eventually(x.t, within, "the run to rest", func() bool { return x.get(runID).Status == "waiting" })
}

// ends waits until a run has completed, with an output.
func (x *example) ends(runID string, want any) {
	x.t.Helper()
	run := x.completed(runID, 2*within)
	if want, got := string(asJSON(x.t, want)), compact(x.t, run.Output); got != want {
		x.t.Errorf("run %s gave %s, want %s", runID, got, want)
	}
}

// compact is a value with its object's members in order and no spaces.
func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	return string(asJSON(t, decode[any](t, text)))
}

// printed is how many lines with a text the app has printed, all its processes together.
func (x *example) printed(text string) int { return bytes.Count(x.app.linesWith(text), []byte("\n")) }

// awaits waits until the app has printed a text.
func (x *example) awaits(text string) {
	x.t.Helper()
	eventually(x.t, within, fmt.Sprintf("the app to print %q", text), func() bool { return x.printed(text) > 0 })
}

// prints checks how often the app has printed each text.
func (x *example) prints(want map[string]int) {
	x.t.Helper()
	for text, times := range want {
		if got := x.printed(text); got != times {
			x.t.Errorf("the app has printed %q %d times, want %d", text, got, times)
		}
	}
}
