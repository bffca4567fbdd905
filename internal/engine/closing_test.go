package engine_test

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nelkap/nelkap/internal/call"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

func undo(name string) wire.Item {
	return wire.Item{Op: wire.OpUndo, Kind: "undo", Name: name, Number: 1}
}

// undone is the body of an undo.
func undone(name string) wire.Item {
	it := completed(name, `1`)
	it.Number = 2
	return it
}

func (n *node) cancel(t testing.TB, id string, force bool) store.RunRecord {
	t.Helper()
	r, err := n.Cancel(context.Background(), engine.DefaultEnv, id, force)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Z1: what is saved just before the closing begins is undone too: a save raises no version (N1).
func TestAClosingCoversWhatIsSavedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, undo("give back"))
		n.cancel(t, id, false)
		var meanwhile sync.Once
		s.set(func(changes []store.Change) error {
			update, ok := changes[0][0].(store.UpdateRun)
			if _, begins := update.ExpectsEntries(); ok && begins {
				meanwhile.Do(func() {
					late := store.SaveSteps{RunID: id, CallID: first.Call.Call.ID, Nonce: "n", Steps: []workflow.Step{{
						StepID: workflow.StepID{Name: "late", Number: 1}, Kind: workflow.KindRun, Status: workflow.StepCompleted,
					}}}
					if _, err := s.Store.Commit(t.Context(), []store.Change{{late}}); err != nil {
						t.Error(err)
					}
				})
			}
			return nil
		})
		first.end(t, wire.End{Type: wire.Yielded, Nonce: "n"})
		closing := a.next(t, time.Second)
		want(t, "the entries that it covers", closing.Ending.Entries, int64(2))
	})
}

func (n *node) logs(t testing.TB, s store.Store, id string) []string {
	t.Helper()
	lines, err := s.Logs(context.Background(), store.LogQuery{Env: engine.DefaultEnv, RunID: id, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimSpace(l.Level+" "+l.Message+" "+l.Name+" "+string(l.Fields)))
	}
	return out
}

// Z1: a cancelled run waits for nothing any more, cancels its children, and is called to undo; asked again, that goes on.
func TestACancelledRunIsCalledToUndo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, s := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, undo("give back"))
		first.suspend(t, "n", 1, invoke("child", "child"), sleep("nap", time.Hour))
		child := a.next(t, time.Second)
		if r := n.cancel(t, id, false); r.Status.Final() || !r.Closing() {
			t.Fatalf("a run that has to undo is %s at once", r.Status)
		}
		closing := a.next(t, time.Second)
		want(t, "ending", *closing.Ending, wire.Closing{Reason: "cancelled", Entries: 1})
		want(t, "open waits", len(closing.Steps.Waiting), 0)
		time.Sleep(time.Second)
		if n.run(t, child.Run.ID).Ending == nil {
			t.Error("the child goes on")
		}
		n.cancel(t, id, false)
		closing.nonce = "n1"
		closing.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "busy"}, Retriable: true, Retries: 1})
		synctest.Wait()
		want(t, "a closing that waits, cancelled", n.cancel(t, id, false).Status, workflow.Waiting)
		closing = a.next(t, time.Minute)
		n.save(closing, "n2", 1, undone("give back"))
		closing.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Cancelled)
		child.lose()
		time.Sleep(2 * time.Hour) // nothing of the nap is left
		a.none(t, time.Second)
		if left, err := s.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfKin}); err != nil || len(left) != 0 {
			t.Errorf("left is %+v, %v", left, err)
		}
	})
}

// Z1: a handler is called for what it handles, whenever the run ends: also before its first call, and before its time.
func TestARunThatWasNeverCalledTellsThatItIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", OnCancel: true})
		n, _ := startApp(t, a, engine.Options{})
		s, err := n.StartRun(context.Background(), engine.StartRequest{Env: engine.DefaultEnv, Workflow: "w", Payload: jsontext.Value(`1`), Delay: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		n.cancel(t, s.Run.ID, false)
		closing := a.next(t, time.Second)
		want(t, "ending", *closing.Ending, wire.Closing{Reason: "cancelled"})
		closing.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "the run", n.run(t, s.Run.ID).Status, workflow.Cancelled)
		time.Sleep(2 * time.Hour)
		a.none(t, time.Second)
	})
}

