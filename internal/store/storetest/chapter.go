package storetest

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// restarted begins a run again, as its current call asked, and begins its next call.
func restarted(t testing.TB, s store.Store, runID, payload string) workflow.Run {
	t.Helper()
	run := load(t, s, runID)
	d := apply(t, run, workflow.End{CallID: run.Call.ID, Kind: workflow.EndRestarted, Payload: jsontext.Value(payload)})
	must(t, s, store.UpdateRun{Run: d.Run, CloseWaits: d.CloseWaits, Chapter: d.Chapter})
	next := apply(t, d.Run, workflow.Begin{CallID: fmt.Sprintf("call_again_%d", d.Run.Restart), Token: "t"})
	must(t, s, store.UpdateRun{Run: next.Run})
	return next.Run
}

// Z2: a restart closes the history as a chapter; names, attempts, callbacks and sends begin anew, the events that were used stay used (E2).
func chaptersAreClosed(t *testing.T, s store.Store) {
	ctx := context.Background()
	run := begun(t, s, 1)
	must(t, s, store.InsertEvent{Event: store.Event{Env: "default", Name: "paid", ID: "e1", CreatedAt: T0}})
	child := NewRun(2)
	u := opening(t, run, sleeping("nap"), workflow.Wait{StepID: workflow.StepID{Name: "child", Number: 1}, Kind: workflow.KindInvoke, Child: child.ID},
		workflow.Wait{StepID: workflow.StepID{Number: 1}, Kind: workflow.KindCancel, Event: &workflow.EventWait{Names: []string{"stop"}}})
	u.Open[1].Start = &store.InsertRun{Run: child}
	must(t, s, u)
	callback := store.Callback{TokenHash: "h1", Env: "default", RunID: run.ID, StepID: workflow.StepID{Name: "approval", Number: 1}}
	send := store.Key{Env: "default", Kind: store.KeySend, Scope: run.ID, Key: "k", Owner: "run_9"}
	save := func(callID, output string) store.Result {
		return must(t, s, store.SaveSteps{RunID: run.ID, CallID: callID, Nonce: "n", Steps: []workflow.Step{step("a", 1, output)}, Starts: []store.Start{{StepID: workflow.StepID{Name: "b", Number: 1}, Attempt: 1, StartedAt: T0}}})
	}
	save("call_1", `1`)
	must(t, s, store.InsertCallback{Callback: callback}, store.UseEvent{RunID: run.ID, Position: 1}, store.TakeKey{Key: send, Now: T0})

	again := restarted(t, s, run.ID, `{"page":2}`)
	equal(t, string(record(t, s, run.ID).Payload), `{"page":2}`)
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})), "run_0001/child run_0001/ ") // an orphan, and cancelOn's
	refused(t, s, store.ErrStale, store.UseEvent{RunID: run.ID, Position: 1})
	res := save(again.Call.ID, `2`)
	equal(t, []any{res.Steps[0], res.Starts[0].Again, res.History.Entries}, []any{store.StepResult{Entry: 1}, false, int64(1)})
	callback.TokenHash = "h2"
	must(t, s, store.InsertCallback{Callback: callback})
	if !must(t, s, store.TakeKey{Key: send, Now: T0}).Keys[0].Taken {
		t.Error("K3: a chapter's derived keys outlive it")
	}
	second := NewRun(3)
	u = opening(t, load(t, s, run.ID), workflow.Wait{StepID: workflow.StepID{Name: "child", Number: 1}, Kind: workflow.KindInvoke, Child: second.ID})
	u.Open[0].Start = &store.InsertRun{Run: second}
	equal(t, must(t, s, u).Opened, []bool{true})

	replay := store.InsertRun{Run: NewRun(4), Replay: &store.Replay{RunID: run.ID, Entries: 1}}
	refused(t, s, store.ErrStale, replay) // its entries were of the chapter before
	replay.Replay.Restart = 1
	must(t, s, replay)

	chapters, err := s.Chapters(ctx, run.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, chapters, []store.Chapter{{Restart: 0, Payload: nil, Entries: 1, ClosedAt: T0.Add(time.Second)}})
	closed, err := s.Entries(ctx, store.EntryQuery{RunID: run.ID, Chapter: new(0), EntriesMax: 10, BytesMax: 1000})
	if err != nil || len(closed) != 1 {
		t.Fatalf("the closed chapter has %v, %v", closed, err)
	}
	equal(t, string(closed[0].Output), `1`)
	equal(t, string(entries(t, s, run.ID, 0)[0].Output), `2`)

	// The use of an event that is gone goes with the next chapter.
	must(t, s, store.InsertEvent{Event: store.Event{Env: "default", Name: "paid", ID: "e2", CreatedAt: T0}})
	equal(t, must(t, s, store.DropEvents{Before: T0, Limit: 10}).Dropped, 1)
	refused(t, s, store.ErrStale, store.UseEvent{RunID: run.ID, Position: 1})
	restarted(t, s, run.ID, `{"page":3}`)
	must(t, s, store.UseEvent{RunID: run.ID, Position: 1})
}

