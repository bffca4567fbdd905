package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// A person who has changed a row by hand, and not committed, holds up what needs that row: not the others of its batch, nor any batch after it, with
// the node's heartbeats (N3).
func TestARowThatAPersonHasLockedHoldsUpNoOther(t *testing.T) {
	key := store.Key{Env: "default", Kind: store.KeyRun, Scope: "a", Key: "order", Owner: "run_0001"}
	for name, c := range map[string]struct {
		change string
		needs  func(step string) store.Change
	}{
		"a run": {"UPDATE runs SET reason = reason WHERE id = 'run_0001'", func(step string) store.Change { return saving("run_0001", step) }},
		"a key": {"DELETE FROM keys WHERE key = 'order'", func(string) store.Change { return store.Change{store.TakeKey{Key: key, Now: storetest.T0}} }},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Shared(t)
			database := server.Database(t, migrated)
			s := openURL(t, server.URL(database))
			inCall(t, s, 1)
			other := inCall(t, s, 2)
			storetest.Commit(t, s, store.TakeKey{Key: key, Now: storetest.T0})
			person := holding(t, server.URL(database), c.change)
			commit := func(changes ...store.Change) []store.Result {
				t.Helper()
				results, err := s.Commit(t.Context(), changes)
				if err != nil {
					t.Fatal(err)
				}
				return results
			}
			heartbeat := store.Change{store.PutNode{Node: store.Node{ID: "node_1", Beat: 1}}}
			s.SetBounds(10*time.Second, 200*time.Millisecond)
			results := commit(c.needs("a"), saving(other.ID, "a"), heartbeat)
			if !errors.Is(results[0].Err, store.ErrRowLocked) || results[1].Err != nil || results[2].Err != nil {
				t.Errorf("%+v", results)
			}
			s.SetBounds(10*time.Second, time.Hour) // what would wait for the lock now fails
			results = commit(saving(other.ID, "b"), c.needs("b"))
			if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrRowLocked) {
				t.Errorf("%+v", results)
			}
			if results = commit(c.needs("c")); !errors.Is(results[0].Err, store.ErrRowLocked) {
				t.Errorf("%+v", results)
			}
			if _, err := person.Exec(t.Context(), "ROLLBACK"); err != nil {
				t.Fatal(err)
			}
			if results = commit(c.needs("d")); results[0].Err != nil {
				t.Errorf("%+v", results)
			}
			if got := steps(t, s, other.ID); got != "1a 2b " {
				t.Errorf("the history is %q", got)
			}
			if got := steps(t, s, "run_0001"); name == "a run" && got != "1d " {
				t.Errorf("the history is %q", got)
			}
		})
	}
}

// N3: a role may have a statement_timeout that is over before the wait for a lock is.
func TestARowThatIsLockedIsFoundOutWhateverTheWaitEndsBy(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	s := openURL(t, server.URL(name)+"&statement_timeout=300")
	locked, other := inCall(t, s, 1), inCall(t, s, 2)
	holding(t, server.URL(name), "UPDATE runs SET reason = reason WHERE id = 'run_0001'")
	both := []store.Change{saving(locked.ID, "a"), saving(other.ID, "a")}
	if _, err := s.Commit(t.Context(), both); err == nil {
		t.Fatal("the row is not locked")
	}
	results, err := s.Commit(t.Context(), both) // as the engine tries again
	if err != nil || !errors.Is(results[0].Err, store.ErrRowLocked) || results[1].Err != nil {
		t.Errorf("%+v, %v", results, err)
	}
}
