package postgres_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// isHeld opens a database as a server does, and tells whether its runs are held.
func isHeld(t *testing.T, url string) bool {
	t.Helper()
	s := openURL(t, url)
	defer s.Close()
	return s.Held()
}

// lived is a database in which a server has been, and left a run.
func lived(t *testing.T, server *pgtest.Server) (name string) {
	t.Helper()
	name = server.Database(t, migrated)
	s := openURL(t, server.URL(name))
	defer s.Close()
	if s.Held() {
		t.Fatal("a new store is held")
	}
	inCall(t, s, 1)
	return name
}

// Rule N5: a database that was restored, or is a copy of another, is held until somebody says that its runs go on.
func TestADatabaseThatWasRestoredIsHeld(t *testing.T) {
	server := pgtest.Shared(t)
	elsewhere := own(t)
	for _, c := range []struct {
		name    string
		restore func(t *testing.T, name string) (url string)
	}{
		{"to another database", func(t *testing.T, name string) string {
			return restored(t, server.URL(name), server.URL(server.Database(t, fresh)))
		}},
		{"to another server, twice in the same way", func(t *testing.T, name string) string {
			second := own(t)
			url := restored(t, server.URL(name), elsewhere.URL("postgres"))
			if !isHeld(t, url) {
				t.Error("the first is not")
			}
			return restored(t, url, second.URL("postgres"))
		}},
		{"in its place", func(t *testing.T, name string) string {
			return restored(t, server.URL(name), server.URL(name), "--clean")
		}},
		{"by copying the database", func(t *testing.T, name string) string {
			server.Exec(t, "postgres", "CREATE DATABASE "+name+"_copy TEMPLATE "+name)
			t.Cleanup(func() { server.Exec(t, "postgres", "DROP DATABASE "+name+"_copy WITH (FORCE)") })
			return server.URL(name + "_copy")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := c.restore(t, lived(t, server))
			for range 2 {
				if !isHeld(t, url) {
					t.Fatal("its runs go on")
				}
			}
			held := openURL(t, url)
			if res := storetest.Commit(t, held, store.InsertRun{Run: storetest.NewRun(2)}); res.Err != nil {
				t.Errorf("who cancels a run there: %v", res.Err)
			}
			if runs, err := postgres.GoOn(t.Context(), url); err != nil || runs != 2 {
				t.Errorf("%d runs go on, %v", runs, err)
			}
			if isHeld(t, url) {
				t.Error("it is held still")
			}
		})
	}
}

// restored dumps a database and restores it to another, as its own programs do.
func restored(t *testing.T, from, to string, args ...string) (url string) {
	t.Helper()
	dump := filepath.Join(t.TempDir(), "dump")
	pgtest.Run(t, "pg_dump", "--format=custom", "--file="+dump, from)
	pgtest.Run(t, "pg_restore", append(args, "--dbname="+to, "--exit-on-error", dump)...)
	return to
}

// Rule N5: what is done to a database that stays where it is holds nothing.
func TestADatabaseThatStaysIsNotHeld(t *testing.T) {
	server := pgtest.Shared(t)
	for _, c := range []struct{ name, statement string }{
		{"a server that is started again", "SELECT 1"},
		{"a table that is packed", "VACUUM FULL home"},
		{"rows that are written anew", "UPDATE home SET one = one"},
		{"an upgrade of the files to another cluster", "UPDATE home SET system = '1', written = pg_current_xact_id()::xid::text"},
		{"an upgrade from before the cluster was known", "UPDATE home SET system = ''"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := lived(t, server)
			server.Exec(t, name, c.statement)
			for range 2 {
				if isHeld(t, server.URL(name)) {
					t.Fatal("it is held")
				}
				server.Exec(t, name, "UPDATE home SET one = one")
			}
		})
	}
}

// Rule N5: a user who may not ask for the cluster's identifier has the rest.
func TestAClusterThatDoesNotTellItsIdentifierIsKnownByItsTables(t *testing.T) {
	server := own(t)
	name := lived(t, server)
	server.Exec(t, name, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public", "CREATE ROLE plain LOGIN", "GRANT ALL ON ALL TABLES IN SCHEMA public TO plain", "GRANT ALL ON SCHEMA public TO plain")
	server.Exec(t, "postgres", "CREATE DATABASE copy TEMPLATE "+name)
	as := func(database string) string {
		return fmt.Sprintf("postgres://plain@127.0.0.1:%d/%s?sslmode=disable", server.Port, database)
	}
	if isHeld(t, as(name)) {
		t.Error("it is held where it was")
	}
	if !isHeld(t, as("copy")) {
		t.Error("its copy is not held")
	}
}

// Rule N5: what can't be told, a copy of a server's files, people hold before they start a server. One that is there already writes no more.
func TestAStoreIsHeldOnRequest(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.URL(lived(t, server))
	before := openURL(t, url)
	if runs, err := postgres.Hold(t.Context(), url); err != nil || runs != 1 {
		t.Fatalf("%d runs are held, %v", runs, err)
	}
	if _, err := before.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(2)}}}); !errors.Is(err, store.ErrMoved) {
		t.Errorf("a server that was there before writes: %v", err)
	}
	if !isHeld(t, url) {
		t.Error("the next server goes on")
	}
	if _, err := postgres.GoOn(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	if isHeld(t, url) {
		t.Error("it is held still")
	}
}
