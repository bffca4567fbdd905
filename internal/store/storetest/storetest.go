// Package storetest is the contract of a store: one suite that every store passes, and a comparison of each with the model.
package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Open makes an empty store; what it needs to be cleaned up is registered with t.
type Open func(t testing.TB) store.Store

// T0 is an instant that tests count from.
var T0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Run plays the whole contract against a store.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		outcome string
		test    func(t *testing.T, s store.Store)
	}{
		{"a run comes back as it was inserted", insertedRunComesBack},
		{"a second run of the same id is refused", secondRunRefused},
		{"an update of another version is refused", staleUpdateRefused},
		{"a change takes effect whole or not at all", changesAreAtomic},
		{"a later change of a batch sees the earlier one", batchesAreInOrder},
		{"entries are numbered without gaps", entriesAreNumbered},
		{"a saved step keeps its first result", firstResultStands},
		{"a save for another call is refused", otherCallRefused},
		{"the first playing binds the call", firstPlayingBinds},
		{"limits refuse a step and keep what stands", limitsRefuse},
		{"pages are bounded by entries and bytes, and never empty", pagesAreBounded},
		{"a throw is due again until its step is saved", retriesAreKept},
		{"a step's last throw alone is due again, whatever came before", lastThrowIsDue},
		{"a throw that comes twice is due when it was (K6)", throwComesTwice},
		{"a step whose next attempt was cut is still known to have thrown", throwOutlivesACut},
		{"a recorded start is cut with its call", startsAreCut},
		{"a key has one owner in its scope and for its life", keysHaveOneOwner},
		{"keys are listed by how they begin, byte by byte", keysAreListed},
		{"of a step that sent often few keys are read (K1)", keysBesideOne},
		{"a send's key ends with its run", sendKeysEndWithTheirRun},
		{"expired keys are dropped a few at a time (K3)", expiredKeysAreDropped},
		{"an event is stored once by name and id", eventsOnce},
		{"timers and ready runs come when they are due", dueRunsCome},
		{"odd text and big values survive", valuesSurvive},
		{"a reader who leaves leaves nothing behind", readersLeaveNothing},
		{"apps are kept", appsAreKept},
		{"runs are listed newest first, by filter", runsAreListed},
		{"a wait is opened once, and closed by its entry (H3)", waitsOpenOnce},
		{"an event finds the waits that it may end (E2, E3, W7)", eventsFindTheirWaits},
		{"a wait may ask for as much as a match may", longMatchesAreKept},
		{"an event's waits come in pages (E2)", eventsWaitsComeInPages},
		{"a child and its parent find each other", childrenFindTheirParents},
		{"a parent and a child hear of each other's end", endsAreHeardOf},
		{"a callback is answered once, in its time", callbacksAreAnsweredOnce},
		{"events are dropped in parts", eventsAreDroppedInParts},
		{"a post finds its wait (W5)", postsFindTheirWaits},
		{"events come in pages of so many bytes", eventsComeInPages},
		{"a replay takes over callbacks of what it keeps (K5)", callbacksPassToReplays},
		{"schedules and later events come when they are due (D2)", schedulesAndLaterEventsAreDue},
		{"of what is due as much is read as is asked for", whatIsDueIsReadByItsWeight},
		{"a cursor never goes back", cursorsNeverGoBack},
		{"a cursor has one owner (E1)", cursorsHaveOneOwner},
		{"nodes are kept until they are dropped", nodesAreKept},
		{"a node's calls are found (N4)", callsAreHeld},
		{"a run to which nothing will happen is found (W5)", strandedRunsAreFound},
		{"a start is known again (S4, S5)", startsAreKnownAgain},
		{"a claim passes on from its owner (K5)", claimsPassOn},
		{"a restart closes a chapter (Z2, E2)", chaptersAreClosed},
		{"chapters are bounded (Z2)", chaptersAreBounded},
		{"a closing waits for nothing of its code's (Z1)", closingsLeaveTheirWaits},
		{"a line of a log is kept once", linesAreKeptOnce},
		{"old runs are dropped a few at a time, the first end first", oldRunsAreDropped},
		{"of runs with long histories fewer are dropped at a time", longHistoriesAreDroppedAFewAtATime},
		{"of runs with large results fewer are dropped at a time", largeHistoriesAreDroppedAFewAtATime},
		{"a dropped run leaves its keys and nothing else (K3)", droppedRunsLeaveTheirKeys},
		{"a claim of a dropped run expires when it is free (K3)", claimsOfDroppedRunsExpire},
		{"what comes after a dropped run begins with nothing (W1, W9)", droppedRunsLeaveNoHistory},
		{"a run that somebody has to hear of stays", awaitedRunsStay},
		{"a delivery comes back as it came", deliveriesAreKept},
		{"deliveries are listed newest first, by filter", deliveriesAreListed},
		{"deliveries are bounded in age, number and bytes, and the oldest go", deliveriesAreBounded},
	} {
		t.Run(c.outcome, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// NewRun makes a queued run.
func NewRun(n int) workflow.Run {
	return workflow.Start(workflow.Run{ID: fmt.Sprintf("run_%04d", n), Env: "default", App: "shop", Workflow: "w", RootRestart: n % 3}, workflow.Settings{Lease: 5 * time.Minute}, T0)
}

// Commit commits one change and fails the test when the store does.
func Commit(t testing.TB, s store.Store, ops ...store.Op) store.Result {
	t.Helper()
	results, err := s.Commit(context.Background(), []store.Change{ops})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return results[0]
}

func must(t testing.TB, s store.Store, ops ...store.Op) store.Result {
	t.Helper()
	res := Commit(t, s, ops...)
	if res.Err != nil {
		t.Fatalf("change refused: %v", res.Err)
	}
	return res
}

func refused(t testing.TB, s store.Store, want error, ops ...store.Op) {
	t.Helper()
	if res := Commit(t, s, ops...); !errors.Is(res.Err, want) {
		t.Fatalf("got %v, want %v", res.Err, want)
	}
}

func apply(t testing.TB, r workflow.Run, in workflow.Input) workflow.Decision {
	t.Helper()
	d, err := workflow.Apply(r, in, T0.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// begun inserts a run with a current call.
func begun(t testing.TB, s store.Store, n int) workflow.Run {
	t.Helper()
	run := apply(t, NewRun(n), workflow.Begin{CallID: fmt.Sprintf("call_%d", n), Token: "t"}).Run
	must(t, s, store.InsertRun{Run: run})
	return run
}

func equal(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got)\n%s", diff)
	}
}

func record(t testing.TB, s store.Store, runID string) store.RunRecord {
	t.Helper()
	r, err := s.Record(context.Background(), "default", runID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func step(name string, number int, output string) workflow.Step {
	return workflow.Step{
		StepID: workflow.StepID{Name: name, Number: number}, Kind: workflow.KindRun, Status: workflow.StepCompleted,
		Output: jsontext.Value(output), Attempts: 1, StartedAt: T0, EndedAt: T0,
	}
}

func entries(t testing.TB, s store.Store, run string, after int64) []store.Entry {
	t.Helper()
	list, err := s.Entries(context.Background(), store.EntryQuery{RunID: run, After: after, EntriesMax: 1000, BytesMax: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func load(t testing.TB, s store.Store, id string) workflow.Run {
	t.Helper()
	run, _, err := s.Load(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func insertedRunComesBack(t *testing.T, s store.Store) {
	run := NewRun(1)
	run.Key, run.ReplayOf, run.Event, run.EventID = "k", "run_0", "order.paid", "o\x001"
	run.TimeoutAt = T0.Add(time.Hour)
	must(t, s, store.InsertRun{Run: run, Payload: jsontext.Value(`{"a":1}`)})
	equal(t, load(t, s, run.ID), run)
	record, err := s.Record(context.Background(), "default", run.ID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, record, store.RunRecord{Run: run, Payload: jsontext.Value(`{"a":1}`)})
	if _, err := s.Record(context.Background(), "other", run.ID); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("another environment sees the run: %v", err)
	}
	if _, _, err := s.Load(context.Background(), "run_none"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a run that is not there: %v", err)
	}
}

func secondRunRefused(t *testing.T, s store.Store) {
	must(t, s, store.InsertRun{Run: NewRun(1), Payload: jsontext.Value(`1`)})
	refused(t, s, store.ErrExists, store.InsertRun{Run: NewRun(1), Payload: jsontext.Value(`2`)})
}

// Rule N1.
func staleUpdateRefused(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	next := apply(t, run, workflow.Cancel{}).Run
	must(t, s, store.UpdateRun{Run: next})
	refused(t, s, store.ErrStale, store.UpdateRun{Run: next})
	equal(t, load(t, s, run.ID), next)
	missing := NewRun(2)
	refused(t, s, store.ErrNotFound, store.UpdateRun{Run: missing})
}

// Rule E1.
func changesAreAtomic(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	refused(t, s, store.ErrStale,
		store.InsertRun{Run: NewRun(2)},
		store.InsertEvent{Event: store.Event{Env: "default", ID: "e", Name: "n", CreatedAt: T0}},
		store.UpdateRun{Run: run})
	if _, _, err := s.Load(context.Background(), "run_0002"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("half a change was written: %v", err)
	}
	if _, err := s.Event(context.Background(), "default", "n", "e"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("half a change was written: %v", err)
	}
}

func batchesAreInOrder(t *testing.T, s store.Store) {
	run := NewRun(1)
	next := apply(t, run, workflow.Begin{CallID: "call_1", Token: "t"}).Run
	results, err := s.Commit(context.Background(), []store.Change{
		{store.InsertRun{Run: run}}, {store.UpdateRun{Run: next}}, {store.UpdateRun{Run: next}}, {store.InsertRun{Run: NewRun(2)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Err != nil || results[1].Err != nil || !errors.Is(results[2].Err, store.ErrStale) || results[3].Err != nil {
		t.Fatalf("%+v", results)
	}
}

// Rule W9.
func entriesAreNumbered(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	res := must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`), step("a", 2, `2`)}})
	equal(t, res.Steps, []store.StepResult{{Entry: 1}, {Entry: 2}})
	res = must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("b", 1, `3`)}})
	equal(t, res.Steps, []store.StepResult{{Entry: 3}})
	equal(t, res.History, store.History{Entries: 3, Bytes: 3})
	equal(t, entries(t, s, run.ID, 1), []store.Entry{{Entry: 2, Step: step("a", 2, `2`)}, {Entry: 3, Step: step("b", 1, `3`)}})
}

func firstResultStands(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	save := func(output string) store.StepResult {
		return must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("a", 1, output)}}).Steps[0]
	}
	equal(t, save(`1`), store.StepResult{Entry: 1})
	equal(t, save(`1`), store.StepResult{Entry: 1})
	equal(t, save(`2`), store.StepResult{Entry: 1, Stands: true})
	if got := entries(t, s, run.ID, 0); len(got) != 1 || string(got[0].Output) != `1` {
		t.Fatalf("W1: %v", got)
	}
}

// Rules W2, W3, C6.
func otherCallRefused(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	refused(t, s, store.ErrStale, store.SaveSteps{RunID: run.ID, CallID: "call_0", Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`)}})
	must(t, s, store.UpdateRun{Run: apply(t, run, workflow.End{CallID: "call_1", Kind: workflow.EndCompleted}).Run})
	refused(t, s, store.ErrStale, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`)}})
	equal(t, len(entries(t, s, run.ID, 0)), 0)
}

// Rule C4.
func firstPlayingBinds(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	res := must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "first"})
	equal(t, []any{res.Bound, res.Version}, []any{true, run.Version + 1})
	refused(t, s, store.ErrStale, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "second"})
	res = must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "first"})
	equal(t, []any{res.Bound, res.Version}, []any{false, run.Version + 1})
	equal(t, load(t, s, run.ID).Call.Nonce, "first")
}

// Rule S3.
func limitsRefuse(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	save := func(st workflow.Step) store.StepResult {
		return must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{st}, StepsMax: 2, BytesMax: 10}).Steps[0]
	}
	equal(t, save(step("a", 1, `12345`)), store.StepResult{Entry: 1})
	equal(t, save(step("b", 1, `123456`)), store.StepResult{Refused: store.LimitBytes})
	equal(t, save(step("a", 1, `12345`)), store.StepResult{Entry: 1})
	failed := step("b", 1, ``)
	failed.Status, failed.Output, failed.Error = workflow.StepFailed, nil, jsontext.Value(`{"name":"E","message":"m"}`)
	equal(t, save(failed), store.StepResult{Entry: 2})
	equal(t, save(step("c", 1, ``)), store.StepResult{Refused: store.LimitSteps})
}

func attempts(t testing.TB, s store.Store, run string) []store.Attempt {
	t.Helper()
	list, err := s.Attempts(context.Background(), run)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func retriesAreKept(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	id := workflow.StepID{Name: "a", Number: 1}
	retry := func(n int) workflow.Retry {
		return workflow.Retry{StepID: id, Attempt: n, Error: jsontext.Value(`{}`), StartedAt: T0, EndedAt: T0, RetryAt: T0.Add(time.Duration(n) * time.Second)}
	}
	for n := range 2 {
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{retry(n + 1)}})
	}
	list := attempts(t, s, run.ID)
	if len(list) != 2 || !list[0].RetryAt.IsZero() || !list[1].RetryAt.Equal(T0.Add(2*time.Second)) {
		t.Fatalf("%+v", list)
	}
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step("a", 1, `1`)}})
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{retry(3)}})
	list = attempts(t, s, run.ID)
	if len(list) != 2 || !list[1].RetryAt.IsZero() {
		t.Fatalf("a saved step is due again: %+v", list)
	}
}

func lastThrowIsDue(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	for i, n := range []int{2, 1, 2} {
		at := T0.Add(time.Duration(i) * time.Second)
		retry := workflow.Retry{
			StepID: workflow.StepID{Name: "a", Number: 1}, Attempt: n, Error: jsontext.Value(`{}`), StartedAt: at, EndedAt: at, RetryAt: at.Add(time.Second),
		}
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{retry}})
	}
	var due []int
	for _, a := range attempts(t, s, run.ID) {
		if !a.RetryAt.IsZero() {
			due = append(due, a.Attempt)
		}
	}
	equal(t, due, []int{2})
}

func throwComesTwice(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	throw := func(attempt int, dueIn time.Duration) time.Time {
		t.Helper()
		res := must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{{
			StepID: workflow.StepID{Name: "a", Number: 1}, Attempt: attempt, Error: jsontext.Value(`{}`), StartedAt: T0, EndedAt: T0, RetryAt: T0.Add(dueIn),
		}}})
		return res.Retries[0]
	}
	equal(t, throw(1, time.Second), T0.Add(time.Second))
	equal(t, throw(1, time.Minute), T0.Add(time.Second))
	equal(t, throw(2, time.Hour), T0.Add(time.Hour))
	equal(t, throw(1, time.Second), time.Time{}) // the second attempt has run since
	untimed := workflow.Retry{StepID: workflow.StepID{Name: "untimed", Number: 1}, Attempt: 1, Error: jsontext.Value(`{}`)}
	for i := range 2 { // nothing says that these are one
		untimed.RetryAt = T0.Add(time.Duration(i+1) * time.Minute)
		res := must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{untimed}})
		equal(t, res.Retries[0], untimed.RetryAt)
	}
	for _, a := range attempts(t, s, run.ID) {
		if a.Attempt == 2 {
			equal(t, a.RetryAt, T0.Add(time.Hour))
		}
	}
}

func throwOutlivesACut(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	id := workflow.StepID{Name: "a", Number: 1}
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Retries: []workflow.Retry{{
		StepID: id, Attempt: 1, Error: jsontext.Value(`{}`), StartedAt: T0, EndedAt: T0, RetryAt: T0.Add(time.Second),
	}}})
	for _, attempt := range []int{1, 2} { // that of the first comes late
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Starts: []store.Start{{StepID: id, Attempt: attempt, StartedAt: T0}}})
		equal(t, attempts(t, s, run.ID)[0].RetryAt, T0.Add(time.Second))
		equal(t, len(attempts(t, s, run.ID)), attempt)
	}
}

func startsAreCut(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	id := workflow.StepID{Name: "a", Number: 1}
	for range 2 { // repeatable by the same playing
		must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Starts: []store.Start{{StepID: id, Attempt: 1, StartedAt: T0}}})
	}
	list := attempts(t, s, run.ID)
	if len(list) != 1 || list[0].CallID != "call_1" || !list[0].EndedAt.IsZero() {
		t.Fatalf("%+v", list)
	}
	must(t, s, store.UpdateRun{Run: apply(t, load(t, s, run.ID), workflow.Cut{CallID: "call_1"}).Run, CutCall: "call_1"})
	if list = attempts(t, s, run.ID); len(list) != 1 || list[0].EndedAt.IsZero() || string(list[0].Error) != string(store.CutOff) {
		t.Fatalf("%+v", list)
	}
}

// Rule K3.
func keysHaveOneOwner(t *testing.T, s store.Store) {
	key := store.Key{Env: "default", Kind: store.KeyRun, Scope: "shop/w", Key: "k", Owner: "run_0001", Hash: "h1", ExpiresAt: T0.Add(time.Hour)}
	res := must(t, s, store.TakeKey{Key: key, Now: T0, Then: []store.Op{store.InsertRun{Run: NewRun(1)}}})
	equal(t, res.Keys, []store.KeyResult{{Taken: true, Key: key}})
	second := key
	second.Owner, second.Hash = "run_0002", "h2"
	res = must(t, s, store.TakeKey{Key: second, Now: T0, Then: []store.Op{store.InsertRun{Run: NewRun(2)}}})
	stands := key
	stands.Differs = true
	equal(t, res.Keys, []store.KeyResult{{Key: stands}})
	if _, _, err := s.Load(context.Background(), "run_0002"); !errors.Is(err, store.ErrNotFound) {
		t.Fatal("W8: a second run took the key")
	}
	list, err := s.Keys(context.Background(), store.KeyQuery{Env: "default", Kind: store.KeyRun, Scope: "shop/w", Now: T0})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, list, []store.Key{stands})
	other := second
	other.Env = "staging"
	if res = must(t, s, store.TakeKey{Key: other, Now: T0}); !res.Keys[0].Taken {
		t.Fatal("a key crosses environments")
	}
	if res = must(t, s, store.TakeKey{Key: second, Now: T0.Add(time.Hour)}); !res.Keys[0].Taken {
		t.Fatal("a key outlives its time")
	}
	must(t, s, store.DropKeys{Now: T0.Add(time.Hour), Limit: 10})
	// A change that is refused takes no key.
	fresh := key
	fresh.Key = "fresh"
	refused(t, s, store.ErrExists, store.TakeKey{Key: fresh, Now: T0, Then: []store.Op{store.InsertRun{Run: NewRun(1)}}})
	if res = must(t, s, store.TakeKey{Key: fresh, Now: T0}); !res.Keys[0].Taken {
		t.Fatal("a refused change took a key")
	}
}

// Rule K3.
func sendKeysEndWithTheirRun(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	key := store.Key{Env: "default", Kind: store.KeySend, Scope: run.ID, Key: "k", Owner: "run_0002"}
	must(t, s, store.TakeKey{Key: key, Now: T0})
	must(t, s, store.UpdateRun{Run: apply(t, run, workflow.End{CallID: "call_1", Kind: workflow.EndCompleted}).Run})
	list, err := s.Keys(context.Background(), store.KeyQuery{Env: "default", Kind: store.KeySend, Scope: run.ID, Now: T0})
	if err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
}

func eventsOnce(t *testing.T, s store.Store) {
	event := store.Event{Env: "default", ID: "1", Name: "order.paid", Payload: jsontext.Value(`"o"`), CreatedAt: T0, Runs: 2}
	must(t, s, store.InsertEvent{Event: event})
	refused(t, s, store.ErrExists, store.InsertEvent{Event: event})
	other := event
	other.Name = "order.shipped"
	must(t, s, store.InsertEvent{Event: other})
	got, err := s.Event(context.Background(), "default", "order.paid", "1")
	if err != nil {
		t.Fatal(err)
	}
	event.Position = got.Position
	equal(t, got, event)
	list, err := s.Events(context.Background(), store.EventQuery{Env: "default", Limit: 10})
	if err != nil || len(list) != 2 || list[0].Name != "order.shipped" {
		t.Fatalf("%v, %v", list, err)
	}
	list, err = s.Events(context.Background(), store.EventQuery{Env: "default", Limit: 10, Before: list[0].Position})
	if err != nil || len(list) != 1 || list[0].Name != "order.paid" {
		t.Fatalf("%v, %v", list, err)
	}
}

// Who goes through events reads as many as its memory holds, and of a large one at least that.
func eventsComeInPages(t *testing.T, s store.Store) {
	for i, size := range []int{10, 20, 5_000, 10, 0, 10} {
		payload := jsontext.Value(strings.Repeat("1", size))
		must(t, s, store.InsertEvent{Event: store.Event{Env: "default", ID: fmt.Sprint(i), Name: "e", Payload: payload, CreatedAt: T0}})
	}
	for _, q := range []store.EventQuery{{}, {Env: "default", Name: "e"}} {
		q.Forward, q.Limit, q.BytesMax = true, 10, 30
		var pages []int
		for {
			page, err := s.Events(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			pages, q.After = append(pages, len(page)), page[len(page)-1].Position
		}
		equal(t, pages, []int{2, 1, 3})
		q.After, q.BytesMax = 0, 0
		all, err := s.Events(context.Background(), q)
		if err != nil || len(all) != 6 {
			t.Fatalf("%v, %v", all, err)
		}
	}
}

func dueRunsCome(t *testing.T, s store.Store) {
	ctx := context.Background()
	must(t, s, store.InsertRun{Run: NewRun(1)})
	running := begun(t, s, 2)
	ready, err := s.Ready(ctx, "default", "shop", T0, 10)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, ready, []store.Ready{{RunID: "run_0001", ReadyAt: T0}})
	if ready, err = s.Ready(ctx, "default", "shop", T0.Add(-time.Second), 10); err != nil || len(ready) != 0 {
		t.Fatalf("W4: ready too early: %v, %v", ready, err)
	}
	if ready, err = s.Ready(ctx, "default", "other", T0, 10); err != nil || len(ready) != 0 {
		t.Fatalf("another app's run: %v, %v", ready, err)
	}
	next, err := s.NextTimer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, next, running.NextAt)
	due, err := s.Timers(ctx, store.TimerQuery{Now: running.NextAt, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, due, []workflow.Run{running})
	after := store.TimerQuery{Now: running.NextAt, AfterAt: running.NextAt, AfterID: running.ID, Limit: 10}
	if due, err = s.Timers(ctx, after); err != nil || len(due) != 0 {
		t.Fatalf("a timer comes again: %v, %v", due, err)
	}
	after.AfterID = "a"
	if due, err = s.Timers(ctx, after); err != nil || len(due) != 1 {
		t.Fatalf("a timer of the same instant is left out: %v, %v", due, err)
	}
	if due, err = s.Timers(ctx, store.TimerQuery{Now: running.NextAt.Add(-time.Millisecond), Limit: 10}); err != nil || len(due) != 0 {
		t.Fatalf("W4: a timer too early: %v, %v", due, err)
	}
	calls, err := s.InCall(ctx, "", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, calls, []workflow.Run{running})
}

func valuesSurvive(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	big := append(append([]byte{'"'}, make([]byte, 3<<20)...), '"')
	for i := range big[1 : len(big)-1] {
		big[i+1] = 'x'
	}
	values := []string{`"a\u0000b"`, `"\ud800"`, `"😀"`, `null`, `""`, `1e400`, ` { "a" : 1.0 , "a" : 2 } `, string(big)}
	var steps []workflow.Step
	for i, v := range values {
		steps = append(steps, step("nul\x00 😀", i+1, v))
	}
	undefined := step("undefined", 1, ``)
	undefined.Output = nil
	must(t, s, store.SaveSteps{RunID: run.ID, CallID: "call_1", Nonce: "n", Steps: append(steps, undefined)})
	got := []store.Entry{}
	for after := int64(0); ; after = int64(len(got)) {
		page := entries(t, s, run.ID, after)
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
	}
	for i, v := range values {
		if string(got[i].Output) != v || got[i].Name != "nul\x00 😀" {
			t.Errorf("value %d changed", i)
		}
	}
	if got[len(values)].Output != nil {
		t.Error("undefined came back as a value")
	}
}

func appsAreKept(t *testing.T, s store.Store) {
	app := store.App{Env: "default", Name: "shop", URL: "http://127.0.0.1:3000/api/nelkap", Private: true, Concurrency: 100, Manifest: []byte(`{}`), Hash: "h", SeenAt: T0, Gone: map[string]time.Time{"w": T0}, Version: 1}
	must(t, s, store.PutApp{App: app})
	refused(t, s, store.ErrStale, store.PutApp{App: app}) // a node that did not know of it
	app.Hash, app.Version = "h2", 2
	must(t, s, store.PutApp{App: app})
	list, err := s.Apps(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, list, []store.App{app})
}
