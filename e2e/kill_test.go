package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/e2e/plan"
	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/client"
	"github.com/nelkap/nelkap/internal/id"
)

// How much is killed in the short form. The variables ask for more, or for a seed that was printed.
const (
	envServerKills = "E2E_SERVER_KILLS"
	envAppKills    = "E2E_APP_KILLS"
	envSeed        = "E2E_SEED"

	serverKillsStd = 200
	appKillsStd    = 20
)

// loaders is how many runs of each app are under way at once, and a bound of what the load is at any time.
const loaders = 6

// How long a server, or an app that plays runs, lives at most before it is killed. An app must have the time to save some steps: one
// that is cut off ten times in a row fails, as it should (C13).
const (
	serverUpMax = 300 * time.Millisecond
	appUpMax    = time.Second
)

// number reads a variable.
func number(t *testing.T, name string, std int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return std
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// chance is a test's randomness; its seed is logged.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := number(t, envSeed, int(time.Now().UnixNano()%1_000_000))
	t.Logf("%s=%d plays the same kills again, as far as time allows", envSeed, seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// acked is what the API has acknowledged.
type acked struct {
	mu     sync.Mutex
	runs   []string
	events []string
}

// load starts runs of an app, one after the other, until stop is closed; each loader has one run or event under way at a time.
func (w *world) load(app string, stop chan struct{}, a *acked) *sync.WaitGroup {
	var group sync.WaitGroup
	for i := range loaders {
		group.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				case <-w.t.Context().Done():
					return
				default:
				}
				if n%4 == 3 {
					w.emitLoad(app, a)
					continue
				}
				if runID := w.startLoad(app, loadPlans[n%4], a); runID != "" {
					w.waitLoad(runID, stop)
				}
			}
		})
	}
	return &group
}

// loadAll starts the load of every app. stop ends it, and returns when nobody asks for more.
func (w *world) loadAll() (a *acked, stop func()) {
	a = &acked{}
	stopped := make(chan struct{})
	var groups []*sync.WaitGroup
	for _, language := range languages {
		groups = append(groups, w.load(language, stopped, a))
	}
	return a, func() {
		close(stopped)
		for _, group := range groups {
			group.Wait()
		}
	}
}

// loadPlans are the runs of a load: steps in a row, a step that throws, a step that starts a run and emits an event.
var loadPlans = []plan.Plan{
	{Steps: []plan.Step{{Name: "one", TakesMs: 20}, {Name: "two", TakesMs: 5}, {Name: "three"}, {Name: "four", TakesMs: 40}}},
	{Steps: []plan.Step{{Name: "one"}, {Name: "throws", TakesMs: 10, Throws: 2}, {Name: "three", TakesMs: 10}}},
	{Steps: []plan.Step{{Name: "one", TakesMs: 10}, {Name: "starts", Child: true, Emit: true, TakesMs: 10}, {Name: "three"}}},
}

// startLoad starts a run, again and again with the same id while the server is away, until it is acknowledged.
func (w *world) startLoad(app string, p plan.Plan, a *acked) string {
	request := client.StartRun{Workflow: plan.Planned, App: app, Payload: asJSON(w.t, p), ID: id.New(id.Run)}
	for w.t.Context().Err() == nil {
		started, err := w.api.StartRun(w.t.Context(), request)
		if err != nil {
			continue // the client has paused already
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.runs = append(a.runs, started.ID)
		return started.ID
	}
	return ""
}

func (w *world) emitLoad(app string, a *acked) {
	payload := asJSON(w.t, plan.Plan{Steps: []plan.Step{{Name: "small"}}})
	request := client.Event{Event: plan.Event(app), Payload: payload, ID: id.New(id.Event)}
	for w.t.Context().Err() == nil {
		if _, err := w.api.Emit(w.t.Context(), request); err != nil {
			continue
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.events = append(a.events, request.ID)
		return
	}
}

// waitLoad waits for a run's end, so that the load is bounded.
func (w *world) waitLoad(runID string, stop chan struct{}) {
	for w.t.Context().Err() == nil {
		select {
		case <-stop:
			return
		default:
		}
		if run, err := w.api.Run(w.t.Context(), runID, time.Second); err == nil && run.EndedAt != nil {
			return
		}
	}
}

// newLoaded makes a world with both apps, all started.
func newLoaded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	var flags []string
	for _, language := range languages {
		addr := freeAddress(t)
		w.app(language, addr).start()
		flags = append(flags, "--app", appURL(addr))
	}
	w.dev(flags...).start()
	for _, language := range languages {
		w.ready(language)
	}
	return w
}

func TestAServerThatIsKilledAnytimeLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	w, random, kills := newLoaded(t), chance(t), number(t, envServerKills, serverKillsStd)
	a, stop := w.loadAll()
	started := time.Now()
	for range kills {
		pass(t.Context(), time.Duration(random.Int64N(int64(serverUpMax))))
		w.server.kill()
		w.server.launch()
		eventually(t, within, "the server to be ready again", func() bool {
			if w.server.hasEnded() {
				t.Fatalf("the server does not start again:\n%s", w.server.lastWords())
			}
			return healthy(t.Context(), w.server.health)
		})
	}
	took := time.Since(started)
	stop()
	all := w.judgeLoad(a)
	repeats := w.judgeMarks(func(first, again plan.Mark) string { return "no app was killed" })
	t.Logf("%d kills in %v; %s; %d repeats", kills, took.Round(time.Second), all, repeats)
	if kills == 0 {
		t.Error("nothing was killed")
	}
}

