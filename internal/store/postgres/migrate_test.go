package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
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

// A statement_timeout of the role is for what is asked of a database. It ends no migration, which may build an index for an hour.
func TestAMigrationTakesItsTime(t *testing.T) {
	server := pgtest.Shared(t)
	s := openURL(t, server.URL(server.Database(t, fresh))+"&statement_timeout=1000")
	files := fstest.MapFS{"migrations/0002.sql": {Data: []byte("SELECT pg_sleep(1.5)")}}
	if err := s.Migrate(t.Context(), files, []int64{1: 1, 2: 1}, time.Second); err != nil {
		t.Error(err)
	}
}

// migrateNext does what a server does that is one version ahead, when it starts. It waits so long for a lock.
func migrateNext(s *postgres.Store, lock time.Duration) error {
	first, err := fs.ReadFile(postgres.Migrations, "migrations/0001.sql")
	if err != nil {
		return err
	}
	files := fstest.MapFS{"migrations/0001.sql": {Data: first}, "migrations/0002.sql": {Data: []byte(nextVersion)}}
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
		return errors.Join(migrateNext(s, time.Second), s.Close())
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
	ctx    context.Context // ends when they are to stop, or when one has failed
	stop   context.CancelFunc
	done   sync.WaitGroup
	moved  chan int // who has saved something, if somebody wants to know
	saved  []int    // by store; what was acknowledged
}

// upgrading starts servers, two of which keep their statements prepared.
func upgrading(t *testing.T) *upgrade {
	t.Helper()
	server := pgtest.Shared(t)
	u := &upgrade{t: t, name: server.Database(t, fresh), moved: make(chan int)}
	u.ctx, u.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { u.stop(); u.done.Wait() })
	urls := []string{server.URL(u.name), server.URL(u.name), server.Pooler(t).URL(u.name)}
	u.saved = make([]int, len(urls))
	for n, url := range urls {
		u.stores = append(u.stores, openURL(t, url))
		inCall(t, u.stores[n], n)
		u.done.Go(func() { u.work(n) })
	}
	return u
}

// work saves the steps of a run one after the other and reads between, and counts what was acknowledged.
func (u *upgrade) work(n int) {
	s, id := u.stores[n], storetest.NewRun(n).ID
	defer u.stop()
	for u.ctx.Err() == nil {
		results, err := s.Commit(context.Background(), []store.Change{saving(id, fmt.Sprint(u.saved[n]))})
		if err == nil {
			err = results[0].Err
		}
		if err == nil {
			u.saved[n]++
			_, _, err = s.Load(context.Background(), id)
		}
		if err == nil {
			_, err = s.State(context.Background(), store.EntryQuery{RunID: id, EntriesMax: 10, BytesMax: 1 << 20})
		}
		if err != nil {
			u.t.Errorf("server %d after %d saves: %v", n, u.saved[n], err)
			return
		}
		select {
		case u.moved <- n:
		default:
		}
	}
}

// goesOn waits until each server has saved more than it had.
func (u *upgrade) goesOn() {
	u.t.Helper()
	for seen := make(map[int]int); len(seen) < len(u.stores) || slices.Min(slices.Collect(maps.Values(seen))) < 3; {
		select {
		case n := <-u.moved:
			seen[n]++
		case <-u.ctx.Done():
			u.t.FailNow()
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
		for i := range u.saved[n] {
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
	proxy := server.Proxy(t)
	newer := openURL(t, proxy.URL(u.name))
	u.goesOn()
	proxy.CutOnce(pgtest.CutBeforeCommit) // it loses its connection at the end of its work, and takes that up again
	if err := migrateNext(newer, 10*time.Second); err != nil || proxy.Cuts() != 1 {
		t.Fatalf("after %d cuts: %v", proxy.Cuts(), err)
	}
	u.goesOn()
	older := openURL(t, server.URL(u.name)) // that starts now
	if res := storetest.Commit(t, older, store.InsertRun{Run: storetest.NewRun(9)}); res.Err != nil {
		t.Error(res.Err)
	}
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
	if err := migrateNext(newer, 100*time.Millisecond); err == nil || !strings.Contains(err.Error(), "pg_stat_activity") {
		t.Fatalf("beside a session that reads: %v", err)
	}
	u.goesOn()
	if _, err := reader.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := migrateNext(newer, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	u.goesOn()
	u.end()
}
