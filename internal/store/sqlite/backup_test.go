package sqlite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	zombiezen "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/sqlite"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// What docs/deploying.md says of backups: SQLite's own command makes a whole one beside a server that writes, and a server opens it.
func TestABackupIsMadeBesideTheServer(t *testing.T) {
	page, err := os.ReadFile("../../../docs/deploying.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`sqlite3 \S+/(\S+) "(VACUUM INTO) '`).FindSubmatch(page)
	if said == nil {
		t.Fatal("the page says otherwise now")
	}
	dir, restored := t.TempDir(), t.TempDir()
	s, err := sqlite.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, after := storetest.NewRun(1), storetest.NewRun(2)
	create := func(run int) {
		t.Helper()
		if res := storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(run)}); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	create(1)
	conn, err := zombiezen.OpenConn(filepath.Join(dir, string(said[1])), zombiezen.OpenReadWrite) // as the program sqlite3 does
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlitex.ExecuteTransient(conn, string(said[2])+" ?", &sqlitex.ExecOptions{Args: []any{filepath.Join(restored, string(said[1]))}}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	create(2)
	b, err := sqlite.Open(t.Context(), restored)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Record(t.Context(), before.Env, before.ID); err != nil {
		t.Errorf("what was there when it was made: %v", err)
	}
	if _, err := b.Record(t.Context(), after.Env, after.ID); err == nil {
		t.Error("what came later is in it")
	}
	if _, err := s.Record(t.Context(), after.Env, after.ID); err != nil {
		t.Errorf("the server's own: %v", err)
	}
}
