package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/memory"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Compare plays random changes against a store and the model: equal answers, equal contents. The ids come from a small range,
// so that changes meet.
func Compare(t *testing.T, open Open) {
	rapid.Check(t, func(r *rapid.T) {
		s, model := open(t), memory.New()
		defer s.Close() //nolint:errcheck // the test is about what it holds
		m := &machine{runs: map[string]workflow.Run{}}
		for range rapid.IntRange(1, 12).Draw(r, "batches") {
			var batch []store.Change
			for range rapid.IntRange(1, 5).Draw(r, "changes") {
				batch = append(batch, m.change(r))
			}
			of := ordered(r, s, batch)
			want, err := model.Commit(context.Background(), ordered(r, model, batch))
			if err != nil {
				r.Fatal(err)
			}
			got, err := s.Commit(context.Background(), of)
			if err != nil {
				r.Fatalf("commit: %v", err)
			}
			if diff := cmp.Diff(want, got, SameErrors, cmpopts.EquateEmpty()); diff != "" {
				r.Fatalf("answers differ (-model +store)\n%s", diff)
			}
			m.learn(model)
		}
		if diff := cmp.Diff(Dump(r, model), Dump(r, s), cmpopts.EquateEmpty()); diff != "" {
			r.Fatalf("contents differ (-model +store)\n%s", diff)
		}
	})
}

// Batches draws n batches such as Compare plays, the same for the same seed.
func Batches(seed, n int) [][]store.Change {
	return rapid.Custom(func(r *rapid.T) [][]store.Change {
		model, m := memory.New(), &machine{runs: map[string]workflow.Run{}}
		var batches [][]store.Change
		for range n {
			var batch []store.Change
			for range rapid.IntRange(1, 5).Draw(r, "changes") {
				batch = append(batch, m.change(r))
			}
			batch = ordered(r, model, batch)
			if _, err := model.Commit(context.Background(), batch); err != nil {
				r.Fatal(err)
			}
			m.learn(model)
			batches = append(batches, batch)
		}
		return batches
	}).Example(seed)
}

// ordered is a batch with the orders that waits have in a store: those of other stores are others.
func ordered(t failer, s store.Store, batch []store.Change) []store.Change {
	var out []store.Change
	for _, change := range batch {
		change = slices.Clone(change)
		for i := range change {
			if back, ok := change[i].(store.LookedBack); ok {
				change[i] = lookedBack(t, s, back)
			}
		}
		out = append(out, change)
	}
	return out
}

// lookedBack is op for the wait that its step has; for none if it has none.
func lookedBack(t failer, s store.Store, op store.LookedBack) store.LookedBack {
	open, err := s.Waits(context.Background(), store.WaitQuery{Set: store.WaitsOfRun, RunID: op.RunID})
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, w := range open {
		if w.StepID == op.StepID && !w.Orphan {
			op.Order = w.Order
		}
	}
	return op
}

// SameErrors compares errors by the sentinel that they wrap.
var SameErrors = cmp.Transformer("sentinel", func(err error) string {
	for _, sentinel := range []error{store.ErrStale, store.ErrExists, store.ErrNotFound} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return fmt.Sprint(err)
})

// machine draws changes that could come from an engine, right and wrong ones.
type machine struct {
	runs map[string]workflow.Run // as they were after the last batch: some of the changes made from them are stale
	app  int64                   // the version of the app's record then
	now  int
}

func (m *machine) learn(model *memory.Store) {
	m.runs = map[string]workflow.Run{}
	for n := range 4 {
		if run, _, err := model.Load(context.Background(), NewRun(n).ID); err == nil {
			m.runs[run.ID] = run
		}
	}
	if apps, _ := model.Apps(context.Background()); len(apps) > 0 {
		m.app = apps[0].Version
	}
}

func (m *machine) change(r *rapid.T) store.Change {
	var change store.Change
	for range rapid.IntRange(1, 3).Draw(r, "ops") {
		op := m.op(r)
		change = append(change, op)
		if _, insert := op.(store.InsertRun); insert {
			break // two inserts of one id in one change would be a broken change
		}
	}
	if len(change) > 1 && !distinct(change) {
		return change[:1]
	}
	return change
}

