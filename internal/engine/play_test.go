package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Rule C3.
func TestABeginThatWasNeverSentIsVoid(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		first.lose()
		time.Sleep(30 * time.Second) // cut, begun again and again, never sent
		want(t, "a save of the older call", n.save(first, "n", 0, completed("a", `1`)).Status, wire.Accepted)
		want(t, "status", n.run(t, id).Status, workflow.Running)
	})
}

// Rule C3: what the store could not take back it takes back later. Nobody plays that call, so that to wait until it is found cut would be to
// wait for nothing, and count as a cut.
func TestABeginThatCouldNotBeTakenBackIsTakenBackLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		n.start(t, "w")
		first := a.next(t, time.Second)
		s.failsOnce()
		first.answer <- call.Outcome{Kind: call.Refused, Code: call.CodeStopping, Reason: "it stops"}
		second := a.next(t, 5*time.Second)
		want(t, "epoch", second.Call.Call.Epoch, int64(2))
		want(t, "cuts", second.Call.Call.Cuts, 0)
	})
}

// An app has no more calls at once than it takes, also where a call that is gone could not be cut off.
func TestACallThatCouldNotBeCutOffKeepsItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		s := &faulty{Store: memory.New()}
		n := startNode(t, s, a, engine.Options{Concurrency: 1})
		n.know(t)
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		other := n.start(t, "w").Run.ID
		want(t, "save", n.save(first, "n", 0).Status, wire.Accepted)
		first.lose()
		s.failsOnce()
		second := a.next(t, 15*time.Second)
		want(t, "run", second.Run.ID, other)
		want(t, "status of the first", n.run(t, id).Status, workflow.Queued)
	})
}

func TestAnAppThatCannotBeUsedIsPausedAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		a.fail(&call.Outcome{Kind: call.Unusable, Status: 404, Reason: "the app answered 404"})
		for range 50 {
			n.start(t, "w")
		}
		time.Sleep(10 * time.Minute)
		if sends := a.sends(); sends > 100 {
			t.Errorf("C14: %d requests of calls to an app that can't be used", sends)
		}
		run := n.run(t, n.start(t, "w").Run.ID)
		w := n.Waiting(run.Run)
		if w == nil || !strings.Contains(w.Reason, "the app answered 404") || time.Until(w.NextAt) > time.Minute {
			t.Fatalf("W5: the run does not say why it waits: %+v", w)
		}
		versions := map[string]int64{}
		for _, id := range allRuns(t, s) {
			versions[id] = n.run(t, id).Version
		}
		time.Sleep(10 * time.Minute)
		for id, v := range versions {
			if got := n.run(t, id).Version; got != v {
				t.Fatalf("C14: run %s was written while its app was paused: version %d, then %d", id, v, got)
			}
		}
		a.fail(nil)
		began := time.Now()
		for range 51 {
			a.next(t, 2*time.Minute)
		}
		if took := time.Since(began); took > time.Minute+time.Second*12 {
			t.Errorf("the runs went on only after %v", took)
		}
	})
}

// Rule C14: an app that still saves is there, though its address can't be used, and is looked at soon.
func TestAPauseDoesNotGrowWhileTheAppIsHeardOf(t *testing.T) {
	for name, word := range map[string]func(*node, *testing.T, *sentCall){
		"by its saves": func(n *node, _ *testing.T, c *sentCall) {
			for range 100 { // which show another manifest, as those of the version before do
				n.Save(context.Background(), wire.Saves{Process: "process", Manifest: "older", Saves: []wire.Save{{Fence: c.fence("n")}}})
			}
		},
		"by its polls": func(n *node, t *testing.T, c *sentCall) { n.poll(t, time.Millisecond, c.fence("n")) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w"})
				n, _ := startApp(t, a, engine.Options{})
				n.start(t, "w")
				playing := a.next(t, time.Second)
				n.save(playing, "n", 0)
				a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
				n.start(t, "w")
				for range 320 { // by itself the pause has grown to a minute by now
					time.Sleep(time.Second)
					word(n, t, playing)
				}
				if sends := a.sends(); sends > 10 {
					t.Errorf("%d calls went to an app that can't be used", sends)
				}
				if looks := a.looks(); looks > 330 {
					t.Errorf("in 320 s it was looked at %d times", looks)
				}
				a.fail(nil)
				a.next(t, 11*time.Second)
			})
		})
	}
}

