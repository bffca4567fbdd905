package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/workflow"
)

// scenario is a run of three steps: the second throws once, and the third starts another run.
func scenario() *plan {
	child := &workflowPlan{app: "appA", name: "child", retries: 2, lease: 5 * time.Second, versions: [][]*stepPlan{{
		{name: "only", retries: -1, takes: time.Millisecond, heeds: true},
	}}}
	parent := &workflowPlan{app: "appA", name: "parent", retries: 2, lease: 5 * time.Second, versions: [][]*stepPlan{{
		{name: "first", retries: -1, takes: 2 * time.Millisecond, heeds: true},
		{name: "throws once", retries: -1, takes: 700 * time.Millisecond, heeds: true, throws: 1},
		{name: "sends", retries: -1, takes: time.Millisecond, heeds: true, sends: 1, runs: child},
	}}}
	return &plan{
		nodes: 1,
		apps:  1, concurrency: 100, lease: 5 * time.Second, jitter: 0.5, workflows: []*workflowPlan{parent, child},
		// A start that fails is tried again, as its client would.
		clients: [][]operation{{
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: time.Millisecond, kind: opWait, wait: 20 * time.Second},
		}},
	}
}

// waits is a run that claims, sleeps, waits for an event, and for a child.
func waits() *plan {
	child := &workflowPlan{app: "appA", name: "child", retries: 2, lease: 5 * time.Second, versions: [][]*stepPlan{{
		{name: "only", retries: -1, takes: time.Millisecond, heeds: true},
	}}}
	parent := &workflowPlan{app: "appA", name: "parent", retries: 2, lease: 5 * time.Second, versions: [][]*stepPlan{{
		{name: "claims", kind: workflow.KindClaim, key: "key", fatal: true},
		{name: "sleeps", kind: workflow.KindSleep, lasts: 300 * time.Millisecond, fatal: true},
		{name: "invokes", kind: workflow.KindInvoke, invokes: child, fatal: true},
		{name: "waits", kind: workflow.KindEvent, event: "event 0", lasts: time.Minute, fatal: true},
		{name: "last", retries: -1, takes: time.Millisecond, heeds: true},
	}}}
	return &plan{
		nodes: 1,
		apps:  1, concurrency: 100, lease: 5 * time.Second, jitter: 0.5, workflows: []*workflowPlan{parent, child},
		// Starts and events that fail are tried again, as their client would.
		clients: [][]operation{{
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: 2 * time.Second, kind: opEmit, name: "event 0", key: "one"},
			{after: time.Millisecond, kind: opEmit, name: "event 0", key: "one"},
			{after: time.Millisecond, kind: opWait, wait: 20 * time.Second},
		}},
	}
}

// closings is a run that begins again once, notes what it did, and fails: it is undone, and its handler starts a child.
func closings() *plan {
	child := &workflowPlan{app: "appA", name: "child", retries: 2, lease: 5 * time.Second, versions: [][]*stepPlan{{
		{name: "only", retries: -1, takes: time.Millisecond, heeds: true},
	}}}
	parent := &workflowPlan{
		app: "appA", name: "parent", retries: 2, lease: 5 * time.Second, restarts: 1,
		versions: [][]*stepPlan{{
			{name: "charge", retries: -1, takes: time.Millisecond, heeds: true},
			{name: "give back", kind: workflow.KindUndo, takes: 2 * time.Millisecond, heeds: true, fatal: true},
			{name: "take back", kind: workflow.KindUndo, takes: 2 * time.Millisecond, heeds: true, fatal: true},
			{name: "fails", throws: 1, fails: 1, takes: time.Millisecond, heeds: true, fatal: true},
		}},
		onFailure: []*stepPlan{{name: "tell", retries: -1, takes: time.Millisecond, heeds: true, sends: 1, runs: child, fatal: true}},
	}
	return &plan{
		nodes: 1,
		apps:  1, concurrency: 100, lease: 5 * time.Second, jitter: 0.5, workflows: []*workflowPlan{parent, child},
		clients: [][]operation{{
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: time.Millisecond, kind: opStart, workflow: parent, key: "once"},
			{after: time.Millisecond, kind: opWait, wait: 20 * time.Second},
		}},
	}
}