// Z1: a handler is called for its own ending alone.
func TestARunThatEndsOtherwiseIsNotClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "tells when cancelled", OnCancel: true}, wire.Workflow{Name: "tells when failed", OnFailure: true})
		n, _ := startApp(t, a, engine.Options{})
		fails := n.start(t, "tells when cancelled").Run.ID
		a.next(t, time.Second).end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}})
		cancelled := n.start(t, "tells when failed").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, sleep("nap", time.Hour))
		n.cancel(t, cancelled, false)
		completes := n.start(t, "tells when failed").Run.ID
		a.next(t, time.Second).end(t, wire.End{Type: wire.Completed})
		a.none(t, time.Hour)
		for id, status := range map[string]workflow.Status{fails: workflow.Failed, cancelled: workflow.Cancelled, completes: workflow.Completed} {
			want(t, "the run", n.run(t, id).Status, status)
		}
	})
}

// Z1: a run that fails, or takes too long, has its onFailure called with the error that it keeps.
func TestAFailedRunTellsWhatItFailedWith(t *testing.T) {
	for _, c := range []struct {
		reason, name string
		fail         func(t *testing.T, first *sentCall)
	}{
		{"failed", "TypeError", func(t *testing.T, first *sentCall) {
			first.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "TypeError", Message: "no"}})
		}},
		{"timedOut", "TimeoutError", func(t *testing.T, first *sentCall) {
			time.Sleep(time.Hour + time.Second)
			first.end(t, wire.End{Type: wire.Yielded})
		}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := newApp(wire.Workflow{Name: "w", OnFailure: true, OnCancel: true, TimeoutMs: time.Hour.Milliseconds()})
				n, s := startApp(t, a, engine.Options{Stall: 100 * time.Hour})
				id := n.start(t, "w").Run.ID
				first := a.next(t, time.Second)
				polled, cancel := context.WithCancel(context.Background())
				go n.pollFor(polled, first)
				c.fail(t, first)
				cancel()
				closing := a.next(t, time.Second)
				want(t, "reason", closing.Ending.Reason, c.reason)
				if !strings.Contains(string(closing.Ending.Error), c.name) {
					t.Errorf("the handler is told %s", closing.Ending.Error)
				}
				polled, cancel = context.WithCancel(context.Background())
				go n.pollFor(polled, closing)
				time.Sleep(2 * time.Hour) // a closing has no timeout
				cancel()
				// What the handler throws is tried again, and for good it stands in the log.
				closing.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "busy"}, Retriable: true, Retries: 1})
				again := a.next(t, time.Minute)
				want(t, "attempt", again.Run.Attempt, 2)
				again.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "still busy"}, Retriable: true, Retries: 1})
				synctest.Wait()
				ended := n.run(t, id)
				want(t, "the run", ended.Status, workflow.Failed)
				if !strings.Contains(string(ended.Error), c.name) {
					t.Errorf("the run ended with %s", ended.Error)
				}
				lines := n.logs(t, s, id)
				if len(lines) != 1 || !strings.Contains(lines[0], "did not finish") || !strings.Contains(lines[0], "still busy") {
					t.Errorf("the log has %q", lines)
				}
			})
		})
	}
}

// pollFor names a call, as its process does while it plays it.
func (n *node) pollFor(ctx context.Context, c *sentCall) {
	for ctx.Err() == nil {
		if _, err := n.Heartbeat(ctx, wire.Heartbeat{Process: "process", Calls: []wire.Named{{Fence: c.fence(c.nonce)}}, WaitMs: 5000}); err != nil {
			return
		}
	}
}

// C13 in a closing: an undo that is cut off ten times fails as a step does, and the rest is done.
func TestAnUndoThatIsCutOffTenTimesFailsAndTheClosingGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, undo("give back"))
		first.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}})
		for range workflow.CutsMax {
			closing := a.next(t, time.Minute)
			n.save(closing, "n"+closing.Call.Call.ID, 1, wire.Item{Op: wire.OpStart, Kind: "run", Name: "give back", Number: 2, Attempt: 1})
			closing.lose()
		}
		last := a.next(t, time.Minute)
		entry := last.Steps.Entries[1]
		if entry.Number != 2 || !strings.Contains(string(entry.Error), "StepCutOffError") {
			t.Errorf("the undo's entry is %+v", entry)
		}
		last.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Failed)
		want(t, "lines", len(n.logs(t, s, id)), 0)
	})
}

