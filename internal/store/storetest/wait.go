package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

func waits(t testing.TB, s store.Store, q store.WaitQuery) []store.Wait {
	t.Helper()
	list, err := s.Waits(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func names(list []store.Wait) string {
	text := ""
	for _, w := range list {
		text += fmt.Sprintf("%s/%s ", w.RunID, w.Name)
	}
	return text
}

// opening registers waits of a run whose call goes on.
func opening(t testing.TB, run workflow.Run, list ...workflow.Wait) store.UpdateRun {
	t.Helper()
	d := apply(t, run, workflow.Opened{CallID: run.Call.ID, Waits: list})
	u := store.UpdateRun{Run: d.Run}
	for _, w := range d.Open {
		u.Open = append(u.Open, store.OpenWait{Wait: w})
	}
	return u
}

func sleeping(name string) workflow.Wait {
	return workflow.Wait{StepID: workflow.StepID{Name: name, Number: 1}, Kind: workflow.KindSleep, DueAt: T0.Add(time.Hour)}
}

// H3: registered again, a wait is the one that came first; its entry, or its run's end, closes it.
func waitsOpenOnce(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	res := must(t, s, opening(t, run, sleeping("a"), sleeping("b")))
	equal(t, res.Opened, []bool{true, true})
	later := sleeping("a")
	later.DueAt = T0.Add(2 * time.Hour)
	res = must(t, s, opening(t, load(t, s, run.ID), later, sleeping("c")))
	equal(t, res.Opened, []bool{false, true})
	open := waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})
	equal(t, names(open), "run_0001/a run_0001/b run_0001/c ")
	equal(t, open[0].DueAt, T0.Add(time.Hour))
	news := apply(t, load(t, s, run.ID), workflow.News{Steps: []workflow.Step{open[0].Over(T0)}})
	must(t, s, store.UpdateRun{Run: news.Run, Append: news.Append})
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})), "run_0001/b run_0001/c ")
	res = must(t, s, opening(t, load(t, s, run.ID), sleeping("a")))
	equal(t, res.Opened, []bool{false})
	cancelled := apply(t, apply(t, load(t, s, run.ID), workflow.Cancel{}).Run, workflow.Cut{CallID: run.Call.ID})
	cancelled.Run.Version--
	must(t, s, store.UpdateRun{Run: cancelled.Run})
	equal(t, len(waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})), 0)
}

// E2, E3, W7: an event finds the waits that it may end, as far as they look back, by what they match, and not for a run that has used it.
func eventsFindTheirWaits(t *testing.T, s store.Store) {
	event := func(id string) store.Event { return store.Event{Env: "default", Name: "paid", ID: id, CreatedAt: T0} }
	must(t, s, store.InsertEvent{Event: event("before")})
	run := begun(t, s, 1)
	must(t, s, store.InsertEvent{Event: event("after")})
	wait := func(name, key string, sinceRun bool) workflow.Wait {
		w := workflow.Wait{StepID: workflow.StepID{Name: name, Number: 1}, Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{"paid", "other"}, SinceRun: sinceRun}}
		if key != "" {
			w.Event.Paths, w.Event.Key = "payload.id", key
		}
		return w
	}
	must(t, s, opening(t, run, wait("any", "", true), wait("one", "k1", true), wait("late", "", false)))
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsUnlooked})), "run_0001/any run_0001/one run_0001/late ")
	paths, err := s.MatchPaths(context.Background(), "default", "paid")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, paths, []string{"payload.id"})
	for _, name := range []string{"any", "one", "late"} {
		must(t, s, lookedBack(t, s, store.LookedBack{RunID: run.ID, StepID: workflow.StepID{Name: name, Number: 1}, Cursor: "match"}))
	}
	query := func(position int64, key string) string {
		return names(waits(t, s, store.WaitQuery{Set: store.WaitsForEvent, Env: "default", Event: "paid", Position: position, Pairs: [][2]string{{"payload.id", key}}}))
	}
	equal(t, query(1, "k1"), "") // the run was not there yet
	equal(t, query(2, "k1"), "run_0001/any run_0001/one ")
	equal(t, query(2, "k2"), "run_0001/any ")
	equal(t, query(3, "k1"), "run_0001/any run_0001/one run_0001/late ")
	must(t, s, store.UseEvent{RunID: run.ID, Position: 2})
	refused(t, s, store.ErrStale, store.UseEvent{RunID: run.ID, Position: 2})
	equal(t, query(2, "k1"), "")
	unused, err := s.Events(context.Background(), store.EventQuery{Env: "default", Name: "paid", Forward: true, UnusedBy: run.ID, Limit: 10})
	if err != nil || len(unused) != 1 || unused[0].ID != "before" {
		t.Fatalf("%+v, %v", unused, err)
	}
}

