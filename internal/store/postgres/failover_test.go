package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

func stop(t *testing.T, s *pgtest.Server) {
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// follows returns when a server's standby has on disk what the server has.
func follows(t *testing.T, s *pgtest.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for caughtUp := false; !caughtUp; {
		row := conn.QueryRow(t.Context(), `SELECT coalesce(bool_and(flush_lsn >= pg_current_wal_flush_lsn()), false) FROM pg_stat_replication`)
		if err := row.Scan(&caughtUp); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheStoreFollowsAFailover (L1): with a synchronous standby nothing that was acknowledged is lost, a server that does not write is told
// from one that does, and the store goes on by itself when the standby is promoted.
func TestTheStoreFollowsAFailover(t *testing.T) {
	ctx := context.Background()
	primary, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, primary)
	first := openURL(t, primary.URL("postgres")) // its schema comes along
	run := inCall(t, first, 1)
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, standby)
	primary.Synchronous(t, "*")

	s := openURL(t, primary.URLWith(standby, "postgres"))
	if res := storetest.Commit(t, s, saving(run.ID, "acknowledged")...); res.Err != nil {
		t.Fatal(res.Err)
	}
	follows(t, primary)
	if refused, err := postgres.Open(ctx, standby.URL("postgres")); err == nil {
		refused.Close()
		t.Error("a store opened on a standby, which shows what has passed")
	}
	if err := primary.Crash(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Commit(ctx, []store.Change{saving(run.ID, "between")})
	if err == nil || errors.Is(err, store.ErrBadChange) || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("while no server writes: %v", err)
	}
	standby.Promote(t)
	if res := storetest.Commit(t, s, saving(run.ID, "after")...); res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := steps(t, s, run.ID); got != "1acknowledged 2after " {
		t.Errorf("the history is %q", got)
	}
	if isHeld(t, standby.URL("postgres")) { // all that was acknowledged is there
		t.Error("a server that is started after the failover holds its runs")
	}
}

// TestACommitThatWaitsForItsStandby and whose back end is terminated has an unknown outcome: it is written here, and nowhere else.
func TestACommitThatWaitsForItsStandby(t *testing.T) {
	ctx := context.Background()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, server)
	s := openURL(t, server.URL("postgres"))
	run := inCall(t, s, 1)
	server.Synchronous(t, "nobody")
	type end struct {
		want string // the history with all that was tried
		err  error
	}
	committed := make(chan end, 1)
	go func() {
		var e end
		for n := 1; e.err == nil; n++ { // until the server waits
			_, e.err = s.Commit(ctx, []store.Change{saving(run.ID, "a"), saving(run.ID, fmt.Sprint("b", n))})
			e.want += fmt.Sprintf("%db%d ", n+1, n)
		}
		committed <- e
	}()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for killed := false; !killed; {
		row := conn.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if err := row.Scan(&killed); err != nil {
			t.Fatal(err)
		}
	}
	last := <-committed
	if !errors.Is(last.err, store.ErrUnknown) {
		t.Errorf("%v", last.err)
	}
	server.Exec(t, "postgres", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	if got := steps(t, s, run.ID); got != "1a "+last.want {
		t.Errorf("the history is %q, want %q", got, last.want)
	}
}

// TestACommitThatNoLongerWaitsForItsStandby, since somebody cancelled it or a statement_timeout did, is answered by the server as one that took
// effect, with a warning: it is written here, and nowhere else. Its outcome is unknown (W6, N6).
func TestACommitThatNoLongerWaitsForItsStandby(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, server)
	s := openURL(t, server.URL("postgres"))
	run := inCall(t, s, 1)
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	server.Synchronous(t, "nobody")
	committed := make(chan error)
	var committer sync.WaitGroup
	defer committer.Wait()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	committer.Go(func() {
		for n := 1; ctx.Err() == nil; n++ { // until the server waits
			_, err := s.Commit(ctx, []store.Change{saving(run.ID, fmt.Sprint(n))})
			select {
			case committed <- err:
			case <-ctx.Done():
			}
		}
	})
	for cancelled := false; !cancelled; {
		select {
		case err := <-committed:
			if err != nil {
				t.Fatal(err)
			}
		default:
		}
		row := conn.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if err := row.Scan(&cancelled); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-committed; !errors.Is(err, store.ErrUnknown) {
		t.Errorf("what the standby does not have is acknowledged: %v", err)
	}
	server.Exec(t, "postgres", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
}