// Many runs that find their app away at once have found it away once.
func TestAShortAbsenceIsAShortPauseHoweverManyRunsMeetIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
		const runs = 50
		for range runs {
			go n.StartRun(t.Context(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w"})
		}
		synctest.Wait()
		a.fail(nil)
		began := time.Now()
		for range runs {
			a.next(t, 10*time.Second)
		}
		if took := time.Since(began); took > 1200*time.Millisecond {
			t.Errorf("C14: the runs went on %v after the app was back", took)
		}
	})
}

func TestAWorkflowThatIsGoneWaitsAndGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "other"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		a.next(t, time.Second).answer <- call.Outcome{Kind: call.Refused, Code: call.CodeWorkflowUnknown}
		synctest.Wait()
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Waiting)
		if w := n.Waiting(run.Run); w == nil || !strings.Contains(w.Reason, `no workflow "w"`) {
			t.Fatalf("promise 15: it does not say so: %+v", w)
		}
		calls := 0
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			select {
			case c := <-a.calls:
				calls++
				c.answer <- call.Outcome{Kind: call.Refused, Code: call.CodeWorkflowUnknown}
			case <-time.After(time.Minute + timerSlack):
				t.Fatal("W5: no look within a minute")
			}
		}
		if calls > 80 {
			t.Errorf("Q1: %d calls in an hour", calls)
		}
		n.start(t, "other")
		a.next(t, time.Second)
		c := a.next(t, 2*time.Minute)
		want(t, "run", c.Run.ID, id)
		c.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

func TestAnAnswerThatIsNoAnswerIsACut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		for i, body := range []string{`{`, `{"type":"sideways"}`, `{"type":"suspended","seen":0}`} {
			a.next(t, time.Minute).answer <- call.Outcome{Kind: call.Answered, Body: []byte(body)}
			want(t, "the cuts that the next call knows of", a.app(t).cuts, i+1)
		}
	})
}

// app looks at the next call and puts it back.
func (a *app) app(t testing.TB) struct{ cuts int } {
	t.Helper()
	c := a.next(t, time.Minute)
	a.calls <- c
	return struct{ cuts int }{c.Call.Call.Cuts}
}

func TestTenCutsInARowFailTheStepThatWasCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		for i := range 10 {
			c := a.next(t, time.Minute)
			want(t, "cuts", c.Call.Call.Cuts, i)
			if i > 0 {
				start := wire.Item{Op: wire.OpStart, Kind: "run", Name: "poison", Number: 1, Attempt: 1}
				want(t, "start", n.save(c, fmt.Sprint(i), 0, start).Items[0].Status, wire.ItemStarted)
			}
			c.lose()
		}
		last := a.next(t, time.Minute)
		if len(last.Steps.Entries) != 1 || last.Steps.Entries[0].Status != "failed" {
			t.Fatalf("C13: the history is %+v", last.Steps.Entries)
		}
		for _, word := range []string{"StepCutOffError", "10 times", "a time limit"} {
			if text := string(last.Steps.Entries[0].Error); !strings.Contains(text, word) {
				t.Errorf("the step's error does not say %q: %s", word, text)
			}
		}
		last.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

// Rule C13.
func TestTenCutsOutsideStepsFailTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		for range 10 {
			a.next(t, time.Minute).lose()
		}
		time.Sleep(time.Minute)
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Failed)
		if !strings.Contains(string(run.Error), "RunCutOffError") {
			t.Errorf("the error is %s", run.Error)
		}
	})
}

// Rule C13.
func TestASavedStepStartsTheCountOfCutsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		for i := range 25 {
			c := a.next(t, time.Minute)
			if i%5 == 4 {
				item := completed("a", `1`)
				item.Number = i
				n.save(c, fmt.Sprint(i), int64(i/5), item)
			}
			c.lose()
		}
		a.next(t, time.Minute)
		want(t, "status", n.run(t, id).Status, workflow.Running)
	})
}

// Rule C12.
func TestThreeYieldsWithoutProgressFailTheRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		c := a.next(t, time.Second)
		c.end(t, wire.End{Type: wire.Yielded})
		c = a.next(t, time.Second)
		c.end(t, wire.End{Type: wire.Yielded, Unsaved: []wire.Item{completed("a", `1`)}}) // progress
		for range 3 {
			a.next(t, time.Second).end(t, wire.End{Type: wire.Yielded, Seen: 1})
		}
		synctest.Wait()
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Failed)
		if !strings.Contains(string(run.Error), "NoProgressError") {
			t.Errorf("the error is %s", run.Error)
		}
	})
}