// Z2: a run that restarts for ever keeps its last chapters, and what it was first given.
func chaptersAreBounded(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	for n := range store.ChaptersKept + 3 {
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: run.Call.ID, Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`)}},
			store.AddLogs{RunID: run.ID, Restart: n, Lines: []store.LogLine{{At: T0, Level: "info", Attempt: 1, Line: 1}}, LinesMax: 5})
		run = restarted(t, s, run.ID, fmt.Sprint(n+1))
	}
	chapters, err := s.Chapters(context.Background(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, []int{len(chapters), chapters[0].Restart, chapters[1].Restart, int(chapters[0].Entries)}, []int{store.ChaptersKept + 1, 0, 3, 0})
	for restart, want := range map[int]int{0: 0, 2: 0, 3: 1, store.ChaptersKept + 2: 1} {
		list, err := s.Entries(context.Background(), store.EntryQuery{RunID: run.ID, Chapter: new(restart), EntriesMax: 10, BytesMax: 1000})
		if err != nil || len(list) != want {
			t.Errorf("chapter %d has %d entries, want %d (%v)", restart, len(list), want, err)
		}
	}
	lines, err := s.Logs(context.Background(), store.LogQuery{Env: "default", RunID: run.ID, Limit: 1000})
	if err != nil || len(lines) != store.ChaptersKept {
		t.Errorf("%d lines are left, want %d (%v)", len(lines), store.ChaptersKept, err)
	}
}

// Z1: a run that closes waits for nothing of what its code waited for, keeps what it ends with, and its final status keeps that too.
func closingsLeaveTheirWaits(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	must(t, s, opening(t, run, sleeping("nap")))
	run = load(t, s, run.ID)
	run.Closers = workflow.CloserUndo
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: run.Call.ID, Steps: []workflow.Step{step("a", 1, `1`), step("b", 1, `2`), step("c", 1, `3`)}})
	ended := workflow.End{CallID: run.Call.ID, Kind: workflow.EndFailed, Error: &workflow.Failure{Error: jsontext.Value(`{"name":"E"}`)}, Entries: 2}
	d := apply(t, run, ended)
	refused(t, s, store.ErrStale, store.UpdateRun{Run: d.Run, Error: d.Error, CloseWaits: d.CloseWaits}) // an entry came meanwhile
	ended.Entries = 3
	d = apply(t, run, ended)
	must(t, s, store.UpdateRun{Run: d.Run, Error: d.Error, CloseWaits: d.CloseWaits})
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})), "")
	equal(t, *load(t, s, run.ID).Ending, workflow.Ending{Reason: workflow.EndingFailed, At: T0.Add(time.Second), Closing: true, Entries: 3})
	next := apply(t, d.Run, workflow.Begin{CallID: "call_2", Token: "t"})
	must(t, s, store.UpdateRun{Run: next.Run})
	end := apply(t, next.Run, workflow.End{CallID: "call_2", Kind: workflow.EndCompleted})
	must(t, s, store.UpdateRun{Run: end.Run, Output: end.Output, Error: end.Error})
	got := record(t, s, run.ID)
	equal(t, []string{string(got.Status), string(got.Error)}, []string{"failed", `{"name":"E"}`})
}

// A line of a log is kept once: outside steps by its place in the history, in a step also by its call.
func linesAreKeptOnce(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	outside := store.LogLine{At: T0, Level: "info", Message: "outside", Fields: jsontext.Value(`{"n":1}`), Entry: 2, Attempt: 1, Line: 1}
	inside := store.LogLine{At: T0.Add(time.Second), Level: "warn", Message: "inside", StepID: workflow.StepID{Name: "a", Number: 1}, Attempt: 1, Line: 1}
	for _, callID := range []string{"call_1", "call_1", "call_2"} {
		must(t, s, store.AddLogs{RunID: run.ID, CallID: callID, Lines: []store.LogLine{outside, inside}, LinesMax: 3})
	}
	list := func(after int64) (out []string) {
		lines, err := s.Logs(context.Background(), store.LogQuery{Env: "default", RunID: run.ID, After: after, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			out = append(out, fmt.Sprint(l.Position, l.Level, l.Message, l.Name, l.Number, l.Entry, string(l.Fields)))
		}
		return out
	}
	equal(t, list(0), []string{`1infooutside0 2{"n":1}`, "2warninsidea1 0", "3warninsidea1 0"})
	equal(t, len(list(2)), 1)
	inside.Line = 2
	must(t, s, store.AddLogs{RunID: run.ID, CallID: "call_1", Lines: []store.LogLine{inside}, LinesMax: 3})
	equal(t, len(list(0)), 3)
}