func TestAppsThatAreKilledAnytimeRepeatOnlyWhatWasCutOff(t *testing.T) {
	t.Parallel()
	w, random, kills := newLoaded(t), chance(t), number(t, envAppKills, appKillsStd)
	a, stop := w.loadAll()
	started := time.Now()
	for i := range kills * len(languages) {
		app := w.apps[languages[i%len(languages)]]
		pid := app.pid()
		eventually(t, within, "bodies to run in "+app.name, func() bool { return w.hasBodyOf(pid) })
		pass(t.Context(), time.Duration(random.Int64N(int64(appUpMax))))
		app.kill()
		app.launch()
	}
	took := time.Since(started)
	stop()
	all := w.judgeLoad(a)
	repeats := w.judgeMarks(func(first, again plan.Mark) string {
		if first.PID == again.PID {
			return fmt.Sprintf("process %d ran both", first.PID)
		}
		return ""
	})
	t.Logf("%d kills of each app in %v; %s; %d bodies repeated", kills, took.Round(time.Second), all, repeats)
	if repeats == 0 {
		t.Error("no kill has cut a step off: the test shows nothing")
	}
}

func (w *world) hasBodyOf(pid int) bool {
	marks := w.marks()
	for i := len(marks) - 1; i >= 0; i-- {
		if marks[i].PID == pid {
			return true
		}
	}
	return false
}

// total is what became of a load.
type total struct{ acknowledged, children, events, runs, steps int }

func (c total) String() string {
	return fmt.Sprintf("%d runs and %d events acknowledged, %d runs in all with %d children, %d steps saved, nothing lost",
		c.acknowledged, c.events, c.runs, c.children, c.steps)
}

// judgeLoad waits until every run has ended, and checks that what was acknowledged is there, and nothing twice.
func (w *world) judgeLoad(a *acked) total {
	w.t.Helper()
	for _, runID := range a.runs {
		w.completed(runID, time.Minute)
	}
	runs := w.allEnded()
	last := map[string]map[string]string{}
	for _, m := range w.marks() {
		if last[m.Run] == nil {
			last[m.Run] = map[string]string{}
		}
		if m.Kind == plan.MarkBody {
			last[m.Run][m.Step] = m.ID
		}
	}
	sum := total{acknowledged: len(a.runs), events: len(a.events), runs: len(runs)}
	children, emitted, byEvent := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, eventID := range a.events {
		emitted[eventID] = true
	}
	for _, run := range runs {
		if run.Status != "completed" {
			w.t.Errorf("a run %s: %s", run.Status, asJSON(w.t, run))
			continue
		}
		if run.EventID != nil {
			byEvent[*run.EventID]++
		}
		results := resultsOf(w.t, w, run.ID, last[run.ID])
		if want := len(decode[plan.Plan](w.t, run.Payload).Steps); len(results) != want {
			w.t.Errorf("run %s has %d steps, want %d", run.ID, len(results), want)
		}
		sum.steps += len(results)
		for _, result := range results {
			if result.Child != "" {
				children[result.Child] = true
				emitted[result.Event] = true
			}
		}
	}
	sum.children = len(children)
	w.judgeStarts(runs, a, children, emitted, byEvent)
	if sum.acknowledged == 0 || sum.events == 0 || sum.children == 0 || sum.steps == 0 {
		w.t.Errorf("the load did nothing of some kind: %+v", sum)
	}
	return sum
}

// judgeStarts checks that there are just the runs that were asked for: from outside, as children, and by events.
func (w *world) judgeStarts(runs map[string]apitype.Run, a *acked, children, emitted map[string]bool, byEvent map[string]int) {
	w.t.Helper()
	direct := 0
	for _, run := range runs {
		if run.EventID == nil {
			direct++
		}
	}
	if want := len(a.runs) + len(children); direct != want {
		w.t.Errorf("%d runs were started without an event, want %d", direct, want)
	}
	for _, runID := range a.runs {
		if _, ok := runs[runID]; !ok {
			w.t.Errorf("run %s was acknowledged, and is lost", runID)
		}
	}
	for child := range children {
		if _, ok := runs[child]; !ok {
			w.t.Errorf("run %s was started in a step, and is lost", child)
		}
	}
	for eventID := range emitted {
		if byEvent[eventID] != 1 {
			w.t.Errorf("event %s started %d runs, want 1", eventID, byEvent[eventID])
		}
	}
	for eventID := range byEvent {
		if !emitted[eventID] {
			w.t.Errorf("event %s started a run, and nobody emitted it", eventID)
		}
	}
}

// allEnded waits until no run is under way, and gives them all.
func (w *world) allEnded() map[string]apitype.Run {
	w.t.Helper()
	runs := map[string]apitype.Run{}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	query := client.RunQuery{Page: client.Page{Limit: 100}}
	for {
		list, err := w.api.Runs(ctx, query)
		if err != nil {
			w.t.Fatalf("listing runs: %v", err)
		}
		for _, run := range list.Data {
			if run.EndedAt == nil {
				run = w.end(run.ID, time.Minute)
			}
			runs[run.ID] = run
		}
		if list.NextCursor == nil {
			return runs
		}
		query.Cursor = *list.NextCursor
	}
}

// judgeMarks counts the bodies that ran again as the same attempt. wrong says why one was not to; empty if it may.
func (w *world) judgeMarks(wrong func(first, again plan.Mark) string) (repeats int) {
	w.t.Helper()
	before := map[body]plan.Mark{}
	for _, m := range w.marks() {
		if m.Kind != plan.MarkBody {
			continue
		}
		b := body{m.Run, m.Step, m.Attempt}
		if first, again := before[b]; again {
			repeats++
			if why := wrong(first, m); why != "" {
				w.t.Errorf("attempt %d of step %q of %s ran again: %s", m.Attempt, m.Step, m.Run, why)
			}
		}
		before[b] = m
	}
	return repeats
}
