package sqlite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

func open(t testing.TB) store.Store { return openIn(t, t.TempDir()) }

func openIn(t testing.TB, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTheStoreKeepsTheContract(t *testing.T) { storetest.Run(t, open) }

func TestTheStoreIsLikeTheModel(t *testing.T) { storetest.Compare(t, open) }

func TestAReopenedStoreHoldsTheSame(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(1)})
	before := storetest.Dump(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("the second close: %v", err)
	}
	again := openIn(t, dir)
	if got := storetest.Dump(t, again); len(got.Runs) != 1 || got.Runs[0].ID != before.Runs[0].ID {
		t.Fatalf("%+v", got)
	}
}

func TestASecondServerOnTheSameDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	openIn(t, dir)
	if _, err := sqlite.Open(context.Background(), dir); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("N5: got %v", err)
	}
}