// distinct tells whether no two ops of a change touch the same thing: a change's checks come before its writes.
func distinct(change store.Change) bool {
	seen := map[string]bool{}
	var all []store.Op
	for _, op := range change {
		all = append(all, op)
		if key, ok := op.(store.TakeKey); ok {
			all = append(all, key.Then...)
		}
	}
	for _, op := range all {
		name := ""
		switch op := op.(type) {
		case store.DropRuns:
			return false // it touches whatever has ended
		case store.InsertRun:
			if name = op.Run.ID; op.Replay != nil && len(op.Replay.Callbacks) > 0 && len(all) > 1 {
				return false // it touches two things
			}
		case store.UpdateRun:
			name = op.Run.ID
		case store.SaveSteps:
			name = op.RunID
		case store.AddLogs:
			name = op.RunID
		case store.DropEvents:
			name = "events"
		case store.InsertEvent:
			name = op.Event.Name + op.Event.ID
		case store.TakeKey, store.PassKey:
			name = "keys"
		case store.UseEvent, store.InsertCallback, store.EndCallback, store.ExpireCallback, store.CloseWait, store.LookedBack, store.TakeCursor, store.Advance, store.PutNode, store.DropNode,
			store.PutSchedule, store.PutLater, store.DropLater, store.DropSchedule:
			name = "waits"
		case store.InsertDelivery, store.DropDeliveries:
			name = "deliveries"
		}
		if name != "" && seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// drawnKeys are the kinds of keys that a machine takes, each in the scope of a run.
var drawnKeys = []store.KeyKind{store.KeyRun, store.KeySend, store.KeyClaim}

func (m *machine) op(r *rapid.T) store.Op {
	m.now++
	now := T0.Add(time.Duration(m.now) * time.Second)
	run := NewRun(rapid.IntRange(0, 3).Draw(r, "run"))
	known, ok := m.runs[run.ID]
	switch rapid.IntRange(0, 11).Draw(r, "op") {
	case 0:
		return store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "event")), Payload: jsontext.Value(`1`), CreatedAt: now}}
	case 1:
		key := store.Key{
			Env: "default", Kind: rapid.SampledFrom(drawnKeys).Draw(r, "kind"), Scope: run.ID,
			Key: fmt.Sprint(rapid.IntRange(0, 1).Draw(r, "key")), Owner: fmt.Sprint(m.now), Hash: fmt.Sprint(rapid.IntRange(0, 1).Draw(r, "hash")),
		}
		if key.Kind == store.KeyClaim {
			key.Owner = NewRun(rapid.IntRange(0, 3).Draw(r, "owner")).ID
			key.LastsFor = time.Duration(rapid.IntRange(0, 2).Draw(r, "lasts for")) * time.Second
			key.UntilFailed = rapid.Bool().Draw(r, "until failed")
		}
		if rapid.Bool().Draw(r, "expires") {
			key.ExpiresAt = now.Add(3 * time.Second)
		}
		return store.TakeKey{Key: key, Now: now, Then: []store.Op{store.InsertRun{Run: run}}}
	case 2:
		if rapid.Bool().Draw(r, "events") {
			return store.DropEvents{Before: now.Add(-3 * time.Second), Limit: rapid.IntRange(1, 3).Draw(r, "limit"), BytesMax: rapid.IntRange(0, 4).Draw(r, "bytes")}
		}
		if rapid.Bool().Draw(r, "old runs") {
			return dropping(r, now)
		}
		return store.DropKeys{Now: now, Limit: 100}
	case 3:
		return m.waiting(r, run, now)
	case 4:
		return m.delivering(r, now)
	case 5:
		return m.logging(r, run, now)
	}
	if !ok {
		run.Closers = rapid.SampledFrom([]workflow.Closers{0, workflow.CloserOnFailure, workflow.CloserOnCancel}).Draw(r, "closers")
		insert := store.InsertRun{Run: run, Payload: jsontext.Value(`{"n":1}`)}
		if rapid.Bool().Draw(r, "replay") {
			insert.Replay = &store.Replay{RunID: NewRun(rapid.IntRange(0, 3).Draw(r, "original")).ID, Entries: int64(rapid.IntRange(0, 3).Draw(r, "entries")), Events: rapid.Bool().Draw(r, "events")}
			if rapid.Bool().Draw(r, "passes") {
				insert.Replay.Callbacks = []store.PassedCallback{{TokenHash: fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "token")), Owner: insert.Replay.RunID}}
			}
			if insert.Replay.RunID == run.ID {
				insert.Replay = nil
			}
		}
		return insert
	}
	if rapid.Bool().Draw(r, "save") {
		return m.save(r, known, now)
	}
	return m.update(r, known, now)
}