// Rule C12.
func TestYieldsThatSayNothingOfProgressAreNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		for range 10 {
			a.next(t, time.Second).end(t, wire.End{Type: wire.Yielded, Excused: true})
		}
		a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "status", n.run(t, id).Status, workflow.Completed)
	})
}

func TestACallThatAStoppingProcessRefusesIsMadeAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		for range 20 {
			a.next(t, 2*time.Second).answer <- call.Outcome{Kind: call.Refused, Code: call.CodeStopping}
			a.none(t, 900*time.Millisecond) // W4: it is due a second later
		}
		c := a.next(t, 2*time.Second)
		want(t, "cuts", c.Call.Call.Cuts, 0)
		if apps := n.Apps(engine.DefaultEnv); apps[0].Reason != "" {
			t.Errorf("C14: the app is paused: %s", apps[0].Reason)
		}
	})
}

func TestAnAppGetsNoMoreCallsThanItTakesOldestFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{Concurrency: 3})
		var ids []string
		for range 10 {
			ids = append(ids, n.start(t, "w").Run.ID)
			time.Sleep(time.Millisecond)
		}
		var open []*sentCall
		for i := range ids {
			if len(open) == 3 {
				a.none(t, time.Second)
				open[0].end(t, wire.End{Type: wire.Completed})
				open = open[1:]
			}
			c := a.next(t, time.Second)
			want(t, "run", c.Run.ID, ids[i])
			open = append(open, c)
		}
	})
}

// Rule Z1.
func TestARunThatOutlivesItsTimeoutFails(t *testing.T) {
	workflowOf := func() *app { return newApp(wire.Workflow{Name: "w", TimeoutMs: 60_000}) }
	failed := func(t *testing.T, n *node, id string) {
		t.Helper()
		run := n.run(t, id)
		want(t, "status", run.Status, workflow.Failed)
		if !strings.Contains(string(run.Error), "TimeoutError") {
			t.Errorf("the error is %s", run.Error)
		}
	}
	t.Run("while its app can't be reached", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := workflowOf()
			n, _ := startApp(t, a, engine.Options{})
			a.fail(&call.Outcome{Kind: call.NotSent, Reason: "connection refused"})
			id := n.start(t, "w").Run.ID
			time.Sleep(time.Minute + timerSlack)
			failed(t, n, id)
		})
	})
	t.Run("in a body, which may still save", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := workflowOf()
			n, _ := startApp(t, a, engine.Options{})
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Second)
			time.Sleep(time.Minute)
			news := n.poll(t, 10*time.Second, c.fence("n"))
			if len(news) != 1 || news[0].Status != wire.Ending || news[0].Ending.Reason != workflow.EndingTimedOut {
				t.Fatalf("news: %+v", news)
			}
			out := n.save(c, "n", 0, completed("a", `1`))
			want(t, "save", out.Items[0].Status, wire.ItemSaved)
			want(t, "a start", n.save(c, "n", 1, wire.Item{Op: wire.OpStart, Kind: "run", Name: "b", Number: 1, Attempt: 1}).Items[0].Status, wire.ItemRefused)
			c.end(t, wire.End{Type: wire.Yielded, Seen: 1})
			synctest.Wait()
			failed(t, n, id)
		})
	})
}

