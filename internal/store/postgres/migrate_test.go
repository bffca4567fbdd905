package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

// fresh databases have nothing in them.
var fresh = pgtest.Kind{Name: "fresh", Prepare: func(string) error { return nil }, Empty: `DROP SCHEMA public CASCADE; CREATE SCHEMA public`}

// TestAServerThatIsTooOldRefusesToStart, as long as it would do harm.
func TestAServerThatIsTooOldRefusesToStart(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	defer server.Exec(t, name, "UPDATE nelkap_schema SET version = 1, works_from = 1")
	server.Exec(t, name, "UPDATE nelkap_schema SET version = 9, works_from = 1")
	openURL(t, server.URL(name))
	server.Exec(t, name, "UPDATE nelkap_schema SET works_from = 9")
	s, err := postgres.Open(context.Background(), server.URL(name))
	if err == nil {
		s.Close()
		t.Error("it opened a schema that it does not know")
	}
}

// TestServersThatStartAtOnceMigrateOnce (L4).
func TestServersThatStartAtOnceMigrateOnce(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, fresh)
	failures := make(chan error)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 4 {
		go func() {
			s, err := postgres.Open(ctx, server.URL(name))
			if err == nil {
				err = s.Close()
			}
			failures <- err
		}()
	}
	for range 4 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

// A server that loses its connection in the middle of a migration, or dies there, leaves a schema that the next one takes further.
func TestAMigrationThatIsCutOffIsTakenUpAgain(t *testing.T) {
	server := pgtest.Shared(t)
	for _, c := range []struct {
		outcome string
		cut     pgtest.Cut
	}{
		{"before its transaction", pgtest.CutBeforeBegin},
		{"inside it", pgtest.CutAfterBegin},
		{"before the COMMIT came", pgtest.CutBeforeCommit},
		{"after the COMMIT took effect", pgtest.CutAfterCommit},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			proxy := server.Proxy(t)
			name := server.Database(t, fresh)
			proxy.CutOnce(c.cut)
			if s, err := postgres.Open(t.Context(), proxy.URL(name)); err == nil { // it may have tried again by itself
				s.Close()
			}
			if proxy.Cuts() != 1 {
				t.Fatalf("%d connections were cut", proxy.Cuts())
			}
			s := openURL(t, server.URL(name))
			if res := storetest.Commit(t, s, store.InsertRun{Run: storetest.NewRun(1)}); res.Err != nil {
				t.Error(res.Err)
			}
		})
	}
}

// nextVersion is a version of the schema such as older servers work on: what it adds, they leave alone.
const nextVersion = `
	ALTER TABLE runs ADD COLUMN next_a BYTEA;
	ALTER TABLE runs ADD COLUMN next_b BIGINT NOT NULL DEFAULT 7;
	ALTER TABLE steps ADD COLUMN next_a BIGINT NOT NULL DEFAULT 0;
	ALTER TABLE waits ADD COLUMN next_a TEXT NOT NULL DEFAULT '';
	ALTER TABLE keys ADD COLUMN next_a BYTEA;
	ALTER TABLE apps ADD COLUMN next_a BOOLEAN NOT NULL DEFAULT false;
	ALTER TABLE events ADD COLUMN next_a BYTEA;
	CREATE INDEX runs_next ON runs (next_b, seq);
	CREATE TABLE next (id BYTEA PRIMARY KEY, run BIGINT NOT NULL);`

// migrateNext does what a server does that is one version ahead, when it starts. It waits so long for a lock.
func migrateNext(s *postgres.Store, text string, lock time.Duration) error {
	first, err := fs.ReadFile(postgres.Migrations, "migrations/0001.sql")
	if err != nil {
		return err
	}
	files := fstest.MapFS{"migrations/0001.sql": {Data: first}, "migrations/0002.sql": {Data: []byte(text)}}
	return s.Migrate(context.Background(), files, []int64{1: 1, 2: 1}, lock)
}

// next databases have a schema that is newer than this server.
var next = pgtest.Kind{
	Name: "next",
	Prepare: func(url string) error {
		s, err := postgres.Open(context.Background(), url)
		if err != nil {
			return err
		}
		return errors.Join(migrateNext(s, nextVersion, time.Second), s.Close())
	},
	Empty: migrated.Empty,
}