func (m *machine) save(r *rapid.T, run workflow.Run, now time.Time) store.Op {
	save := store.SaveSteps{RunID: run.ID, CallID: "call_none", Nonce: rapid.SampledFrom([]string{"n", "n", "n", "other"}).Draw(r, "nonce"), StepsMax: 4, BytesMax: 12}
	if run.Call != nil {
		save.CallID = run.Call.ID
	}
	id := func() workflow.StepID {
		return workflow.StepID{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "name"), Number: rapid.IntRange(1, 2).Draw(r, "number")}
	}
	attempt := rapid.IntRange(1, 3).Draw(r, "attempt")
	switch rapid.IntRange(0, 3).Draw(r, "what") {
	case 0:
		start := store.Start{StepID: id(), Attempt: attempt, StartedAt: now}
		if rapid.Bool().Draw(r, "once") {
			start.Interrupted = new(workflow.Interrupted(start.StepID, now))
		}
		save.Starts = []store.Start{start}
	case 1:
		save.Retries = []workflow.Retry{{StepID: id(), Attempt: attempt, Error: jsontext.Value(`{}`), StartedAt: now, EndedAt: now, RetryAt: now.Add(time.Second)}}
	default:
		st := step("", 0, rapid.SampledFrom([]string{`1`, `"two"`, `null`}).Draw(r, "output"))
		st.StepID = id()
		save.Steps = []workflow.Step{st}
	}
	return save
}

func (m *machine) update(r *rapid.T, run workflow.Run, now time.Time) store.Op {
	callID, cutCall := "", ""
	if run.Call != nil {
		callID = run.Call.ID
	}
	var in workflow.Input
	var trees jsontext.Value
	switch rapid.IntRange(0, 11).Draw(r, "input") {
	case 11:
		in = workflow.Adopt{CallID: callID, Node: owner(r)}
	case 9:
		in = workflow.Opened{CallID: callID, Undoes: true}
	case 10:
		in = workflow.End{CallID: callID, Kind: workflow.EndRestarted, Payload: jsontext.Value(`{"n":2}`)}
	case 6:
		in = workflow.Opened{CallID: callID, Waits: []workflow.Wait{m.wait(r, now)}}
	case 7:
		in, trees = workflow.End{CallID: callID, Kind: workflow.EndSuspended, Waits: true, Opened: []workflow.Wait{m.wait(r, now), m.wait(r, now)}}, jsontext.Value(`[]`)
	case 8:
		w := m.wait(r, now)
		in = workflow.News{Steps: []workflow.Step{w.Over(now)}, WaitsAt: now, Wakes: rapid.Bool().Draw(r, "wakes")}
	case 0, 1, 2:
		in = workflow.Begin{CallID: fmt.Sprintf("call_%d", m.now), Token: "t", Node: owner(r), Handlers: run.Closers &^ workflow.CloserUndo}
	case 3:
		in, cutCall = workflow.Cut{CallID: callID}, callID
	case 4:
		in = workflow.End{CallID: callID, Kind: rapid.SampledFrom([]workflow.EndKind{workflow.EndCompleted, workflow.EndYielded, workflow.EndFailed}).Draw(r, "end"), Output: jsontext.Value(`1`), Error: &workflow.Failure{Error: jsontext.Value(`{"name":"E"}`)}}
	default:
		in = workflow.Cancel{}
	}
	d, err := workflow.Apply(run, in, now)
	if err != nil || d.Run.Version == run.Version {
		return store.PutApp{App: store.App{Env: "default", Name: "shop", Hash: fmt.Sprint(m.now), Version: m.app + 1}}
	}
	update := store.UpdateRun{Run: d.Run, Append: d.Append, Output: d.Output, Error: d.Error, CutCall: cutCall, Trees: trees, CloseWaits: d.CloseWaits, Chapter: d.Chapter}
	for i, w := range d.Open {
		open := store.OpenWait{Wait: w}
		if w.Kind == workflow.KindInvoke {
			child := NewRun(100*m.now + i)
			child.Parent = run.ID
			open.Child, open.Start = child.ID, &store.InsertRun{Run: child}
		}
		update.Open = append(update.Open, open)
	}
	return update
}