// A run can always be got rid of: by force it is over at once, whatever is in flight.
func TestForceEndsARunWhateverItDoes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", OnCancel: true})
		n, _ := startApp(t, a, engine.Options{})
		running := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		want(t, "a run in a call", n.cancel(t, running, true).Status, workflow.Cancelled)
		want(t, "its call", n.save(first, "n", 0, completed("late", `1`)).Status, wire.Ended)
		first.lose()

		closing := n.start(t, "w").Run.ID
		a.next(t, time.Second).suspend(t, "n", 0, sleep("nap", time.Hour))
		n.cancel(t, closing, false)
		last := a.next(t, time.Second)
		want(t, "a run that closes", n.cancel(t, closing, true).Status, workflow.Cancelled)
		want(t, "its call", n.save(last, "m", 1, completed("late", `1`)).Status, wire.Ended)
		want(t, "a run that has ended", n.cancel(t, closing, true).Status, workflow.Cancelled)
		last.lose()
		a.none(t, time.Hour)
	})
}

// Z1: a closing that no app can play waits for one, and says so.
func TestAClosingWaitsForItsWorkflow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, undo("give back"))
		first.suspend(t, "n", 1, sleep("nap", time.Hour))
		n.cancel(t, id, false)
		gone := a.next(t, time.Second)
		gone.answer <- call.Outcome{Kind: call.Refused, Code: call.CodeWorkflowUnknown}
		synctest.Wait()
		if w := n.Waiting(n.run(t, id).Run); w == nil || !strings.Contains(w.Reason, "has no workflow") {
			t.Errorf("it says that it waits for %+v", w)
		}
		back := a.next(t, time.Minute)
		back.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Cancelled)
	})
}

// K5, Z1: a replay takes over what is to be undone, and nothing of the closing.
func TestAReplayTakesOverWhatIsToBeUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, undo("give back"))
		n.save(first, "n", 1, wire.Item{Op: wire.OpFailed, Kind: "run", Name: "b", Number: 1, Attempt: 1, Error: &wire.Error{Name: "Error", Message: "no"}})
		first.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}})
		closing := a.next(t, time.Second)
		n.save(closing, "m", 2, undone("give back"))
		closing.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()

		if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: id, From: "b"}); err != nil {
			t.Fatal(err)
		}
		replay := a.next(t, time.Second)
		want(t, "what it keeps", len(replay.Steps.Entries), 1)
		replay.nonce = "r"
		replay.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "again"}})
		again := a.next(t, time.Second)
		want(t, "its closing", *again.Ending, wire.Closing{Reason: "failed", Error: again.Ending.Error, Entries: 1})
		again.end(t, wire.End{Type: wire.Completed})
		plan, err := n.PlanReplay(context.Background(), engine.DefaultEnv, id, "")
		if err != nil || len(plan.Acts) != 2 {
			t.Errorf("the plan has %+v, %v", plan.Acts, err)
		}
	})
}

// Z2: a restart leaves what its chapter waited for, may use its names again, and a replay begins where its run began.
func TestARestartBeginsAgainInItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "child"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, invoke("child", "child"))
		child := a.next(t, time.Second)
		n.save(first, "n", 0, completed("a", `1`), undo("give back"))
		first.end(t, wire.End{Type: wire.Restarted, Payload: jsontext.Value(`{"page":2}`)})
		again := a.next(t, time.Second)
		want(t, "restart", again.Run.Restart, 1)
		want(t, "payload", string(again.Run.Payload), `{"page":2}`)
		want(t, "entries", len(again.Steps.Entries), 0)
		time.Sleep(time.Second)
		if n.run(t, child.Run.ID).Ending == nil {
			t.Error("the chapter's child goes on")
		}
		child.end(t, wire.End{Type: wire.Yielded})
		again.suspend(t, "m", 0, invoke("child", "child")) // the same name, and another child
		second := a.next(t, time.Second)
		want(t, "the second child's parent", n.run(t, second.Run.ID).Parent, id)
		second.nonce = "s"
		second.end(t, wire.End{Type: wire.Completed, Output: jsontext.Value(`5`)})
		last := a.next(t, time.Minute)
		want(t, "history", last.history(), "child=5")
		last.nonce = "l"
		last.end(t, wire.End{Type: wire.Failed, Error: &wire.Error{Name: "Error", Message: "no"}})
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Failed) // the chapter's undo is forgotten

		for _, r := range []struct {
			from, payload string
			keep          bool
			restart       int // that its steps' idempotency keys are made from (S8)
		}{{"", `null`, false, 0}, {"", `null`, true, 0}, {"child", `{"page":2}`, true, 1}, {"child", `{"page":2}`, false, 0}} {
			if _, err := n.Replay(context.Background(), engine.ReplayRequest{Env: engine.DefaultEnv, RunID: id, From: r.from, KeepKeys: &r.keep}); err != nil {
				t.Fatal(err)
			}
			replay := a.next(t, time.Second)
			want(t, "the replay's payload", string(replay.Run.Payload), r.payload)
			want(t, "the restart in its keys", replay.Run.Restart, r.restart)
			want(t, "whose keys it has", replay.Run.Root == id, r.keep)
			replay.nonce = "r"
			replay.end(t, wire.End{Type: wire.Completed})
		}
	})
}