// Rules H2, Z1.
func TestCancelled(t *testing.T) {
	cancel := func(t *testing.T, n *node, id string) {
		t.Helper()
		for range 2 { // asked twice, answered the same
			run, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false)
			if err != nil || run.Ending == nil {
				t.Fatalf("%+v, %v", run, err)
			}
		}
	}
	t.Run("while queued, it ends at once and is never called", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{Concurrency: 1})
			n.start(t, "w")
			first := a.next(t, time.Second)
			id := n.start(t, "w").Run.ID
			cancel(t, n, id)
			want(t, "status", n.run(t, id).Status, workflow.Cancelled)
			first.end(t, wire.End{Type: wire.Completed})
			a.none(t, time.Hour)
		})
	})
	t.Run("while waiting for a retry", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			id := n.start(t, "w").Run.ID
			a.next(t, time.Second).end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}, Retriable: true, Retries: 4})
			synctest.Wait()
			want(t, "status", n.run(t, id).Status, workflow.Waiting)
			cancel(t, n, id)
			want(t, "status", n.run(t, id).Status, workflow.Cancelled)
			a.none(t, time.Hour)
		})
	})
	t.Run("in a body that never settles, it ends after the grace", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Second)
			began := time.Now()
			cancel(t, n, id)
			want(t, "status", n.run(t, id).Status, workflow.Running)
			news := n.poll(t, 5*time.Second, c.fence("n"))
			want(t, "told after", time.Since(began), time.Duration(0))
			want(t, "news", news[0].Status, wire.Ending)
			time.Sleep(workflow.GraceStd + timerSlack)
			want(t, "status", n.run(t, id).Status, workflow.Cancelled)
			want(t, "a save after the end", n.save(c, "n", 0, completed("a", `1`)).Status, wire.Ended)
			if c.ctx.Err() == nil {
				t.Error("the request of the ended call is still open")
			}
		})
	})
	t.Run("in a body whose app dies", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			id := n.start(t, "w").Run.ID
			c := a.next(t, time.Second)
			cancel(t, n, id)
			c.lose()
			time.Sleep(10 * time.Second)
			want(t, "status", n.run(t, id).Status, workflow.Cancelled)
		})
	})
	t.Run("after its end, nothing changes", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			a := newApp(wire.Workflow{Name: "w"})
			n, _ := startApp(t, a, engine.Options{})
			id := n.start(t, "w").Run.ID
			a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
			synctest.Wait()
			run, err := n.Cancel(context.Background(), engine.DefaultEnv, id, false)
			if err != nil || run.Status != workflow.Completed {
				t.Fatalf("W3: %+v, %v", run, err)
			}
		})
	})
}

func TestAReplayIsANewRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		first, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Payload: []byte(`{"a":1.0,"b":"\u0041\ud800"}`)})
		if err != nil {
			t.Fatal(err)
		}
		c := a.next(t, time.Second)
		n.save(c, "n", 0, completed("a", `1`))
		c.end(t, wire.End{Type: wire.Completed})
		seen := map[string]bool{first.Run.ID: true}
		of := first.Run.ID
		for range 3 { // twice, and the replay of a replay
			r, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: of})
			if err != nil || !r.Created || seen[r.Run.ID] || r.Run.ReplayOf != of {
				t.Fatalf("%+v, %v", r, err)
			}
			seen[r.Run.ID] = true
			again := a.next(t, time.Second)
			want(t, "payload", string(again.Run.Payload), `{"a":1.0,"b":"\u0041\ud800"}`)
			want(t, "saved steps", len(again.Steps.Entries), 0)
			again.end(t, wire.End{Type: wire.Completed})
			of = map[bool]string{true: r.Run.ID, false: first.Run.ID}[len(seen) == 3]
		}
		synctest.Wait()
		want(t, "the original", n.run(t, first.Run.ID).Status, workflow.Completed)
	})
}

// Rule H5.
func TestTenThousandStepsComeInPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		n.start(t, "w")
		c := a.next(t, time.Second)
		const steps = 10_000
		for from := 1; from <= steps; from += 500 {
			var items []wire.Item
			for i := from; i < from+500; i++ {
				item := completed("a", `1`)
				item.Number = i
				items = append(items, item)
			}
			out := n.save(c, "n", int64(from-1), items...)
			want(t, "entry", out.Items[499].Entry, int64(from+499))
		}
		item := completed("a", `1`)
		item.Number = steps + 1
		want(t, "one too many", n.save(c, "n", steps, item).Items[0].Status, wire.ItemRefused)
		c.lose()
		c = a.next(t, time.Minute)
		entries, next := c.Steps.Entries, c.Steps.Next
		for next != nil {
			page, err := n.Steps(context.Background(), c.fence("m"), *next)
			if err != nil {
				t.Fatal(err)
			}
			entries, next = append(entries, page.Entries...), page.Next
		}
		want(t, "entries", len(entries), steps)
		for i, e := range entries {
			if e.Entry != int64(i+1) || e.Number != i+1 {
				t.Fatalf("W9: entry %d is %+v", i+1, e)
			}
		}
	})
}
