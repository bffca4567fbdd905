package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// What becomes of a child is told apart by its parent, and nothing of the server's own comes as a value.
func TestAParentTellsApartWhatBecomesOfItsChild(t *testing.T) {
	ends := func(end wire.End) func(*testing.T, *node, *sentCall) {
		return func(t *testing.T, _ *node, child *sentCall) { child.end(t, end) }
	}
	for outcome, c := range map[string]struct {
		end  func(t *testing.T, n *node, child *sentCall)
		says string
	}{
		"nothing":  {ends(wire.End{Type: wire.Completed}), "child="},
		"null":     {ends(wire.End{Type: wire.Completed, Output: jsontext.Value(`null`)}), "child=null"},
		"an error": {ends(wire.End{Type: wire.Failed, Error: &wire.Error{Name: "TypeError", Message: "no"}}), `child!{"name":"TypeError","message":"no"}`},
		"cancelled": {func(t *testing.T, n *node, child *sentCall) {
			if _, err := n.Cancel(context.Background(), engine.DefaultEnv, child.Run.ID, false); err != nil {
				t.Fatal(err)
			}
			child.end(t, wire.End{Type: wire.Yielded})
		}, `child!{"name":"RunCancelledError"`},
	} {
		t.Run(outcome, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				a.next(t, time.Second).suspend(t, "n", 0, invoke("child", "child"))
				child := a.next(t, time.Second)
				child.nonce = "c"
				c.end(t, n, child)
				got := a.next(t, time.Minute).history()
				if got != c.says && (!strings.Contains(c.says, "Cancelled") || !strings.HasPrefix(got, c.says)) {
					t.Errorf("its parent is told %s, want %s", got, c.says)
				}
			})
		})
	}
}

// Rule H2: a child that has ended before its parent suspends wakes it all the same.
func TestAChildThatEndsBeforeItsParentSuspendsWakesIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		parent := a.next(t, time.Second)
		n.save(parent, "n", 0, invoke("child", "child"))
		a.next(t, time.Second).end(t, wire.End{Type: wire.Completed, Output: jsontext.Value(`5`)})
		time.Sleep(500 * time.Millisecond)
		parent.nonce = "n"
		parent.end(t, wire.End{Type: wire.Suspended, Waits: []wire.Tree{leaf("child")}})
		want(t, "its history", a.next(t, time.Second).history(), "child=5")
	})
}

// Rule K1: of many children that one step starts, each is there once, though the server stops half-way and the step runs again.
func TestManyChildrenOfOneStepAreEachStartedOnce(t *testing.T) {
	const children = 500
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		s := memory.New()
		n := startNode(t, s, a, engine.Options{})
		n.know(t)
		parent := n.start(t, "w").Run.ID
		send := func(c *sentCall, nonce string, from, to int) (ids []string) {
			for i := from; i <= to; i++ {
				started, err := n.StartRun(context.Background(), engine.StartRequest{
					Env: engine.DefaultEnv, Workflow: "child", ID: id.New(id.Run), Payload: jsontext.Value(fmt.Sprint(i)),
					Send: &wire.Send{Fence: c.fence(nonce), Step: wire.StepRef{Name: "start", Number: 1}, Place: i},
				})
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, started.Run.ID)
			}
			return ids
		}
		first := send(a.next(t, time.Second), "n", 1, children/2)
		n.stop()
		n = startNode(t, s, a, engine.Options{})
		n.know(t)
		again := a.next(t, 6*time.Minute)
		for again.Run.ID != parent || again.ctx.Err() != nil {
			again = a.next(t, 6*time.Minute)
		}
		all := send(again, "m", 1, children)
		if !slices.Equal(all[:len(first)], first) {
			t.Error("the step that ran again started others")
		}
		want(t, "runs", len(allRuns(t, s)), 1+children)
	})
}

// Whatever a payload is, a replay gets the same bytes.
func TestAReplayGetsItsPayloadAsItWas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		for _, payload := range []string{
			`"ord_1"`, `"123"`, `"null"`, `null`, `0`, `1.0`, `[]`, `{}`, `""`, `false`, `"2027-01-01T00:00:00.000Z"`, `"😀\ud83d\ude00"`, `"` + strings.Repeat("x", 1_000_000) + `"`,
		} {
			run := n.startWith(t, engine.StartRequest{Payload: jsontext.Value(payload)}).Run.ID
			a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
			synctest.Wait()
			if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: run}); err != nil {
				t.Fatal(err)
			}
			c := a.next(t, time.Second)
			if string(c.Run.Payload) != payload {
				t.Errorf("%.40s came back as %.40s", payload, c.Run.Payload)
			}
			c.end(t, wire.End{Type: wire.Completed})
		}
	})
}

// A replay is a run like any other: where its app is away, it waits for it.
func TestAReplayWaitsForItsApp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		original := n.start(t, "w").Run.ID
		a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		replay, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: original})
		if err != nil {
			t.Fatal(err)
		}
		a.none(t, 10*time.Minute)
		a.fail(nil)
		c := a.next(t, 2*time.Minute)
		want(t, "the run", c.Run.ID, replay.Run.ID)
	})
}

// Rule Z1: a parent that ends takes its children with it, also where its time is over.
func TestAParentWhoseTimeIsOverCancelsItsChildren(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", TimeoutMs: 2000}, wire.Workflow{Name: "child"})
		n, s := startApp(t, a, engine.Options{})
		parent := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, invoke("child", "child"))
		child := a.next(t, time.Second)
		child.suspend(t, "c", 0, sleep("nap", time.Hour))
		time.Sleep(20 * time.Second)
		want(t, "the parent", n.run(t, parent).Status, workflow.Failed)
		want(t, "the child", n.run(t, child.Run.ID).Status, workflow.Cancelled)
		nothingLeft(t, n, s, parent)
	})
}

// However many children a run leaves behind, they are cancelled side by side: events and timers of other runs do not wait for them.
func TestManyChildrenThatAreLeftHoldUpNoOtherRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const children = 1_000
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startFaulty(t, a)
		other := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, forEvent("go", "go"))
		parent := n.start(t, "w").Run.ID
		var items []wire.Item
		for i := range children {
			items = append(items, invoke(fmt.Sprint("child", i), "child"))
		}
		a.next(t, time.Second).suspend(t, "n", 0, items...)
		s.set(func([]store.Change) error { time.Sleep(20 * time.Millisecond); return nil })
		if _, err := n.Cancel(t.Context(), engine.DefaultEnv, parent, true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		n.emit(t, engine.NewEvent{Name: "go"})
		began := time.Now()
		for {
			_, history, err := s.Load(t.Context(), other)
			if err != nil || time.Since(began) > time.Minute {
				t.Fatalf("the event is not given to its wait: %v", err)
			}
			if history.Entries > 0 {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("an event was given to its wait after %v", took)
		}
	})
}