// pathsBytesMax is as long as the paths of a match can be, with what stands between them (internal/filter).
const pathsBytesMax = 2000 + 10

// longMatchesAreKept: of texts that no database makes smaller.
func longMatchesAreKept(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('!' + random.IntN(90))
		}
		return string(b)
	}
	run := begun(t, s, 1)
	event, paths := text(wire.NameBytesMax), text(pathsBytesMax)
	w := workflow.Wait{StepID: workflow.StepID{Name: "w", Number: 1}, Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{event}, Paths: paths, Key: text(44)}}
	must(t, s, opening(t, run, w))
	found, err := s.MatchPaths(context.Background(), "default", event)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, found, []string{paths})
}

// eventsWaitsComeInPages: whatever of a page is not for the event, in whichever of its pairs a wait stands.
func eventsWaitsComeInPages(t *testing.T, s store.Store) {
	must(t, s, store.InsertEvent{Event: store.Event{Env: "default", Name: "paid", ID: "1", CreatedAt: T0}})
	run := begun(t, s, 1)
	var open []workflow.Wait
	paths := []string{"", "a", "b", "", "a", "c", "b", "", "a"}
	for i, p := range paths {
		w := workflow.Wait{StepID: workflow.StepID{Name: "w", Number: i + 1}, Kind: workflow.KindEvent, Event: &workflow.EventWait{Names: []string{"paid"}, SinceRun: true}}
		if p != "" {
			w.Event.Paths, w.Event.Key = p, "k"
		}
		open = append(open, w)
	}
	must(t, s, opening(t, run, open...))
	for i := range paths {
		if i != 3 { // which has not looked back yet
			must(t, s, lookedBack(t, s, store.LookedBack{RunID: run.ID, StepID: workflow.StepID{Name: "w", Number: i + 1}, Cursor: "match"}))
		}
	}
	for limit := 1; limit < len(paths); limit++ {
		q := store.WaitQuery{Set: store.WaitsForEvent, Env: "default", Event: "paid", Position: 2, Limit: limit, Pairs: [][2]string{{"a", "k"}, {"b", "k"}, {"c", "other"}}}
		var got []int
		for {
			page := waits(t, s, q)
			for i := range page {
				got = append(got, page[i].Number)
				q.After = page[i].Order
			}
			if len(page) < limit {
				break
			}
		}
		equal(t, got, []int{1, 2, 3, 5, 7, 8, 9})
	}
	found, err := s.MatchPaths(context.Background(), "default", "paid")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, found, []string{"a", "b", "c"})
}

func childrenFindTheirParents(t *testing.T, s store.Store) {
	parent := begun(t, s, 1)
	child := NewRun(2)
	child.Parent = parent.ID
	u := opening(t, parent, workflow.Wait{StepID: workflow.StepID{Name: "child", Number: 1}, Kind: workflow.KindInvoke, Child: child.ID})
	u.Open[0].Start = &store.InsertRun{Run: child, Payload: jsontext.Value(`7`)}
	must(t, s, u)
	equal(t, load(t, s, child.ID).Parent, parent.ID)
	kin := store.WaitQuery{Set: store.WaitsOfKin}
	equal(t, names(waits(t, s, kin)), "") // both live
	over := apply(t, load(t, s, parent.ID), workflow.News{Steps: []workflow.Step{waits(t, s, store.WaitQuery{Set: store.WaitsOfRun, RunID: parent.ID})[0].Over(T0)}})
	must(t, s, store.UpdateRun{Run: over.Run, Append: over.Append})
	left := waits(t, s, kin)
	if len(left) != 1 || !left[0].Orphan {
		t.Fatalf("an invoke that timed out leaves %+v", left)
	}
	must(t, s, store.CloseWait{RunID: parent.ID, Child: left[0].Child})
	must(t, s, store.CloseWait{RunID: parent.ID, Child: left[0].Child})
	equal(t, names(waits(t, s, kin)), "")
}

