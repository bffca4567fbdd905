package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// alone commits a change of one op, on any goroutine.
func alone(t *testing.T, s store.Store, ops ...store.Op) store.Result {
	results, err := s.Commit(context.Background(), []store.Change{ops})
	if err != nil {
		t.Errorf("%T: %v", ops[0], err)
		return store.Result{Err: err}
	}
	return results[0]
}

// Nodes that drop runs at once take different ones, none waits for the other, and what each takes is gone in every table. Here no later run
// is given the number of an earlier one, so that nobody would see what was left.
func TestNodesThatDropRunsLeaveNothingOfThem(t *testing.T) {
	const runs, lives = 60, 1
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	var all []*postgres.Store
	for range nodesInTests {
		all = append(all, openURL(t, server.URL(name)))
	}
	for n := range runs + lives {
		storetest.Fill(t, all[0], n)
		if n < runs {
			storetest.End(t, all[0], n)
		}
	}
	var gone atomic.Int64
	onEach(all, func(n int, s *postgres.Store) {
		for {
			dropped := alone(t, s, store.DropRuns{Before: storetest.T0.Add(time.Hour), Limit: 7}).Dropped
			if gone.Add(int64(dropped)); dropped == 0 {
				return
			}
		}
	})
	if gone.Load() != runs {
		t.Errorf("%d of %d runs were dropped", gone.Load(), runs)
	}
	conn, err := pgx.Connect(t.Context(), server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, table := range []string{"runs", "run_values", "steps", "chapters", "logs", "attempts", "callbacks", "event_uses"} {
		column, of := "run", 0
		if table == "runs" {
			column = "seq"
		}
		if err := conn.QueryRow(t.Context(), fmt.Sprintf("SELECT count(DISTINCT %s) FROM %s", column, table)).Scan(&of); err != nil {
			t.Fatal(err)
		}
		if of != lives {
			t.Errorf("%s has rows of %d runs, want those of %d", table, of, lives)
		}
	}
}

// A replay beside the drop of its original has all of what it takes over, or is refused.
func TestAReplayBesideADropIsWholeOrRefused(t *testing.T) {
	all := nodes(t)
	for n := range 20 {
		original, replay := storetest.NewRun(2*n), storetest.NewRun(2*n+1)
		storetest.Fill(t, all[0], 2*n)
		storetest.End(t, all[0], 2*n)
		onEach(all[:2], func(node int, s *postgres.Store) {
			if node == 0 {
				alone(t, s, store.DropRuns{Before: storetest.T0.Add(time.Hour), Limit: 100})
				return
			}
			res := alone(t, s, store.InsertRun{Run: replay, Replay: &store.Replay{RunID: original.ID, Restart: 1, Entries: 1}})
			_, history, err := s.Load(context.Background(), replay.ID)
			switch {
			case errors.Is(res.Err, store.ErrNotFound) && errors.Is(err, store.ErrNotFound):
			case res.Err == nil && err == nil && history.Entries == 1:
			default:
				t.Errorf("%+v, then %+v, %v", res, history, err)
			}
		})
	}
}
