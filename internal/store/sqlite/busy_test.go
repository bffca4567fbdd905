package sqlite_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	driver "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// A person who writes to the file in a shell, and leaves the transaction open, has commits fail with what to do: they would wait for ever, and nobody
// be told.
func TestAnotherProgramThatHasLockedTheFileIsToldOf(t *testing.T) {
	sqlite.BusyTime(t, 20*time.Millisecond)
	dir := t.TempDir()
	s := openIn(t, dir)
	person, err := driver.OpenConn(filepath.Join(dir, "nelkap.db"), driver.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	execute := func(statement string) {
		t.Helper()
		if err := sqlitex.ExecuteTransient(person, statement, nil); err != nil {
			t.Fatal(err)
		}
	}
	change := store.Change{store.InsertRun{Run: storetest.NewRun(1)}}
	execute("BEGIN IMMEDIATE")
	for range 2 {
		if _, err := s.Commit(t.Context(), []store.Change{change}); err == nil || errors.Is(err, store.ErrBadChange) || !strings.Contains(err.Error(), "another program has locked the database's file") {
			t.Errorf("%v", err)
		}
	}
	execute("ROLLBACK")
	if res := storetest.Commit(t, s, change...); res.Err != nil {
		t.Error(res.Err)
	}
}