// endsAreHeardOf: of a child that ends while its parent waits, in a commit of its own or in that of its wait, and of one whose parent has.
func endsAreHeardOf(t *testing.T, s store.Store) {
	ended := func(run workflow.Run) store.UpdateRun {
		return store.UpdateRun{Run: apply(t, run, workflow.Cancel{Force: true}).Run}
	}
	invoking := func(n int) (workflow.Run, workflow.Run, store.UpdateRun) {
		parent, child := begun(t, s, n), NewRun(n+1)
		child.Parent = parent.ID
		u := opening(t, parent, workflow.Wait{StepID: workflow.StepID{Name: "child", Number: 1}, Kind: workflow.KindInvoke, Child: child.ID})
		u.Open[0].Start = &store.InsertRun{Run: child}
		return u.Run, child, u
	}
	kin := func() string { return names(waits(t, s, store.WaitQuery{Set: store.WaitsOfKin})) }
	_, child, u := invoking(1)
	must(t, s, u)
	equal(t, kin(), "")
	must(t, s, ended(child))
	equal(t, kin(), "run_0001/child ")
	_, child, u = invoking(3)
	if results, err := s.Commit(context.Background(), []store.Change{{u}, {ended(child)}}); err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatalf("%+v, %v", results, err)
	}
	equal(t, kin(), "run_0001/child run_0003/child ")
	parent, _, u := invoking(5)
	must(t, s, u)
	must(t, s, ended(parent))
	equal(t, kin(), "run_0001/child run_0003/child run_0005/child ")
	parent, _, u = invoking(7)
	if results, err := s.Commit(context.Background(), []store.Change{{u}, {ended(parent)}}); err != nil || results[0].Err != nil || results[1].Err != nil {
		t.Fatalf("%+v, %v", results, err)
	}
	equal(t, kin(), "run_0001/child run_0003/child run_0005/child run_0007/child ")
}

func callbacksAreAnsweredOnce(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	id := workflow.StepID{Name: "approval", Number: 1}
	callback := store.Callback{TokenHash: "h1", Env: "default", RunID: run.ID, StepID: id, DueAt: T0.Add(time.Hour)}
	must(t, s, store.InsertCallback{Callback: callback})
	again := callback
	again.TokenHash = "h2"
	refused(t, s, store.ErrExists, store.InsertCallback{Callback: again})
	must(t, s, opening(t, run, workflow.Wait{StepID: workflow.StepID{Name: "approval", Number: 2}, Kind: workflow.KindCallback, Of: 1}))
	fulfilled := store.WaitQuery{Set: store.WaitsFulfilled}
	equal(t, names(waits(t, s, fulfilled)), "")
	refused(t, s, store.ErrNotFound, store.EndCallback{TokenHash: "h2", Now: T0})
	refused(t, s, store.ErrStale, store.EndCallback{TokenHash: "h1", Now: T0.Add(time.Hour)})
	must(t, s, store.EndCallback{TokenHash: "h1", Payload: jsontext.Value(`"yes"`), Now: T0})
	refused(t, s, store.ErrStale, store.EndCallback{TokenHash: "h1", Now: T0})
	refused(t, s, store.ErrStale, store.ExpireCallback{TokenHash: "h1"})
	must(t, s, store.InsertCallback{Callback: store.Callback{TokenHash: "h3", Env: "default", RunID: run.ID, StepID: workflow.StepID{Name: "approval", Number: 3}}})
	must(t, s, store.ExpireCallback{TokenHash: "h3"}, store.ExpireCallback{TokenHash: "h4"})
	refused(t, s, store.ErrStale, store.EndCallback{TokenHash: "h3", Now: T0})
	equal(t, names(waits(t, s, fulfilled)), "run_0001/approval ")
	got, err := s.Callback(context.Background(), store.CallbackQuery{RunID: run.ID, StepID: id})
	if err != nil || string(got.Payload) != `"yes"` {
		t.Fatalf("%+v, %v", got, err)
	}
}

