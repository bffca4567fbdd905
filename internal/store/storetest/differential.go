package storetest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
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
			want, err := model.Commit(context.Background(), batch)
			if err != nil {
				r.Fatal(err)
			}
			got, err := s.Commit(context.Background(), batch)
			if err != nil {
				r.Fatalf("commit: %v", err)
			}
			if diff := cmp.Diff(want, got, sameErrors, cmpopts.EquateEmpty()); diff != "" {
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
			if _, err := model.Commit(context.Background(), batch); err != nil {
				r.Fatal(err)
			}
			m.learn(model)
			batches = append(batches, batch)
		}
		return batches
	}).Example(seed)
}

// sameErrors compares errors by the sentinel that they wrap.
var sameErrors = cmp.Transformer("sentinel", func(err error) string {
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
	now  int
}

func (m *machine) learn(model *memory.Store) {
	m.runs = map[string]workflow.Run{}
	for n := range 4 {
		if run, _, err := model.Load(context.Background(), NewRun(n).ID); err == nil {
			m.runs[run.ID] = run
		}
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
		case store.InsertRun:
			name = op.Run.ID
		case store.UpdateRun:
			name = op.Run.ID
		case store.SaveSteps:
			name = op.RunID
		case store.InsertEvent:
			name = op.Event.Name + op.Event.ID
		case store.TakeKey:
			name = "keys"
		}
		if name != "" && seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

func (m *machine) op(r *rapid.T) store.Op {
	m.now++
	now := T0.Add(time.Duration(m.now) * time.Second)
	run := NewRun(rapid.IntRange(0, 3).Draw(r, "run"))
	known, ok := m.runs[run.ID]
	switch rapid.IntRange(0, 9).Draw(r, "op") {
	case 0:
		return store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: fmt.Sprint(rapid.IntRange(0, 2).Draw(r, "event")), CreatedAt: now}}
	case 1:
		key := store.Key{
			Env: "default", Kind: rapid.SampledFrom([]store.KeyKind{store.KeyRun, store.KeySend}).Draw(r, "kind"), Scope: run.ID,
			Key: fmt.Sprint(rapid.IntRange(0, 1).Draw(r, "key")), Owner: fmt.Sprint(m.now), Hash: fmt.Sprint(rapid.IntRange(0, 1).Draw(r, "hash")),
		}
		if rapid.Bool().Draw(r, "expires") {
			key.ExpiresAt = now.Add(3 * time.Second)
		}
		return store.TakeKey{Key: key, Now: now, Then: []store.Op{store.InsertRun{Run: run}}}
	case 2:
		return store.DropKeys{Now: now, Limit: 100}
	}
	if !ok {
		return store.InsertRun{Run: run, Payload: jsontext.Value(`{"n":1}`)}
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
		save.Starts = []store.Start{{StepID: id(), Attempt: attempt, StartedAt: now}}
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
	switch rapid.IntRange(0, 5).Draw(r, "input") {
	case 0, 1, 2:
		in = workflow.Begin{CallID: fmt.Sprintf("call_%d", m.now), Token: "t"}
	case 3:
		in, cutCall = workflow.Cut{CallID: callID}, callID
	case 4:
		in = workflow.End{CallID: callID, Kind: rapid.SampledFrom([]workflow.EndKind{workflow.EndCompleted, workflow.EndYielded}).Draw(r, "end"), Output: jsontext.Value(`1`)}
	default:
		in = workflow.Cancel{}
	}
	d, err := workflow.Apply(run, in, now)
	if err != nil || d.Run.Version == run.Version {
		return store.PutApp{App: store.App{Env: "default", Name: "shop", Hash: fmt.Sprint(m.now)}}
	}
	return store.UpdateRun{Run: d.Run, Append: d.Append, Output: d.Output, Error: d.Error, CutCall: cutCall}
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
	InCall   []workflow.Run
	Next     time.Time
}

// failer is the part of testing.TB that rapid's T has too.
type failer interface {
	Fatalf(format string, args ...any)
}

// Dump reads everything that s holds in the environment "default", for at most 1,000 runs.
func Dump(t failer, s store.Reader) Contents {
	ctx, far := context.Background(), T0.Add(1000*time.Hour)
	c := Contents{Entries: map[string][]store.Entry{}, Attempts: map[string][]store.Attempt{}, History: map[string]store.History{}}
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
		for _, kind := range []store.KeyKind{store.KeyRun, store.KeySend} {
			keys, err := s.Keys(ctx, "default", kind, run.ID, T0)
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
	c.Timers, err = s.Timers(ctx, far, 1000)
	check(err)
	c.InCall, err = s.InCall(ctx, "", 1000)
	check(err)
	c.Next, err = s.NextTimer(ctx)
	check(err)
	return c
}