func playScenario(t *testing.T, p *plan, f *failure) (r Result) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 7)
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		r = Run(7, Options{Store: s, Model: s, plan: p, fail: f}, NewReport())
	})
	return r
}

func TestEveryCallFailsOnceAndTheOutcomeIsExact(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario func() *plan
		steps    string // of the parent
		status   workflow.Status
	}{
		{"bodies", scenario, "first, throws once, sends", workflow.Completed},
		{"waits", waits, "claims=true, sleeps, invokes, waits=event, last", workflow.Completed},
		{"closings", closings, "charge, give back, take back, fails!, take back, give back, onFailure: tell", workflow.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			calm := playScenario(t, c.scenario(), &failure{})
			exact(t, calm, c.steps, c.status, "nothing fails", 0)
			played := 0
			for _, f := range failuresOf(calm) {
				name := fmt.Sprintf("%s %d: %s%s", f.what, f.nth, fateNames[f.fate], diskFates[f.disk])
				r := playScenario(t, c.scenario(), &f)
				exact(t, r, c.steps, c.status, name, 1)
				if played++; t.Failed() {
					t.Fatalf("%s\n%s", name, r.Trace())
				}
			}
			t.Logf("%d failures", played)
		})
	}
}

// failuresOf lists every way in which every message, read and commit of a simulation may fail.
func failuresOf(r Result) (list []failure) {
	w := r.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for nth := range w.failable[messages] {
		for f := lostRequest; f <= proxyAfter; f++ {
			list = append(list, failure{what: messages, nth: nth, fate: f})
		}
	}
	for nth := range w.failable[commits] {
		for f := fails; f <= crashAfter; f++ {
			list = append(list, failure{what: commits, nth: nth, disk: f})
		}
	}
	for nth := range w.failable[reads] {
		list = append(list, failure{what: reads, nth: nth, disk: fails})
	}
	return list
}

// exact checks that the parent and its child have ended with the results of their steps, and that no body ran more often than one cut
// allows.
func exact(t *testing.T, r Result, parent string, status workflow.Status, name string, more int) {
	t.Helper()
	for _, v := range r.Violations {
		t.Errorf("%s: %s", name, v)
	}
	w := r.world.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	runs := map[string]int{}
	for id, run := range w.runs {
		runs[run.Workflow]++
		if ended := map[string]workflow.Status{"parent": status, "child": workflow.Completed}[run.Workflow]; run.Status != ended {
			t.Errorf("%s: run %s of %s is %s", name, id, run.Workflow, run.Status)
		}
		var steps []string
		for _, e := range run.entries {
			text := e.saved.Name
			switch {
			case e.saved.Status != workflow.StepCompleted && e.saved.Name == "fails":
				text += "!"
			case e.saved.Status != workflow.StepCompleted:
				text += "!" + string(e.saved.Error)
			case e.saved.Kind == workflow.KindClaim:
				text += "=" + string(e.saved.Output)
			case e.saved.Kind == workflow.KindEvent && textOf(e.saved) == "one":
				text += "=event"
			}
			steps = append(steps, text)
		}
		want := map[string]string{"parent": parent, "child": "only"}[run.Workflow]
		if got := strings.Join(steps, ", "); got != want {
			t.Errorf("%s: the history of %s is %s", name, run.Workflow, got)
		}
	}
	if runs["parent"] != 1 || runs["child"] != 1 {
		t.Errorf("%s: these runs were started: %v", name, runs)
	}
	again := 0
	for id, n := range w.bodies {
		allowed := 1
		if id.Name == "throws once" {
			allowed = 2
		}
		again += max(0, n-allowed)
	}
	if again > more {
		t.Errorf("%s: bodies ran again %d times: %v", name, again, w.bodies)
	}
}