// wait draws a wait; a child is drawn where it is opened.
func (m *machine) wait(r *rapid.T, now time.Time) workflow.Wait {
	w := workflow.Wait{
		StepID: workflow.StepID{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "wait"), Number: rapid.IntRange(1, 2).Draw(r, "number")},
		Kind:   rapid.SampledFrom([]string{workflow.KindSleep, workflow.KindEvent, workflow.KindInvoke, workflow.KindCallback}).Draw(r, "kind"),
	}
	if rapid.Bool().Draw(r, "due") {
		w.DueAt = now.Add(time.Second)
	}
	switch w.Kind {
	case workflow.KindCallback:
		w.Of = 1
	case workflow.KindEvent:
		w.Event = &workflow.EventWait{Names: []string{"e", "f"}, SinceRun: rapid.Bool().Draw(r, "since")}
		if rapid.Bool().Draw(r, "match") {
			w.Event.Paths, w.Event.Key = "payload.id", fmt.Sprint(rapid.IntRange(0, 1).Draw(r, "key"))
		}
	}
	return w
}

// logging draws lines of a run's log, some of which come twice.
func (m *machine) logging(r *rapid.T, run workflow.Run, now time.Time) store.Op {
	op := store.AddLogs{RunID: run.ID, Restart: rapid.IntRange(0, 1).Draw(r, "restart"), CallID: fmt.Sprintf("call_%d", rapid.IntRange(0, 1).Draw(r, "call")), LinesMax: 6}
	for range rapid.IntRange(1, 3).Draw(r, "lines") {
		l := store.LogLine{At: now, Level: "info", Message: fmt.Sprint(m.now), Attempt: 1, Line: rapid.IntRange(1, 3).Draw(r, "line")}
		if rapid.Bool().Draw(r, "in a step") {
			l.StepID = workflow.StepID{Name: "a", Number: 1}
		} else {
			l.Entry = int64(rapid.IntRange(0, 1).Draw(r, "entry"))
		}
		op.Lines = append(op.Lines, l)
	}
	return op
}

