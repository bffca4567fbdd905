package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// ending is the write that completes a run n seconds after T0.
func ending(t testing.TB, run workflow.Run, n int) store.UpdateRun {
	t.Helper()
	d, err := workflow.Apply(run, workflow.End{CallID: run.Call.ID, Kind: workflow.EndCompleted, Output: jsontext.Value(`1`)}, T0.Add(time.Duration(n)*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return store.UpdateRun{Run: d.Run, Output: d.Output}
}

// kept are the numbers of the runs that are there, the newest first.
func kept(t testing.TB, s store.Store) string {
	t.Helper()
	list, err := s.Runs(context.Background(), store.RunQuery{Env: "default", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range list {
		ids = append(ids, strings.TrimPrefix(r.ID, "run_000"))
	}
	return strings.Join(ids, " ")
}

// dropped drops runs that ended at most n seconds after T0, and says how many went.
func dropped(t testing.TB, s store.Store, n, limit int) int {
	t.Helper()
	return must(t, s, store.DropRuns{Before: T0.Add(time.Duration(n) * time.Second), Limit: limit}).Dropped
}

func oldRunsAreDropped(t *testing.T, s store.Store) {
	for n, ended := range []int{0, 5, 3, 3, 9} { // run 0 lives
		run := begun(t, s, n)
		if ended > 0 {
			must(t, s, ending(t, run, ended))
		}
	}
	equal(t, dropped(t, s, 2, 10), 0)
	equal(t, dropped(t, s, 5, 1), 1) // of two that ended at once, the first by its id
	equal(t, kept(t, s), "4 3 1 0")
	equal(t, dropped(t, s, 5, 10), 2)
	equal(t, kept(t, s), "4 0")
	if _, err := s.Record(context.Background(), "default", NewRun(1).ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a run that was dropped: %v", err)
	}
	refused(t, s, store.ErrNotFound, store.InsertRun{Run: NewRun(5), Replay: &store.Replay{RunID: NewRun(1).ID}})
	// A batch sees what it has dropped, and drops what it has ended.
	results, err := s.Commit(context.Background(), []store.Change{
		{ending(t, load(t, s, NewRun(0).ID), 10)},
		{store.DropRuns{Before: T0.Add(time.Minute), Limit: 10}},
		{store.AddLogs{RunID: NewRun(4).ID, Lines: []store.LogLine{{At: T0}}, LinesMax: 9}},
		{store.InsertRun{Run: NewRun(4)}},
	})
	if err != nil || results[1].Dropped != 2 || results[3].Err != nil {
		t.Fatalf("%+v, %v", results, err)
	}
	equal(t, kept(t, s), "4")
}

// Fill makes the n-th run, which has something in every place where a run may have something.
func Fill(t testing.TB, s store.Store, n int) {
	t.Helper()
	run, token := begun(t, s, n), fmt.Sprint("h", n)
	id := func(name string) workflow.StepID { return workflow.StepID{Name: name, Number: 1} }
	fill := func(run workflow.Run, token string) {
		must(t, s, store.SaveSteps{
			RunID: run.ID, CallID: run.Call.ID, Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`)},
			Retries: []workflow.Retry{{StepID: id("b"), Attempt: 1, Error: jsontext.Value(`{}`), StartedAt: T0, EndedAt: T0, RetryAt: T0.Add(time.Second)}},
		})
		must(t, s, store.AddLogs{RunID: run.ID, Restart: run.Restart, Lines: []store.LogLine{{At: T0, Level: "info", Message: "m", Line: 1}}, LinesMax: 9})
		must(t, s, store.InsertCallback{Callback: store.Callback{TokenHash: token, Env: "default", RunID: run.ID, StepID: id("c")}})
	}
	fill(run, token+"first")
	again := restarted(t, s, run.ID, `{"page":2}`)
	fill(again, token)
	must(t, s, store.UseEvent{RunID: run.ID, Position: 1})
	must(t, s, opening(t, load(t, s, run.ID), sleeping("nap"), workflow.Wait{StepID: id("e"), Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{"paid"}}}))
	for _, kind := range []store.KeyKind{store.KeyRun, store.KeyClaim} {
		must(t, s, store.TakeKey{Key: store.Key{Env: "default", Kind: kind, Scope: "shop\x00w", Key: token, Owner: run.ID}, Now: T0})
	}
}

// End completes the n-th run a second after T0.
func End(t testing.TB, s store.Store, n int) {
	t.Helper()
	must(t, s, ending(t, load(t, s, NewRun(n).ID), 1))
}

// Long histories go in small pieces: what is dropped ends with the run that reaches the bound.
func longHistoriesAreDroppedAFewAtATime(t *testing.T, s store.Store) {
	for n := range 5 { // two entries and two lines each, in two chapters, but for the last
		if n < 4 {
			Fill(t, s, n)
		} else {
			begun(t, s, n)
		}
		End(t, s, n)
	}
	for _, c := range []struct {
		rows, dropped int
		left          string
	}{{1, 1, "4 3 2 1"}, {5, 2, "4 3"}, {4, 1, "4"}, {0, 1, ""}} {
		res := must(t, s, store.DropRuns{Before: T0.Add(time.Hour), Limit: 10, RowsMax: c.rows})
		equal(t, res.Dropped, c.dropped)
		equal(t, kept(t, s), c.left)
	}
}

// So do large results, however few they are.
func largeHistoriesAreDroppedAFewAtATime(t *testing.T, s store.Store) {
	for n := range 4 {
		run := begun(t, s, n)
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: run.Call.ID, Steps: []workflow.Step{step("a", 1, `"12345678"`)}})
		End(t, s, n)
	}
	for _, c := range []struct {
		bytes, dropped int
		left           string
	}{{1, 1, "3 2 1"}, {11, 2, "3"}, {0, 1, ""}} {
		res := must(t, s, store.DropRuns{Before: T0.Add(time.Hour), Limit: 10, RowsMax: 100, BytesMax: c.bytes})
		equal(t, res.Dropped, c.dropped)
		equal(t, kept(t, s), c.left)
	}
}

// K3: a run's keys outlive it, and nothing else of it does; other runs keep what is theirs.
func droppedRunsLeaveTheirKeys(t *testing.T, s store.Store) {
	ctx := context.Background()
	other, run := NewRun(1), NewRun(2)
	for n := 1; n <= 2; n++ {
		Fill(t, s, n)
		End(t, s, n)
	}
	must(t, s, ending(t, begun(t, s, 3), 1000))
	whole := Dump(t, s).States[other.ID]
	must(t, s, store.InsertRun{Run: NewRun(4), Replay: &store.Replay{RunID: run.ID, Restart: 1, Entries: 1}})
	must(t, s, store.UpdateRun{Run: withStatus(load(t, s, other.ID), T0.Add(time.Hour))}) // it stays, as it was
	whole.Run = load(t, s, other.ID)

	equal(t, dropped(t, s, 1, 10), 1)
	equal(t, kept(t, s), "4 3 1")
	equal(t, Dump(t, s).States[other.ID], whole)
	equal(t, len(entries(t, s, NewRun(4).ID, 0)), 1) // a replay's are its own
	keys, err := s.Keys(ctx, store.KeyQuery{Env: "default", Kind: store.KeyRun, Scope: "shop\x00w", Now: T0})
	if err != nil || len(keys) != 2 || keys[1].Owner != run.ID || keys[1].OwnerStatus != "" {
		t.Errorf("K3: the keys are %+v, %v", keys, err)
	}
	claims, err := s.Keys(ctx, store.KeyQuery{Env: "default", Kind: store.KeyClaim, Scope: "shop\x00w", Now: T0})
	if err != nil || len(claims) != 2 || claims[0].OwnerStatus != "" || claims[1].OwnerStatus != workflow.Completed || !claims[1].OwnerEndedAt.Equal(T0.Add(time.Second)) {
		t.Errorf("K3: the claims are %+v, %v", claims, err)
	}
	passed := claims[1]
	passed.Owner, passed.OwnerStatus, passed.OwnerEndedAt = other.ID, "", time.Time{}
	must(t, s, store.PassKey{Key: passed, From: run.ID})
	if claims, err = s.Keys(ctx, store.KeyQuery{Env: "default", Kind: store.KeyClaim, Scope: "shop\x00w", Now: T0}); err != nil || !reflect.DeepEqual(claims[1], passed) {
		t.Errorf("K5: the claim that passed on is %+v, %v", claims[1], err)
	}
	for _, token := range []string{"h2", "h2first"} {
		if _, err := s.Callback(ctx, store.CallbackQuery{TokenHash: token}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("callback %s: %v", token, err)
		}
	}
}

func claimsOfDroppedRunsExpire(t *testing.T, s store.Store) {
	for n, c := range []struct {
		claim   store.Key
		outcome workflow.Status
	}{
		{store.Key{Key: "for ever"}, workflow.Failed},
		{store.Key{Key: "for a minute", LastsFor: time.Minute}, workflow.Completed},
		{store.Key{Key: "until it fails, and it did not", UntilFailed: true}, workflow.Completed},
		{store.Key{Key: "until it fails, and it did", UntilFailed: true, LastsFor: time.Minute}, workflow.Failed},
	} {
		run := begun(t, s, n)
		c.claim.Env, c.claim.Kind, c.claim.Scope, c.claim.Owner = "default", store.KeyClaim, "s", run.ID
		must(t, s, store.TakeKey{Key: c.claim, Now: T0})
		end := ending(t, run, 5)
		end.Run.Status = c.outcome
		must(t, s, end)
	}
	alive := func(at time.Time) (keys []string) {
		list, err := s.Keys(context.Background(), store.KeyQuery{Env: "default", Kind: store.KeyClaim, Scope: "s", Now: at})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			keys = append(keys, k.Key)
		}
		return keys
	}
	all := []string{"for a minute", "for ever", "until it fails, and it did", "until it fails, and it did not"}
	equal(t, alive(T0.Add(time.Hour)), all) // while its owner is there, that says more
	equal(t, dropped(t, s, 5, 10), 4)
	equal(t, alive(T0.Add(65*time.Second-1)), []string{"for a minute", "for ever", "until it fails, and it did not"})
	equal(t, alive(T0.Add(65*time.Second)), []string{"for ever", "until it fails, and it did not"})
	equal(t, must(t, s, store.DropKeys{Now: T0.Add(65 * time.Second), Limit: 10}).Dropped, 2)
	equal(t, alive(time.Time{}), []string{"for ever", "until it fails, and it did not"})
}

// What comes after a run that is gone, with its id and where a store has its rows in their place, begins with nothing.
func droppedRunsLeaveNoHistory(t *testing.T, s store.Store) {
	ctx, run := context.Background(), NewRun(1)
	Fill(t, s, 1)
	End(t, s, 1)
	equal(t, dropped(t, s, 1, 10), 1)
	must(t, s, store.InsertRun{Run: run})
	must(t, s, store.UseEvent{RunID: run.ID, Position: 1})
	state, err := s.State(ctx, store.EntryQuery{RunID: run.ID, EntriesMax: 10, BytesMax: 1000})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, []int{len(state.Entries), len(state.Attempts), len(state.Waits), int(state.History.Entries), len(state.Payload)}, []int{0, 0, 0, 0, 0})
	chapters, err := s.Chapters(ctx, run.ID)
	if err != nil || len(chapters) != 0 {
		t.Errorf("chapters %+v, %v", chapters, err)
	}
	closed, err := s.Entries(ctx, store.EntryQuery{RunID: run.ID, Chapter: new(1), EntriesMax: 10, BytesMax: 1000})
	if err != nil || len(closed) != 0 {
		t.Errorf("a later chapter's entries %+v, %v", closed, err)
	}
	lines, err := s.Logs(ctx, store.LogQuery{Env: "default", RunID: run.ID, Limit: 10})
	if err != nil || len(lines) != 0 {
		t.Errorf("lines %+v, %v", lines, err)
	}
	again := apply(t, run, workflow.Begin{CallID: "call_1", Token: "t"})
	must(t, s, store.UpdateRun{Run: again.Run})
	restarted(t, s, run.ID, `2`)
	equal(t, len(entries(t, s, run.ID, 0)), 0)
}

// withStatus is an ended run as if it had ended at another time.
func withStatus(run workflow.Run, at time.Time) workflow.Run {
	run.Version++
	run.EndedAt = at
	return run
}

// A run stays while somebody has to hear of its end, or it has a child that has not heard of it.
func awaitedRunsStay(t *testing.T, s store.Store) {
	invoking := func(parent, child int) {
		t.Helper()
		w := workflow.Wait{StepID: workflow.StepID{Name: "child", Number: 1}, Kind: workflow.KindInvoke, Child: NewRun(child).ID}
		born := apply(t, NewRun(child), workflow.Begin{CallID: fmt.Sprintf("call_%d", child), Token: "t"}).Run
		born.Parent = NewRun(parent).ID
		u := opening(t, begun(t, s, parent), w)
		u.Open[0].Start = &store.InsertRun{Run: born}
		must(t, s, u)
	}
	end := func(n int) { t.Helper(); End(t, s, n) }
	invoking(1, 2)
	end(2) // its parent has not heard
	invoking(3, 4)
	end(3) // its child has not heard
	equal(t, dropped(t, s, 1, 10), 0)
	equal(t, kept(t, s), "4 3 2 1")
	wait := waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: NewRun(1).ID})[0]
	news := apply(t, load(t, s, NewRun(1).ID), workflow.News{Steps: []workflow.Step{wait.Over(T0)}})
	must(t, s, store.UpdateRun{Run: news.Run, Append: news.Append})
	equal(t, dropped(t, s, 1, 10), 1)
	equal(t, kept(t, s), "4 3 1")
	end(4)
	equal(t, dropped(t, s, 1, 10), 0) // who tells them looks at both
	must(t, s, store.CloseWait{RunID: NewRun(3).ID, Child: NewRun(4).ID})
	equal(t, dropped(t, s, 1, 10), 2)
	equal(t, kept(t, s), "1")
}

// dropping draws how many old runs go.
func dropping(r *rapid.T, now time.Time) store.Op {
	return store.DropRuns{Before: now.Add(-time.Duration(rapid.IntRange(0, 4).Draw(r, "seconds")) * time.Second), Limit: rapid.IntRange(1, 3).Draw(r, "limit"), RowsMax: rapid.IntRange(0, 2).Draw(r, "rows"), BytesMax: rapid.IntRange(0, 2).Draw(r, "bytes")}
}

// However large events are, one commit drops no more than it takes.
func eventsAreDroppedInParts(t *testing.T, s store.Store) {
	for i, size := range []int{10, 20, 5_000, 10, 0, 10} {
		payload := jsontext.Value(strings.Repeat("1", size))
		must(t, s, store.InsertEvent{Event: store.Event{Env: "default", ID: fmt.Sprint(i), Name: "e", Payload: payload, CreatedAt: T0}})
	}
	var parts []int
	for range 4 {
		parts = append(parts, must(t, s, store.DropEvents{Before: T0, Limit: 10, BytesMax: 30}).Dropped)
	}
	equal(t, parts, []int{2, 1, 2, 0}) // the newest stays
}