// An upgrade goes from node to node: the older ones go on, and may start anew, on what the newer ones have made of the schema.
func TestTheStoreKeepsTheContractOnANewerSchema(t *testing.T) {
	server := pgtest.Shared(t)
	storetest.Run(t, func(t testing.TB) store.Store { return openURL(t, server.URL(server.Database(t, next))) })
}

// upgrade is servers at work on a database while a newer one starts there.
type upgrade struct {
	t      *testing.T
	stores []*postgres.Store
	name   string
	stop   context.CancelFunc
	done   sync.WaitGroup
	saved  []atomic.Int64 // by store
}

// upgrading starts servers, two of which keep their statements prepared.
func upgrading(t *testing.T) *upgrade {
	t.Helper()
	server := pgtest.Shared(t)
	u := &upgrade{t: t, name: server.Database(t, fresh)}
	var ctx context.Context
	ctx, u.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { u.stop(); u.done.Wait() })
	urls := []string{server.URL(u.name), server.URL(u.name), server.Pooler(t).URL(u.name)}
	u.saved = make([]atomic.Int64, len(urls))
	for n, url := range urls {
		u.stores = append(u.stores, openURL(t, url))
		inCall(t, u.stores[n], n)
		u.done.Go(func() { u.work(ctx, n) })
	}
	return u
}

// work saves the steps of a run one after the other and reads between, and counts what was acknowledged.
func (u *upgrade) work(ctx context.Context, n int) {
	s, id := u.stores[n], storetest.NewRun(n).ID
	for ctx.Err() == nil {
		results, err := s.Commit(context.Background(), []store.Change{saving(id, fmt.Sprint(u.saved[n].Load()))})
		if err == nil {
			err = results[0].Err
		}
		if err == nil {
			u.saved[n].Add(1)
			_, _, err = s.Load(context.Background(), id)
		}
		if err == nil {
			_, err = s.State(context.Background(), store.EntryQuery{RunID: id, EntriesMax: 10, BytesMax: 1 << 20})
		}
		if err != nil {
			u.t.Errorf("server %d after %d saves: %v", n, u.saved[n].Load(), err)
			return
		}
	}
}

// goesOn waits until each server has saved more than it had.
func (u *upgrade) goesOn() {
	u.t.Helper()
	for n := range u.saved {
		for had := u.saved[n].Load(); u.saved[n].Load() < had+3; {
			if u.t.Failed() {
				u.t.FailNow()
			}
			runtime.Gosched()
		}
	}
}

// end stops the servers, and finds what they were told is saved.
func (u *upgrade) end() {
	u.t.Helper()
	u.stop()
	u.done.Wait()
	for n := range u.stores {
		want := ""
		for i := range u.saved[n].Load() {
			want += fmt.Sprintf("%d%d ", i+1, i)
		}
		if got := steps(u.t, u.stores[n], storetest.NewRun(n).ID); got != want {
			u.t.Errorf("server %d has %q, want %q", n, got, want)
		}
	}
}

func TestServersGoOnWhileANewerOneBringsTheSchemaUpToDate(t *testing.T) {
	u := upgrading(t)
	server := pgtest.Shared(t)
	first := openURL(t, server.URL(u.name))
	u.goesOn()
	if err := migrateNext(first, nextVersion+"SELECT 1/0", 10*time.Second); err == nil || !strings.Contains(err.Error(), "division") { // it dies at the end of its work
		t.Fatal(err)
	}
	u.goesOn()
	if err := migrateNext(first, nextVersion, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	u.goesOn()
	storetest.Commit(t, openURL(t, server.URL(u.name)), store.InsertRun{Run: storetest.NewRun(9)}) // an older one that starts now
	u.end()
}

// A migration that can't have a table lets the others have it, and says who is in its way.
func TestAMigrationHoldsUpNobodyForLong(t *testing.T) {
	u := upgrading(t)
	server := pgtest.Shared(t)
	reader, err := pgx.Connect(t.Context(), server.URL(u.name))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close(context.Background())
	for _, statement := range []string{"BEGIN", "SELECT count(*) FROM runs"} {
		if _, err := reader.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	newer := openURL(t, server.URL(u.name))
	if err := migrateNext(newer, nextVersion, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "pg_stat_activity") {
		t.Fatalf("beside a session that reads: %v", err)
	}
	u.goesOn()
	if _, err := reader.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := migrateNext(newer, nextVersion, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	u.goesOn()
	u.end()
}