// waiting draws an op on waits, callbacks and claims.
func (m *machine) waiting(r *rapid.T, run workflow.Run, now time.Time) store.Op {
	id := workflow.StepID{Name: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "name"), Number: 1}
	token := fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "token"))
	switch rapid.IntRange(0, 12).Draw(r, "waiting") {
	case 7:
		return store.PutSchedule{Schedule: store.Schedule{
			Env: "default", ID: token, App: "shop", Workflow: "w", Version: int64(rapid.IntRange(1, 2).Draw(r, "version")), Cursor: now,
			Paused: rapid.Bool().Draw(r, "paused"), NextAt: now.Add(time.Minute), CreatedAt: T0.Add(time.Duration(rapid.IntRange(0, 1).Draw(r, "made")) * time.Hour),
		}}
	case 8:
		if rapid.Bool().Draw(r, "drop") {
			return store.DropLater{Env: "default", Name: "e", ID: token}
		}
		return store.PutLater{Event: store.LaterEvent{Env: "default", ID: token, Name: "e", Payload: jsontext.Value(`1`), DueAt: now}}
	case 9:
		return store.DropSchedule{Env: "default", ID: token}
	case 10:
		return store.TakeCursor{Cursor: "match", Owner: owner(r)}
	case 11:
		return store.PutNode{Node: store.Node{ID: owner(r), Beat: int64(m.now), State: []byte(token)}}
	case 12:
		return store.DropNode{ID: owner(r)}
	case 0:
		return store.UseEvent{RunID: run.ID, Position: int64(rapid.IntRange(1, 3).Draw(r, "position"))}
	case 1:
		return store.LookedBack{RunID: run.ID, StepID: id, Cursor: "match", Owner: owner(r)} // see ordered
	case 2:
		return store.Advance{Cursor: "match", Owner: owner(r), Position: int64(rapid.IntRange(1, 5).Draw(r, "position"))}
	case 3:
		return store.InsertCallback{Callback: store.Callback{TokenHash: token, Env: "default", RunID: run.ID, StepID: id, DueAt: now.Add(4 * time.Second)}}
	case 4:
		return store.EndCallback{TokenHash: token, Payload: jsontext.Value(`1`), Now: now}
	case 5:
		return store.CloseWait{RunID: run.ID, Child: NewRun(100*rapid.IntRange(1, m.now).Draw(r, "opened") + rapid.IntRange(0, 1).Draw(r, "child")).ID}
	default:
		key := store.Key{Env: "default", Kind: store.KeyRun, Scope: run.ID, Key: "0", Owner: fmt.Sprint(m.now)}
		return store.PassKey{Key: key, From: fmt.Sprint(rapid.IntRange(0, m.now).Draw(r, "from"))}
	}
}

func owner(r *rapid.T) string {
	return rapid.SampledFrom([]string{"", "node_1", "node_2"}).Draw(r, "owner")
}

// Contents is everything that a store holds of a test's runs.
type Contents struct {
	Runs     []store.RunRecord
	Entries  map[string][]store.Entry
	Attempts map[string][]store.Attempt
	History  map[string]store.History
	Events   []store.Event
	Keys     []store.Key
	Apps     []store.App
	Ready    []store.Ready
	Timers   []workflow.Run
	InCall   map[string][]workflow.Run // by node
	Counts   []store.CallCount
	Nodes    []store.Node
	Heads    []store.Head
	Next     time.Time
	Waits    map[store.WaitSet][]store.Wait // without their Order, in that order
	Paths    []string
	Unused   []store.Event // by the first run
	Calls    []store.Callback
	Position int64
	Schedule []store.Schedule
	Due      []store.Schedule
	Later    []store.LaterEvent
	NextDue  time.Time
	Stranded []string
	Chapters map[string][]store.Chapter
	Closed   map[string][]store.Entry // the first chapter's
	Logs     map[string][]store.LogLine
	States   map[string]store.State // without their waits' Order

	Deliveries []store.Delivery
}

// failer is the part of testing.TB that rapid's T has too.
type failer interface {
	Fatalf(format string, args ...any)
}

