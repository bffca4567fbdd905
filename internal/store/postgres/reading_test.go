package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

var bareKind = pgtest.Kind{Name: "bare", Prepare: func(string) error { return nil }, Empty: "DROP SCHEMA public CASCADE; CREATE SCHEMA public"}

// locked is a store of a few connections, one of whose tables nobody can read until unlock is called.
func locked(t *testing.T, settings string) (s *Store, unlock func()) {
	t.Helper()
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t, bareKind))
	s, err := Open(t.Context(), url+"&pool_max_conns=3"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE deliveries"); err != nil {
		t.Fatal(err)
	}
	return s, sync.OnceFunc(func() { conn.Close(context.Background()) })
}

// Lists that take their time, as over a large table, leave a connection to those who commit and to heartbeats.
func TestSlowReadsLeaveAConnectionToCommits(t *testing.T) {
	s, unlock := locked(t, "")
	var reads sync.WaitGroup
	defer reads.Wait()
	defer unlock()
	for range 5 {
		reads.Go(func() { _, _ = s.Deliveries(t.Context(), store.DeliveryQuery{Env: "default", Limit: 1}) })
	}
	for len(s.reading) < cap(s.reading) {
		pause(t.Context(), time.Millisecond)
	}
	if _, err := s.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(1)}}}); err != nil {
		t.Error(err)
	}
	// What a node reads with each heartbeat: one that does not say that it is there would be lost.
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := s.Nodes(soon); err != nil {
		t.Errorf("nodes: %v", err)
	}
	if _, err := s.CallCounts(soon, "node"); err != nil {
		t.Errorf("calls: %v", err)
	}
	if _, err := s.Apps(soon); err != nil {
		t.Errorf("apps: %v", err)
	}
	// What /readyz asks: a balancer would take one node after the other for dead, as the lists come to them.
	if _, err := s.NextTimer(soon); err != nil {
		t.Errorf("whether it answers: %v", err)
	}
}

// A read that has taken its whole time would take it again: whoever asked hears of it, and asks for less or later.
func TestAReadThatTakesTooLongIsNotTriedAgain(t *testing.T) {
	s, unlock := locked(t, "")
	defer unlock()
	s.SetBounds(2*time.Second, time.Second)
	begun := time.Now()
	_, err := s.Deliveries(t.Context(), store.DeliveryQuery{Env: "default", Limit: 1})
	if took := time.Since(begun); !errors.Is(err, store.ErrUnavailable) || took > 5*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// So would one that the server has cancelled, for a statement_timeout of the role or by an administrator.
func TestAReadThatIsCancelledIsToBeAskedForLater(t *testing.T) {
	s, unlock := locked(t, "&statement_timeout=1000")
	defer unlock()
	_, err := s.Deliveries(t.Context(), store.DeliveryQuery{Env: "default", Limit: 1})
	if cancelled := new(pgconn.PgError); !errors.Is(err, store.ErrUnavailable) || !errors.As(err, &cancelled) || cancelled.Code != "57014" {
		t.Errorf("%v", err)
	}
}

// A server that loses its power closes no connection. The first that is found to lead nowhere speaks for all that were made before: each of them
// would cost a try its whole time, and the node its heartbeats (L1).
func TestConnectionsThatLeadNowhereCostOneTry(t *testing.T) {
	server := pgtest.Shared(t)
	proxy := server.Proxy(t)
	s, err := Open(t.Context(), proxy.URL(server.Database(t, bareKind))+"&pool_max_conns=8")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	t.Cleanup(proxy.Release)
	var conns []*pgxpool.Conn
	for range cap(s.reading) + 1 {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}
	s.SetBounds(2*time.Second, time.Second)
	proxy.Strand()
	begun := time.Now()
	_, err = s.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(1)}}})
	if took := time.Since(begun); err != nil || took > 4*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// A connection that nobody uses is forgotten by what lies on the way, and neither side hears of it. It must not cost a node the time after which
// others find it lost.
func TestAConnectionThatWasForgottenIsSoonGivenUp(t *testing.T) {
	server := pgtest.Shared(t)
	proxy := server.Proxy(t)
	s, err := Open(t.Context(), proxy.URL(server.Database(t, bareKind)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	t.Cleanup(proxy.Release)
	pause(t.Context(), 1100*time.Millisecond) // what was used within a second is not looked at
	proxy.Strand()
	begun := time.Now()
	_, err = s.Commit(t.Context(), []store.Change{{store.InsertRun{Run: storetest.NewRun(1)}}})
	if took := time.Since(begun); err != nil || took > 6*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// Lists by a key and by a rare status find their rows among many that completed.
func TestListsFindWhatIsRare(t *testing.T) {
	conn, ctx := bare(t), t.Context()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(ctx, statement).ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
	exec(`INSERT INTO runs SELECT * FROM jsonb_populate_recordset(NULL::runs, (SELECT jsonb_agg(row) FROM generate_series(1, 5000) AS n,
		LATERAL (SELECT jsonb_object_agg(attname, CASE WHEN atttypid = 'bytea'::regtype THEN to_jsonb('\x'::text) WHEN atttypid = 'boolean'::regtype THEN to_jsonb(false)
			WHEN atttypid = 'text'::regtype THEN to_jsonb('completed'::text) ELSE to_jsonb(1) END) || jsonb_build_object('id', '\x' || lpad(n::text, 8, '0'), 'seq', n, 'env', '\x64',
			'timer_at', 0, 'ready_at', 0, 'call_id', NULL) AS row FROM pg_attribute WHERE attrelid = 'runs'::regclass AND attnum > 0) AS made))`)
	exec("ANALYZE runs")
	exec("PREPARE it AS " + sqlSelectRecords)
	exec("SET plan_cache_mode = force_custom_plan") // it is not kept
	for what, given := range map[string]string{"runs_by_key": `'', '\x6b'`, "runs_by_status": `'failed', ''`} {
		plan := strings.Builder{}
		b := &batch{}
		b.add(`EXPLAIN EXECUTE it('\x64', '', '', `+given+`, '', false, 20)`, nil, func(r *scanner) error { plan.WriteString(r.text() + "\n"); return nil })
		if err := b.run(ctx, conn); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan.String(), what) {
			t.Errorf("%s is not used:\n%s", what, plan.String())
		}
	}
}