// A line of a log is stored with where it was written, and once, however often it is sent.
func TestLinesAreStoredOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		first.nonce = "n"
		lines := []wire.LogLine{
			{At: wire.At(time.Now()), Level: "info", Message: "before", Fields: jsontext.Value(`{"n":1}`), Attempt: 1, Line: 1},
			{At: wire.At(time.Now()), Level: "warn", Message: "inside", Step: &wire.StepRef{Name: "a", Number: 1}, Attempt: 1, Line: 1},
		}
		save := func(lines []wire.LogLine, items ...wire.Item) string {
			return n.Save(context.Background(), wire.Saves{Process: "process", Saves: []wire.Save{{Fence: first.fence("n"), Logs: lines, Items: items}}}).Saves[0].Status
		}
		want(t, "a save", save(lines, completed("a", `1`)), wire.Accepted)
		want(t, "again", save(lines), wire.Accepted)
		want(t, "with a claim", save(lines, undo("u")), wire.Accepted)
		bad := lines[0]
		bad.Level = "loud"
		want(t, "a level that is none", save([]wire.LogLine{bad}), wire.Invalid)
		first.end(t, wire.End{Type: wire.Completed, Logs: []wire.LogLine{{Level: "error", Message: "after", Entry: 2, Attempt: 1, Line: 1}}})
		synctest.Wait()
		want(t, "the run", n.run(t, id).Status, workflow.Completed)
		want(t, "the log", n.logs(t, s, id), []string{`info before  {"n":1}`, "warn inside a", "error after"})
	})
}

// S7: what a run's code did not ask for is said on the run, until it asks for it again.
func TestARunIsWarnedOfStepsThatNobodyAsksFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		n.save(first, "n", 0, completed("old", `1`))
		suspended := wire.End{Type: wire.Suspended, Seen: 1, Register: []wire.Item{sleep("nap", time.Minute)}, Waits: []wire.Tree{leaf("nap")}, Unasked: []wire.StepRef{{Name: "old", Number: 1}}}
		first.end(t, suspended)
		synctest.Wait()
		if warning := n.run(t, id).Warning; !strings.Contains(warning, `"old"`) || !strings.Contains(warning, "was") {
			t.Errorf("the warning is %q", warning)
		}
		next := a.next(t, 2*time.Minute)
		next.nonce = "m"
		next.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		want(t, "the warning of code that asks for all", n.run(t, id).Warning, "")
	})
}

