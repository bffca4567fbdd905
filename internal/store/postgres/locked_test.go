package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

// A person who has changed a run by hand, and not committed, holds up what is to be written of that run: not the others of its batch, nor any
// batch after it, with the node's heartbeats.
func TestARunThatAPersonHasLockedHoldsUpNoOther(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	s := openURL(t, server.URL(name))
	locked, other := inCall(t, s, 1), inCall(t, s, 2)
	person, err := pgx.Connect(t.Context(), server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close(context.Background())
	if _, err := person.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	if _, err := person.Exec(t.Context(), "UPDATE runs SET reason = reason WHERE id = $1", []byte(locked.ID)); err != nil {
		t.Fatal(err)
	}
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
	results := commit(saving(locked.ID, "a"), saving(other.ID, "a"), heartbeat)
	if !errors.Is(results[0].Err, store.ErrRunLocked) || results[1].Err != nil || results[2].Err != nil {
		t.Errorf("%+v", results)
	}
	s.SetBounds(10*time.Second, time.Hour) // what would wait for the lock now fails
	results = commit(saving(other.ID, "b"), saving(locked.ID, "b"))
	if results[0].Err != nil || !errors.Is(results[1].Err, store.ErrRunLocked) {
		t.Errorf("%+v", results)
	}
	if results = commit(saving(locked.ID, "c")); !errors.Is(results[0].Err, store.ErrRunLocked) {
		t.Errorf("%+v", results)
	}
	if _, err := person.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if results = commit(saving(locked.ID, "d")); results[0].Err != nil {
		t.Errorf("%+v", results)
	}
	if got := steps(t, s, locked.ID) + steps(t, s, other.ID); got != "1d 1a 2b " {
		t.Errorf("the histories are %q", got)
	}
}