// Dump reads everything that s holds in the environment "default", for at most 1,000 runs.
func Dump(t failer, s store.Reader) Contents {
	ctx, far := context.Background(), T0.Add(1000*time.Hour)
	c := Contents{
		Entries: map[string][]store.Entry{}, Attempts: map[string][]store.Attempt{}, History: map[string]store.History{},
		Chapters: map[string][]store.Chapter{}, Closed: map[string][]store.Entry{}, Logs: map[string][]store.LogLine{}, States: map[string]store.State{},
	}
	check := func(err error) {
		if err != nil {
			t.Fatalf("dump: %v", err)
		}
	}
	var err error
	c.Runs, err = s.Runs(ctx, store.RunQuery{Env: "default", Limit: 1000})
	check(err)
	for _, run := range c.Runs {
		c.Entries[run.ID], err = s.Entries(ctx, store.EntryQuery{RunID: run.ID, EntriesMax: 1000, BytesMax: 1 << 30})
		check(err)
		c.Attempts[run.ID], err = s.Attempts(ctx, run.ID)
		check(err)
		_, c.History[run.ID], err = s.Load(ctx, run.ID)
		check(err)
		c.Chapters[run.ID], err = s.Chapters(ctx, run.ID)
		check(err)
		c.Closed[run.ID], err = s.Entries(ctx, store.EntryQuery{RunID: run.ID, Chapter: new(0), EntriesMax: 1000, BytesMax: 1 << 30})
		check(err)
		state, err := s.State(ctx, store.EntryQuery{RunID: run.ID, After: 1, EntriesMax: 2, BytesMax: 1 << 30})
		check(err)
		for i := range state.Waits {
			state.Waits[i].Order = 0
		}
		c.States[run.ID] = state
		c.Logs[run.ID], err = s.Logs(ctx, store.LogQuery{Env: "default", RunID: run.ID, Limit: 1000})
		check(err)
		for i := range c.Logs[run.ID] {
			c.Logs[run.ID][i].Position = 0 // which may be used again once its run is gone
		}
		for _, kind := range drawnKeys {
			keys, err := s.Keys(ctx, store.KeyQuery{Env: "default", Kind: kind, Scope: run.ID, Now: T0})
			check(err)
			c.Keys = append(c.Keys, keys...)
		}
	}
	c.Events, err = s.Events(ctx, store.EventQuery{Env: "default", Limit: 1000})
	check(err)
	c.Apps, err = s.Apps(ctx)
	check(err)
	c.Ready, err = s.Ready(ctx, "default", "shop", far, 1000)
	check(err)
	c.Timers, err = s.Timers(ctx, store.TimerQuery{Now: far, Limit: 1000})
	check(err)
	c.Next, err = s.NextTimer(ctx)
	check(err)
	c.dumpNodes(s, check)
	c.dumpWaits(s, check)
	c.dumpDeliveries(s, check)
	return c
}

func (c *Contents) dumpWaits(s store.Reader, check func(error)) {
	ctx := context.Background()
	c.Waits = map[store.WaitSet][]store.Wait{}
	var queries []store.WaitQuery
	for _, run := range c.Runs {
		queries = append(queries, store.WaitQuery{Set: store.WaitsOfRun, RunID: run.ID})
	}
	for _, set := range []store.WaitSet{store.WaitsUnlooked, store.WaitsOfKin, store.WaitsFulfilled} {
		queries = append(queries, store.WaitQuery{Set: set})
	}
	for position := range int64(4) {
		queries = append(queries, store.WaitQuery{Set: store.WaitsForEvent, Env: "default", Event: "e", Position: position, Pairs: [][2]string{{"payload.id", "0"}}})
	}
	for _, q := range queries {
		waits, err := s.Waits(ctx, q)
		check(err)
		for i := range waits {
			waits[i].Order = 0
		}
		c.Waits[q.Set] = append(c.Waits[q.Set], waits...)
	}
	var err error
	c.Paths, err = s.MatchPaths(ctx, "default", "e")
	check(err)
	c.Unused, err = s.Events(ctx, store.EventQuery{Env: "default", Name: "e", Forward: true, UnusedBy: NewRun(0).ID, Limit: 100})
	check(err)
	for token := range 3 {
		callback, err := s.Callback(ctx, store.CallbackQuery{TokenHash: fmt.Sprint(token)})
		if !errors.Is(err, store.ErrNotFound) {
			check(err)
			c.Calls = append(c.Calls, callback)
		}
	}
	c.Position, err = s.Position(ctx, "match")
	check(err)
	c.Schedule, err = s.Schedules(ctx, store.ScheduleQuery{Env: "default", App: "shop", After: "0", Limit: 100})
	check(err)
	c.Due, err = s.Schedules(ctx, store.ScheduleQuery{DueBy: T0.Add(1000 * time.Hour), Limit: 100})
	check(err)
	c.Later, err = s.LaterEvents(ctx, store.LaterQuery{DueBy: T0.Add(1000 * time.Hour), Limit: 100})
	check(err)
	c.NextDue, err = s.NextDue(ctx)
	check(err)
	c.Stranded, err = s.Stranded(ctx, 100)
	check(err)
}