// D3: verify plays the whole history of each live run, says what would diverge, and touches nothing.
func TestVerifySaysWhatWouldDivergeAndTouchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"}, wire.Workflow{Name: "gone"})
		n, s := startApp(t, a, engine.Options{})
		live := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		var items []wire.Item
		for i := range wire.PageEntriesMax + 5 {
			it := completed("a", `1`)
			it.Number = i + 1
			items = append(items, it)
		}
		n.save(first, "n", 0, items...)
		first.suspend(t, "n", int64(len(items)), sleep("nap", time.Hour))
		done := n.start(t, "w").Run.ID
		ended := a.next(t, time.Second)
		ended.end(t, wire.End{Type: wire.Completed})
		synctest.Wait()
		before := n.run(t, live)
		a.mu.Lock()
		a.verify = func(m wire.Verify) *wire.Verified {
			want(t, "entries", len(m.Steps.Entries), len(items))
			want(t, "waiting", m.Steps.Waiting, []wire.Waiting{{Kind: "sleep", Name: "nap", Number: 1}})
			return &wire.Verified{Type: "verified", Unasked: []wire.Waiting{{Kind: "run", Name: "a", Number: 7}}, Asked: []wire.Waiting{}, End: wire.VerifiedThrew, Error: &wire.Error{Name: "TypeError", Message: "no"}}
		}
		a.mu.Unlock()
		page, err := n.Verify(context.Background(), engine.VerifyRequest{Env: engine.DefaultEnv, URL: "http://127.0.0.1:3000", Limit: 10}, false)
		if err != nil || len(page.Runs) != 1 || page.Runs[0].Run.ID != live {
			t.Fatalf("%+v, %v (%s has ended)", page, err, done)
		}
		text := strings.Join(page.Runs[0].Problems, "\n")
		for _, part := range []string{`"a" (run, number 7)`, "repeated names shift", `does not wait for "nap"`, "throws TypeError: no"} {
			if !strings.Contains(text, part) {
				t.Errorf("it does not say %q:\n%s", part, text)
			}
		}
		want(t, "the run", n.run(t, live), before)
		a.none(t, time.Second)
		if runs := allRuns(t, s); len(runs) != 2 {
			t.Errorf("there are %d runs", len(runs))
		}
	})
}

// What the code wrote before a result that could not be saved is stored with it: the next call is shown the result, and does not write again.
func TestLinesBeforeAnUnsavedResultAreStoredWithIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w"})
		n, s := startFaulty(t, a)
		refused := false // the end is, once, and what it brought stands
		s.set(func(changes []store.Change) error {
			for _, c := range changes {
				if u, ok := c[0].(store.UpdateRun); ok && u.Run.Status == workflow.Completed && !refused {
					refused = true
					return store.ErrBadChange
				}
			}
			return nil
		})
		id := n.start(t, "w").Run.ID
		lines := []wire.LogLine{{Level: "info", Message: "before a", Attempt: 1, Line: 1}}
		a.next(t, time.Second).end(t, wire.End{Type: wire.Completed, Nonce: "n", Unsaved: []wire.Item{completed("a", `1`)}, Logs: lines})
		c := a.next(t, time.Minute)
		want(t, "the history", c.history(), "a=1")
		c.end(t, wire.End{Type: wire.Completed, Nonce: "m", Seen: 1})
		synctest.Wait()
		want(t, "status", n.run(t, id).Status, workflow.Completed)
		want(t, "the log", n.logs(t, s, id), []string{"info before a"})
	})
}

// Z1: a run that closes takes nothing for what its code had waited for, and nobody is told that it did; what its handler waits for it takes.
func TestAClosingTakesPostsForItsOwnCallbacksAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newApp(wire.Workflow{Name: "w", OnCancel: true})
		n, _ := startApp(t, a, engine.Options{})
		id := n.start(t, "w").Run.ID
		first := a.next(t, time.Second)
		asked := n.saveCallback(first, 0, nil)
		first.suspend(t, "n", 1, wire.Item{Op: wire.OpWait, Kind: "callback", Name: "approval", Number: 2, Of: 1})
		post := func(token string) error {
			return n.EndCallback(context.Background(), token, jsontext.Value(`"yes"`))
		}
		n.cancel(t, id, false)
		closing := a.next(t, time.Second)
		if err := post(asked); !errors.Is(err, engine.ErrCallbackOver) {
			t.Errorf("the code's was told %v", err)
		}
		made := n.save(closing, "n1", 1, wire.Item{Op: wire.OpCallback, Kind: "callback", Name: "refund", Number: 1})
		_, own, _ := strings.Cut(string(made.Items[0].Output), `"token":"`)
		own, _, _ = strings.Cut(own, `"`)
		closing.suspend(t, "n1", 2, wire.Item{Op: wire.OpWait, Kind: "callback", Name: "refund", Number: 2, Of: 1})
		if err := post(own); err != nil {
			t.Errorf("the handler's was told %v", err)
		}
		if got := a.next(t, time.Second).history(); !strings.Contains(got, `"yes"`) {
			t.Errorf("the closing goes on with %s", got)
		}
	})
}