// W5: a post finds the wait for it, whichever of the two comes first, and also where both come in one batch.
func postsFindTheirWaits(t *testing.T, s store.Store) {
	made := func(n int) (store.InsertCallback, store.UpdateRun, store.EndCallback) {
		run, hash := begun(t, s, n), fmt.Sprint("h", n)
		callback := store.Callback{TokenHash: hash, Env: "default", RunID: run.ID, StepID: workflow.StepID{Name: "approval", Number: 1}}
		u := opening(t, run, workflow.Wait{StepID: workflow.StepID{Name: "approval", Number: 2}, Kind: workflow.KindCallback, Of: 1})
		return store.InsertCallback{Callback: callback}, u, store.EndCallback{TokenHash: hash, Now: T0}
	}
	together := func(ops ...store.Op) {
		t.Helper()
		var changes []store.Change
		for _, op := range ops {
			changes = append(changes, store.Change{op})
		}
		results, err := s.Commit(context.Background(), changes)
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	callback, wait, post := made(1)
	must(t, s, callback)
	must(t, s, wait)
	must(t, s, post)
	callback, wait, post = made(2)
	must(t, s, callback)
	must(t, s, post)
	must(t, s, wait)
	callback, wait, post = made(3)
	must(t, s, callback)
	together(wait, post)
	callback, wait, post = made(4)
	must(t, s, callback)
	together(post, wait)
	callback, wait, post = made(5)
	together(callback, wait, post)
	callback, wait, _ = made(6)
	together(callback, wait)
	var all string
	for n := range 5 {
		all += fmt.Sprintf("run_%04d/approval ", n+1)
	}
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsFulfilled})), all)
}

// K5: a callback has one owner at a time.
func callbacksPassToReplays(t *testing.T, s store.Store) {
	original := begun(t, s, 1)
	id := workflow.StepID{Name: "approval", Number: 1}
	made := step("approval", 1, `{"token":"t"}`)
	made.Kind = workflow.KindCallback
	must(t, s, store.SaveSteps{RunID: original.ID, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{made}},
		store.InsertCallback{Callback: store.Callback{TokenHash: "h1", Env: "default", RunID: original.ID, StepID: id}})
	replay := apply(t, NewRun(2), workflow.Begin{CallID: "call_2", Token: "t"}).Run
	passing := func(token, owner string) store.InsertRun {
		return store.InsertRun{Run: replay, Replay: &store.Replay{RunID: original.ID, Entries: 1, Callbacks: []store.PassedCallback{{TokenHash: token, Owner: owner}}}}
	}
	refused(t, s, store.ErrStale, passing("h2", original.ID))
	refused(t, s, store.ErrStale, passing("h1", "run_0009"))
	early := passing("h1", original.ID) // from before the original's end
	early.Run = NewRun(3)
	must(t, s, early)
	ofOriginal := store.CallbackQuery{RunID: original.ID, StepID: id}
	if _, err := s.Callback(context.Background(), ofOriginal); err != nil {
		t.Errorf("a run that lives has lost its callback: %v", err)
	}
	must(t, s, store.UpdateRun{Run: apply(t, load(t, s, original.ID), workflow.End{CallID: "call_1", Kind: workflow.EndCompleted}).Run})
	must(t, s, passing("h1", original.ID))
	if _, err := s.Callback(context.Background(), ofOriginal); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the original has it still: %v", err)
	}
	must(t, s, opening(t, replay, workflow.Wait{StepID: workflow.StepID{Name: "approval", Number: 2}, Kind: workflow.KindCallback, Of: 1}))
	must(t, s, store.EndCallback{TokenHash: "h1", Payload: jsontext.Value(`"yes"`), Now: T0})
	equal(t, names(waits(t, s, store.WaitQuery{Set: store.WaitsFulfilled})), "run_0002/approval ")
	got, err := s.Callback(context.Background(), store.CallbackQuery{RunID: replay.ID, StepID: id})
	if err != nil || string(got.Payload) != `"yes"` {
		t.Fatalf("%+v, %v", got, err)
	}
}

