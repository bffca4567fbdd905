package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// holding is a transaction of somebody else that has done something.
func holding(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	for _, statement := range append([]string{"BEGIN"}, statements...) {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// untilWaiting returns when so many sessions of that database wait for locks.
func untilWaiting(t *testing.T, conn *pgx.Conn, want int) {
	t.Helper()
	for n := 0; n < want; {
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "SELECT pg_stat_clear_snapshot()"); err != nil {
			t.Fatal(err)
		}
	}
}

// N5: a database that a server has begun to use while a move looked at it is not emptied: what was acknowledged there stays.
func TestAMoveEmptiesNothingThatWasAcknowledged(t *testing.T) {
	url := database(t)
	s := openURL(t, url)
	target, err := postgres.OpenTarget(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	tables := []store.Table{{Name: "runs"}, {Name: "run_values"}, {Name: "events"}}
	if full, err := target.Empty(t.Context(), tables); full != "" || err != nil {
		t.Fatal(full, err)
	}
	other := holding(t, url, "SELECT FROM counters FOR UPDATE")
	done, received := make(chan store.Result), make(chan error)
	go func() {
		done <- alone(t, s, store.InsertRun{Run: storetest.NewRun(1)}, store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: "1", CreatedAt: storetest.T0}})
	}()
	untilWaiting(t, other, 1)
	go func() { received <- target.Receive(t.Context(), "mov_1", tables) }()
	untilWaiting(t, other, 2)
	if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	res, failure := <-done, <-received
	_, _, err = s.Load(t.Context(), storetest.NewRun(1).ID)
	if res.Err == nil && (err != nil || failure == nil) {
		t.Errorf("the run was acknowledged; the move: %v; reading it: %v", failure, err)
	}
}

// E1: a node that stores an event comes after whoever is storing one: who sees an event has seen all before it.
func TestNodesNumberEventsOneAfterTheOther(t *testing.T) {
	url := database(t)
	s := openURL(t, url)
	other := holding(t, url, "SELECT FROM counters WHERE name='events' FOR UPDATE")
	done := make(chan store.Result)
	go func() {
		done <- alone(t, s, store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: "1", CreatedAt: storetest.T0}})
	}()
	untilWaiting(t, other, 1)
	for _, statement := range []string{"UPDATE counters SET value=value+5 WHERE name='events'", "COMMIT"} {
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if res := <-done; res.Err != nil {
		t.Fatal(res.Err)
	}
	e, err := s.Event(t.Context(), "default", "e", "1")
	if err != nil || e.Position != 6 {
		t.Errorf("the event after five others is %d, %v", e.Position, err)
	}
}

// N2: nodes that add the same rows do so in one order, and none waits for the other.
func TestNodesThatAddTheSameRowsMeetInOneOrder(t *testing.T) {
	for what, c := range map[string]struct {
		held, empty string
		op          func(id string) store.Op
	}{
		"schedules": {`INSERT INTO schedules SELECT 'default', '15', '', '', '', '', '', NULL, false, false, 1, 0, 0, 1`, `DELETE FROM schedules`, func(id string) store.Op {
			return store.PutSchedule{Schedule: store.Schedule{Env: "default", ID: id, Version: 1, CreatedAt: storetest.T0}}
		}},
		"later events": {`INSERT INTO later_events SELECT 'default', 'e', '15', NULL, 1`, `DELETE FROM later_events`, func(id string) store.Op {
			return store.PutLater{Event: store.LaterEvent{Env: "default", Name: "e", ID: id, DueAt: storetest.T0}}
		}},
		"apps": {`INSERT INTO apps SELECT 'default', '15', '', false, 1, NULL, '', 1, '{}', 1`, `DELETE FROM apps`, func(id string) store.Op {
			return store.PutApp{App: store.App{Env: "default", Name: id, Version: 1}}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			server := pgtest.Shared(t)
			name := server.Database(t, migrated)
			url := server.URL(name)
			all := []*postgres.Store{openURL(t, url), openURL(t, url)}
			var change store.Change
			for n := range 30 {
				change = append(change, c.op(fmt.Sprintf("%02d", n)))
			}
			deadlocks := func() (n int64) {
				conn, err := pgx.Connect(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(t.Context())
				if err := conn.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := deadlocks()
			for range 6 {
				other := holding(t, url, c.held)
				done := make(chan struct{})
				go func() {
					defer close(done)
					onEach(all, func(n int, s *postgres.Store) { _ = alone(t, s, change...) })
				}()
				untilWaiting(t, other, 2)
				if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
					t.Fatal(err)
				}
				<-done
				server.Exec(t, name, c.empty)
			}
			for _, s := range all {
				s.Close()
			}
			if n := deadlocks() - before; n != 0 {
				t.Errorf("%d deadlocks", n)
			}
		})
	}
}

// E1: who goes by a cursor that nobody has taken is refused once somebody has, and takes it from nobody.
func TestACursorThatIsTakenBesideWhoHadNone(t *testing.T) {
	for what, op := range map[string]store.Op{
		"advance": store.Advance{Cursor: "match", Position: 7},
		"use":     store.UseEvent{RunID: storetest.NewRun(1).ID, Position: 3, Cursor: "match"},
	} {
		t.Run(what, func(t *testing.T) {
			url := database(t)
			a, b := openURL(t, url), openURL(t, url)
			inCall(t, a, 1)
			other := holding(t, url, "SELECT FROM counters FOR UPDATE") // behind the cursor in the order of locks
			done := make(chan store.Result)
			go func() {
				done <- alone(t, a, op, store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: "1", CreatedAt: storetest.T0}})
			}()
			untilWaiting(t, other, 1)
			if res := alone(t, b, store.TakeCursor{Cursor: "match", Owner: "node_b"}); res.Err != nil {
				t.Fatal(res.Err)
			}
			if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if res := <-done; !errors.Is(res.Err, store.ErrCursor) {
				t.Errorf("who had no cursor: %v", res.Err)
			}
			if res := alone(t, b, store.Advance{Cursor: "match", Owner: "node_b", Position: 8}); res.Err != nil {
				t.Errorf("who took it: %v", res.Err)
			}
		})
	}
}
