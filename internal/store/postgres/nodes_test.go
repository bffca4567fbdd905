package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

const nodesInTests = 3

// nodes are stores of one database, each as a node of its own would have it.
func nodes(t *testing.T) []*postgres.Store {
	t.Helper()
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	var out []*postgres.Store
	for range nodesInTests {
		out = append(out, openURL(t, server.URL(name)))
	}
	return out
}

// onEach has every node do something at the same time.
func onEach(nodes []*postgres.Store, do func(n int, s *postgres.Store)) {
	var all sync.WaitGroup
	for n, s := range nodes {
		all.Go(func() { do(n, s) })
	}
	all.Wait()
}

// N2, W1, W9: however nodes meet on the same runs, in whatever order their batches name them, histories have no gaps and nothing twice.
func TestNodesThatSaveToTheSameRunsLeaveNoGaps(t *testing.T) {
	const runs, rounds = 4, 15
	all := nodes(t)
	for n := range runs {
		inCall(t, all[0], n)
	}
	onEach(all, func(n int, s *postgres.Store) {
		for round := range rounds {
			var batch []store.Change
			for i := range runs {
				run := storetest.NewRun((i*(n+1) + round) % runs).ID
				batch = append(batch, saving(run, fmt.Sprintf("own %d %d %d", n, round, i)), saving(run, fmt.Sprintf("shared %d", round)))
			}
			results, err := s.Commit(context.Background(), batch)
			if err != nil {
				t.Errorf("node %d: %v", n, err)
				return
			}
			for _, res := range results {
				if res.Err != nil || len(res.Steps) != 1 || res.Steps[0].Stands {
					t.Errorf("node %d: %+v", n, res)
				}
			}
		}
	})
	total := int64(0)
	for n := range runs {
		id := storetest.NewRun(n).ID
		_, history, err := all[1].Load(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := all[1].Entries(context.Background(), store.EntryQuery{RunID: id, EntriesMax: 1000, BytesMax: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[workflow.StepID]bool{}
		for i, e := range entries {
			if e.Entry != int64(i+1) || seen[e.StepID] {
				t.Errorf("run %s has entry %d (%s) at place %d", id, e.Entry, e.Name, i+1)
			}
			seen[e.StepID] = true
		}
		if history.Entries != int64(len(entries)) || history.Bytes != int64(len(entries)) {
			t.Errorf("run %s counts %+v, and has %d entries", id, history, len(entries))
		}
		total += history.Entries
	}
	if want := int64(nodesInTests*rounds*runs + rounds*runs); total != want {
		t.Errorf("%d entries, want %d", total, want)
	}
}

// N1, W8: of nodes that do the same at the same time, one does it.
func TestOneNodeWins(t *testing.T) {
	all := nodes(t)
	const rounds = 8
	wins := map[string]int{}
	for round := range rounds {
		for _, c := range contested(t, all[0], round) {
			var mu sync.Mutex
			onEach(all, func(n int, s *postgres.Store) {
				results, err := s.Commit(context.Background(), []store.Change{{c.by(n)}})
				if err != nil {
					t.Errorf("%s by node %d: %v", c.what, n, err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				res := results[0]
				if res.Err == nil && (len(res.Keys) == 0 || res.Keys[0].Taken) {
					wins[c.what]++
				}
				if res.Err != nil && !errors.Is(res.Err, store.ErrStale) && !errors.Is(res.Err, store.ErrExists) {
					t.Errorf("%s by node %d: %v", c.what, n, res.Err)
				}
			})
			if wins[c.what] != round+1 {
				t.Fatalf("round %d: %d nodes won %s", round+1, wins[c.what], c.what)
			}
		}
	}
	if len(wins) != 12 {
		t.Errorf("%v", wins)
	}
}

// contest is an op that one of many nodes can do.
type contest struct {
	what string
	by   func(node int) store.Op
}

// contested makes what nodes will contend for.
func contested(t *testing.T, s store.Store, round int) []contest {
	run := inCall(t, s, round)
	next, err := workflow.Apply(run, workflow.Cancel{}, storetest.T0)
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint(round)
	event := store.Event{Env: "default", Name: "e", ID: id, CreatedAt: storetest.T0}
	first := store.Schedule{Env: "default", ID: id, Version: 1, CreatedAt: storetest.T0}
	second := first
	second.Version = 2
	callback := store.Callback{TokenHash: id, Env: "default", RunID: run.ID, StepID: workflow.StepID{Name: "callback", Number: 1}}
	owned := func(kind store.KeyKind, node int) store.Key {
		return store.Key{Env: "default", Kind: kind, Scope: "s", Key: id, Owner: fmt.Sprint("owner ", node)}
	}
	expired := owned(store.KeyEvent, -1)
	expired.ExpiresAt = storetest.T0
	for _, op := range []store.Op{
		store.TakeKey{Key: expired, Now: storetest.T0.Add(-1)},
		store.TakeKey{Key: owned(store.KeyClaim, -1), Now: storetest.T0},
		store.PutLater{Event: store.LaterEvent{Env: "default", Name: "e", ID: id, DueAt: storetest.T0}},
	} {
		if res := storetest.Commit(t, s, op); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	return []contest{
		{"a version of a run", func(int) store.Op { return store.UpdateRun{Run: next.Run} }},
		{"a run's id", func(int) store.Op { return store.InsertRun{Run: storetest.NewRun(1000 + round)} }},
		{"an event's id", func(int) store.Op { return store.InsertEvent{Event: event} }},
		{"an event for a wait", func(int) store.Op { return store.UseEvent{RunID: run.ID, Position: 1} }},
		{"a key", func(n int) store.Op { return store.TakeKey{Key: owned(store.KeyRun, n), Now: storetest.T0} }},
		{"a key that has expired", func(n int) store.Op { return store.TakeKey{Key: owned(store.KeyEvent, n), Now: storetest.T0} }},
		{"a claim that passes on", func(n int) store.Op {
			return store.PassKey{Key: owned(store.KeyClaim, n), From: "owner -1"}
		}},
		{"a new schedule", func(int) store.Op { return store.PutSchedule{Schedule: first} }},
		{"a schedule's next version", func(int) store.Op { return store.PutSchedule{Schedule: second} }},
		{"an event that is due", func(int) store.Op { return store.DropLater{Env: "default", Name: "e", ID: id} }},
		{"a callback", func(int) store.Op { return store.InsertCallback{Callback: callback} }},
		{"a callback's answer", func(int) store.Op { return store.EndCallback{TokenHash: id, Now: storetest.T0} }},
	}
}

// E1: who has seen an event has seen all before it, so that a cursor passes over none.
func TestEventsShowInTheirOrder(t *testing.T) {
	all := nodes(t)
	ctx := context.Background()
	reading, done := context.WithCancel(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for cursor := int64(0); reading.Err() == nil; {
			events, err := all[0].Events(ctx, store.EventQuery{Forward: true, After: cursor, Limit: 100})
			if err != nil {
				t.Error(err)
				return
			}
			for _, e := range events {
				if e.Position != cursor+1 {
					t.Errorf("event %d shows after %d", e.Position, cursor)
				}
				cursor = e.Position
			}
		}
	})
	onEach(all, func(n int, s *postgres.Store) {
		for round := range 20 {
			change := store.Change{store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: fmt.Sprint(n, round), CreatedAt: storetest.T0}}}
			if _, err := s.Commit(ctx, slices.Repeat([]store.Change{change}, 2)); err != nil {
				t.Errorf("node %d: %v", n, err)
			}
		}
	})
	done()
	reader.Wait()
	events, err := all[0].Events(ctx, store.EventQuery{Env: "default", Limit: 1000})
	if err != nil || len(events) != nodesInTests*20 || events[0].Position != nodesInTests*20 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// Nodes go by the database's clock, whatever their machines' clocks say, and however long a look at it takes.
func TestTheDatabasesClockDecides(t *testing.T) {
	for what, lock := range map[string]string{"at once": "", "slowly": "LOCK TABLE nodes"} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			s := openURL(t, url)
			s.SetClock(-2 * time.Second) // as of a machine whose clock has been put right since
			conn := holding(t, url, lock)
			looked := make(chan error)
			go func() {
				_, err := s.Nodes(t.Context())
				looked <- err
			}()
			if lock != "" {
				untilWaiting(t, conn, 1)
				soon := time.NewTimer(postgres.ClockTripMax)
				defer soon.Stop()
				<-soon.C
			}
			if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if err := <-looked; err != nil {
				t.Fatal(err)
			}
			var now time.Time
			before := s.Now()
			if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
				t.Fatal(err)
			}
			if after := s.Now(); now.Before(before.Add(-time.Second)) || now.After(after.Add(time.Second)) {
				t.Errorf("the store's clock says %v to %v, and the database's %v", before, after, now)
			}
		})
	}
}