// D2: one writer of a version, so that a tick has one run.
func schedulesAndLaterEventsAreDue(t *testing.T, s store.Store) {
	ctx := context.Background()
	sc := store.Schedule{Env: "default", ID: "s1", App: "shop", Workflow: "w", Expression: "* * * * *", Version: 1, Cursor: T0, NextAt: T0.Add(time.Minute), CreatedAt: T0}
	must(t, s, store.PutSchedule{Schedule: sc})
	refused(t, s, store.ErrStale, store.PutSchedule{Schedule: sc})
	later := store.LaterEvent{Env: "default", ID: "e1", Name: "paid", Payload: jsontext.Value(`1`), DueAt: T0.Add(time.Second)}
	must(t, s, store.PutLater{Event: later})
	other := later
	other.Payload = jsontext.Value(`2`)
	must(t, s, store.PutLater{Event: other})
	next, err := s.NextDue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, next, T0.Add(time.Second))
	events, err := s.LaterEvents(ctx, store.LaterQuery{DueBy: T0.Add(time.Second), Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, events, []store.LaterEvent{later})
	must(t, s, store.DropLater{Env: "default", Name: "paid", ID: "e1"})
	refused(t, s, store.ErrStale, store.DropLater{Env: "default", Name: "paid", ID: "e1"})
	due := func(at time.Time) int {
		list, err := s.Schedules(ctx, store.ScheduleQuery{DueBy: at, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	equal(t, []int{due(T0), due(T0.Add(time.Minute))}, []int{0, 1})
	sc.Version, sc.Paused = 2, true
	must(t, s, store.PutSchedule{Schedule: sc})
	equal(t, due(T0.Add(time.Minute)), 0)
	must(t, s, store.DropSchedule{Env: "default", ID: "s1"})
	must(t, s, store.DropSchedule{Env: "default", ID: "s1"})
	anew := sc
	anew.Version, anew.Paused, anew.CreatedAt = 1, false, T0.Add(time.Hour)
	must(t, s, store.PutSchedule{Schedule: anew})
	refused(t, s, store.ErrStale, store.PutSchedule{Schedule: sc}) // of the one that is gone
	equal(t, due(T0.Add(time.Minute)), 1)
	anew.Version = 2
	must(t, s, store.PutSchedule{Schedule: anew})
}

// As many as weigh no more than is asked for, but for one; they come in their order.
func whatIsDueIsReadByItsWeight(t *testing.T, s store.Store) {
	ctx := context.Background()
	for i, id := range []string{"c", "a", "b"} {
		payload := jsontext.Value(`"` + strings.Repeat(id, 8) + `"`)
		must(t, s, store.PutSchedule{Schedule: store.Schedule{
			Env: "default", ID: id, App: "shop", Workflow: "w", Expression: "* * * * *", Payload: payload, Version: 1, Cursor: T0, NextAt: T0.Add(time.Duration(i) * time.Second), CreatedAt: T0,
		}})
		must(t, s, store.PutLater{Event: store.LaterEvent{Env: "default", ID: id, Name: "paid", Payload: payload, DueAt: T0}})
	}
	for bytesMax, want := range map[int]string{0: "a b c", 30: "a b c", 29: "a b", 20: "a b", 19: "a", 1: "a"} {
		for what, q := range map[string]store.ScheduleQuery{"all": {}, "due": {DueBy: T0.Add(time.Minute)}} {
			q.Limit, q.BytesMax = 10, bytesMax
			schedules, err := s.Schedules(ctx, q)
			if err != nil {
				t.Fatal(what, err)
			}
			var ids []string
			for _, sc := range schedules {
				ids = append(ids, sc.ID)
			}
			equal(t, strings.Join(ids, " "), want)
		}
		events, err := s.LaterEvents(ctx, store.LaterQuery{DueBy: T0, Limit: 10, BytesMax: bytesMax})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		equal(t, strings.Join(ids, " "), want)
	}
}

// W5: a run that waits for nothing that can come is found by one query; one that waits for an event is not.
func strandedRunsAreFound(t *testing.T, s store.Store) {
	stranded := func() string {
		list, err := s.Stranded(context.Background(), 10)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	run := begun(t, s, 1)
	must(t, s, store.InsertRun{Run: NewRun(2)})
	equal(t, stranded(), "[]")
	wait := workflow.Wait{StepID: workflow.StepID{Name: "e", Number: 1}, Kind: workflow.KindInvoke, Child: "run_gone"}
	d := apply(t, run, workflow.End{CallID: run.Call.ID, Kind: workflow.EndSuspended, Waits: true, Opened: []workflow.Wait{wait}, Why: "why"})
	must(t, s, store.UpdateRun{Run: d.Run, Open: []store.OpenWait{{Wait: wait}}})
	equal(t, stranded(), "[]")
	must(t, s, store.CloseWait{RunID: run.ID, Child: wait.Child})
	equal(t, stranded(), "[run_0001]")
}

func cursorsNeverGoBack(t *testing.T, s store.Store) {
	position := func() int64 {
		n, err := s.Position(context.Background(), "match")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	equal(t, position(), int64(0))
	must(t, s, store.Advance{Cursor: "match", Position: 7})
	must(t, s, store.Advance{Cursor: "match", Position: 3})
	equal(t, position(), int64(7))
}

// S4, S5: a start knows of the attempts before it, also when it comes twice; at most once means once.
func startsAreKnownAgain(t *testing.T, s store.Store) {
	run := begun(t, s, 1)
	start := store.Start{StepID: workflow.StepID{Name: "a", Number: 1}, Attempt: 1, StartedAt: T0}
	save := func(callID string, st store.Start) store.StartResult {
		return must(t, s, store.SaveSteps{RunID: run.ID, CallID: callID, Nonce: "n" + callID, Starts: []store.Start{st}}).Starts[0]
	}
	equal(t, []bool{save("call_1", start).Again, save("call_1", start).Again}, []bool{false, false})
	cut := apply(t, load(t, s, run.ID), workflow.Cut{CallID: "call_1"})
	must(t, s, store.UpdateRun{Run: cut.Run, CutCall: "call_1"})
	next := apply(t, load(t, s, run.ID), workflow.Begin{CallID: "call_2", Token: "t"})
	must(t, s, store.UpdateRun{Run: next.Run})
	equal(t, []bool{save("call_2", start).Again, save("call_2", start).Again}, []bool{true, true})
	once := start
	once.Interrupted = new(workflow.Interrupted(start.StepID, T0))
	equal(t, save("call_2", once).Entry, int64(1))
	equal(t, save("call_2", start).Entry, int64(1))
	equal(t, entries(t, s, run.ID, 0)[0].Status, workflow.StepFailed)
}

// W8, K5: a claim has one owner, and passes on from that one alone.
func claimsPassOn(t *testing.T, s store.Store) {
	key := store.Key{Env: "default", Kind: store.KeyClaim, Scope: "s", Key: "k", Owner: "run_1"}
	must(t, s, store.TakeKey{Key: key, Now: T0})
	passed := key
	passed.Owner = "run_2"
	refused(t, s, store.ErrStale, store.PassKey{Key: passed, From: "run_3"})
	must(t, s, store.PassKey{Key: passed, From: "run_1"})
	res := must(t, s, store.TakeKey{Key: key, Now: T0})
	equal(t, res.Keys[0].Key.Owner, "run_2")
}

// K3: expired keys are dropped a few at a time, and no others.
func expiredKeysAreDropped(t *testing.T, s store.Store) {
	key := store.Key{Env: "default", Kind: store.KeyRun, Scope: "s", Owner: "run_1"}
	for n := range 6 {
		key.Key, key.ExpiresAt = fmt.Sprint(n), T0.Add(time.Duration(n+1)*time.Second)
		must(t, s, store.TakeKey{Key: key, Now: T0})
	}
	left := func() int {
		list, err := s.Keys(context.Background(), store.KeyQuery{Env: "default", Kind: store.KeyRun, Scope: "s", Now: T0})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := left()
	for _, want := range []int{4, 2, 1, 1} { // the last has not expired
		dropped := must(t, s, store.DropKeys{Now: T0.Add(5 * time.Second), Limit: 2}).Dropped
		equal(t, left(), want)
		equal(t, dropped, before-want)
		before = want
	}
}
