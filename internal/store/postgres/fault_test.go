package postgres_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
	"github.com/nelkap/nelkap/internal/workflow"
)

// inCall inserts a run with a current call, call_1.
func inCall(t testing.TB, s store.Store, n int) workflow.Run {
	t.Helper()
	d, err := workflow.Apply(storetest.NewRun(n), workflow.Begin{CallID: "call_1", Token: "t"}, storetest.T0)
	if err != nil {
		t.Fatal(err)
	}
	if res := storetest.Commit(t, s, store.InsertRun{Run: d.Run}); res.Err != nil {
		t.Fatal(res.Err)
	}
	return d.Run
}

func saving(run, name string) store.Change {
	step := workflow.Step{
		StepID: workflow.StepID{Name: name, Number: 1}, Kind: workflow.KindRun, Status: workflow.StepCompleted, Output: []byte(`1`), Attempts: 1,
		StartedAt: storetest.T0, EndedAt: storetest.T0,
	}
	return store.Change{store.SaveSteps{RunID: run, CallID: "call_1", Nonce: "n", Steps: []workflow.Step{step}}}
}

// steps are the names of a run's entries.
func steps(t testing.TB, s store.Store, run string) string {
	t.Helper()
	entries, err := s.Entries(context.Background(), store.EntryQuery{RunID: run, EntriesMax: 10_000, BytesMax: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, e := range entries {
		text += fmt.Sprintf("%d%s ", e.Entry, e.Name)
	}
	return text
}

// TestACommitWhoseConnectionBreaks: before the COMMIT it is tried again and takes effect once; in the COMMIT its outcome is unknown, and
// reading tells.
func TestACommitWhoseConnectionBreaks(t *testing.T) {
	for _, c := range []struct {
		outcome string
		cut     pgtest.Cut
		unknown bool
		want    string
	}{
		{"before the transaction", pgtest.CutBeforeBegin, false, "1a "},
		{"inside the transaction", pgtest.CutAfterBegin, false, "1a "},
		{"before the COMMIT came", pgtest.CutBeforeCommit, true, ""},
		{"after the COMMIT took effect", pgtest.CutAfterCommit, true, "1a "},
	} {
		t.Run(c.outcome, func(t *testing.T) {
			proxy := pgtest.Shared(t).Proxy(t)
			breaking{c.cut, c.unknown, c.want}.play(t, proxy, proxy.URL)
		})
		t.Run(c.outcome+", behind a pooler", func(t *testing.T) {
			proxy := pgtest.Shared(t).Proxy(t)
			breaking{c.cut, c.unknown, c.want}.play(t, proxy, proxy.Pooler(t).URL)
		})
	}
}

// breaking is a connection that breaks, and what is right then.
type breaking struct {
	cut     pgtest.Cut
	unknown bool
	want    string
}

func (c breaking) play(t *testing.T, proxy *pgtest.Proxy, url func(database string) string) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	direct, s := openURL(t, server.URL(name)), openURL(t, url(name))
	run := inCall(t, s, 1)
	proxy.CutOnce(c.cut)
	results, err := s.Commit(context.Background(), []store.Change{saving(run.ID, "a")})
	if errors.Is(err, store.ErrUnknown) != c.unknown || (err != nil) != c.unknown || errors.Is(err, store.ErrBadChange) {
		t.Fatalf("%v", err)
	}
	if err == nil && (results[0].Err != nil || results[0].Steps[0].Entry != 1 || results[0].Steps[0].Stands) {
		t.Errorf("%+v", results[0])
	}
	if got := steps(t, direct, run.ID); got != c.want {
		t.Errorf("the history is %q, want %q", got, c.want)
	}
	if proxy.Cuts() != 1 {
		t.Errorf("%d connections were cut", proxy.Cuts())
	}
	// The same once more is what a client does; it stands once.
	if res := storetest.Commit(t, s, saving(run.ID, "a")...); res.Err != nil || res.Steps[0] != (store.StepResult{Entry: 1}) {
		t.Errorf("once more: %+v", res)
	}
}

// TestACommitWhoseBackendIsTerminated in the middle of its transaction is tried again, and takes effect once.
func TestACommitWhoseBackendIsTerminated(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	s := openURL(t, server.URL(name))
	run := inCall(t, s, 1)
	ctx := context.Background()
	other, err := pgx.Connect(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(ctx)
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "SELECT 1 FROM runs FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error)
	go func() {
		_, err := s.Commit(ctx, []store.Change{saving(run.ID, "a")})
		committed <- err
	}()
	for killed := false; !killed; {
		// One that waits for the lock is in its transaction.
		row := tx.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		if err := row.Scan(&killed); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, "SELECT pg_stat_clear_snapshot()"); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if got := steps(t, s, run.ID); got != "1a " {
		t.Errorf("the history is %q", got)
	}
}

// TestANodeThatStandsStill in the middle of a transaction, with its runs locked, holds the others up for a bounded time, and does no harm
// when it goes on.
func TestANodeThatStandsStill(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	proxy := server.Proxy(t)
	still, other := openURL(t, proxy.URL(name)), openURL(t, server.URL(name))
	still.SetBounds(time.Minute, 100*time.Millisecond)
	run := inCall(t, other, 1)
	proxy.CutOnce(pgtest.StallAfterBegin)
	ctx, goOn := context.WithCancel(context.Background())
	committed := make(chan error)
	go func() {
		_, err := still.Commit(ctx, []store.Change{saving(run.ID, "still")})
		committed <- err
	}()
	for proxy.Cuts() == 0 {
		if _, _, err := other.Load(context.Background(), run.ID); err != nil { // time goes by
			t.Fatal(err)
		}
	}
	if res := storetest.Commit(t, other, saving(run.ID, "other")...); res.Err != nil || res.Steps[0].Entry != 1 {
		t.Errorf("%+v", res)
	}
	goOn()
	if err := <-committed; err == nil || errors.Is(err, store.ErrUnknown) {
		t.Errorf("the node that stood still: %v", err)
	}
	if got := steps(t, other, run.ID); got != "1other " {
		t.Errorf("the history is %q", got)
	}
}

// TestANodeThatStandsStillBeforeALargeAnswer: the server is not idle then, but waits for the node to take what it has read. It holds its locks
// no longer for that.
func TestANodeThatStandsStillBeforeALargeAnswer(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	proxy := server.Proxy(t)
	still, other := openURL(t, proxy.URL(name)), openURL(t, server.URL(name))
	t.Cleanup(proxy.Release)
	still.SetBounds(time.Minute, time.Second) // long enough to be seen
	other.SetBounds(10*time.Second, 2*time.Second)
	run := inCall(t, other, 1)
	var saves []store.Change
	for n := range 12 {
		change := saving(run.ID, fmt.Sprint(n))
		change[0].(store.SaveSteps).Steps[0].Output = []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
		saves = append(saves, change)
		storetest.Commit(t, other, change...)
	}
	conn, err := pgx.Connect(t.Context(), server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	proxy.CutOnce(pgtest.StrandAfterBegin)
	ctx, goOn := context.WithCancel(t.Context())
	committed := make(chan error)
	go func() {
		_, err := still.Commit(ctx, saves) // once more: the server sends what it has
		committed <- err
	}()
	for sending := false; !sending; {
		row := conn.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'ClientWrite'`)
		if err := row.Scan(&sending); err != nil {
			t.Fatal(err)
		}
	}
	results, err := other.Commit(t.Context(), []store.Change{saving(run.ID, "other")})
	if err != nil || results[0].Err != nil {
		t.Errorf("%+v, %v", results, err)
	}
	goOn()
	if err := <-committed; err == nil || errors.Is(err, store.ErrUnknown) {
		t.Errorf("the node that stood still: %v", err)
	}
}

// TestADeadlock with somebody who takes locks in another order is resolved by trying again.
func TestADeadlock(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	s := openURL(t, server.URL(name))
	first, second := inCall(t, s, 1), inCall(t, s, 2)
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("BEGIN")
	exec("SET LOCAL deadlock_timeout = '1min'") // the store's side finds the deadlock, and gives way
	exec("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE", []byte(second.ID))
	committed := make(chan error)
	go func() {
		_, err := s.Commit(ctx, []store.Change{saving(first.ID, "a"), saving(second.ID, "a")})
		committed <- err
	}()
	untilWaiting(t, conn, 1)
	exec("SELECT 1 FROM runs WHERE id = $1 FOR UPDATE", []byte(first.ID))
	exec("COMMIT")
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if got := steps(t, s, first.ID) + steps(t, s, second.ID); got != "1a 1a " {
		t.Errorf("the histories are %q", got)
	}
}

// TestAServerWithoutAFreeConnection is told from a broken database: the store opens as soon as one is free.
func TestAServerWithoutAFreeConnection(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, fresh)
	server.Exec(t, name, "DROP ROLE IF EXISTS limited", "CREATE ROLE limited LOGIN CONNECTION LIMIT 1", "GRANT ALL ON SCHEMA public TO limited")
	limited := strings.Replace(server.URL(name), "nelkap@", "limited@", 1) + "&pool_max_conns=1"
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	only, err := pgx.Connect(ctx, strings.TrimSuffix(limited, "&pool_max_conns=1"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = postgres.Open(ctx, limited)
	if refused := new(pgconn.PgError); !errors.As(err, &refused) || refused.Code != "53300" {
		t.Errorf("%v", err)
	}
	if err := only.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for {
		s, err := postgres.Open(ctx, limited)
		if err == nil {
			s.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestTheStoreGoesOnAfterTheServerCrashed (L1): while the server is away a commit fails and has written nothing, without a word on the
// change; as soon as it is back the same store goes on, with all that was acknowledged.
func TestTheStoreGoesOnAfterTheServerCrashed(t *testing.T) {
	server := own(t)
	s := openURL(t, server.URL("postgres"))
	run := inCall(t, s, 1)
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(context.Background(), []store.Change{saving(run.ID, "a")}); err == nil || errors.Is(err, store.ErrBadChange) || errors.Is(err, store.ErrUnknown) {
		t.Fatalf("while the server is away: %v", err)
	}
	if _, _, err := s.Load(context.Background(), run.ID); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("while the server is away: %v", err)
	}
	if err := server.Recover(); err != nil {
		t.Fatal(err)
	}
	if res := storetest.Commit(t, s, saving(run.ID, "b")...); res.Err != nil {
		t.Fatal(res.Err)
	}
	if got := steps(t, s, run.ID); got != "1b " {
		t.Errorf("the history is %q", got)
	}
}

// TestAFullDiskIsWaitedFor: what can't be written is refused whole, without a word on the change and with no doubt about its outcome; reads
// go on, and so does the same store once there is room.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	server := own(t)
	s := openURL(t, server.URL("postgres"))
	run := inCall(t, s, 1)
	// Larger than a piece of the log, and no multiple of a page.
	if err := server.Fill(17<<20 + 1000); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("only Linux bounds the files of another process")
	} else if err != nil {
		t.Fatal(err)
	}
	large := func(n int) store.Change {
		text := make([]byte, 1<<20)
		rand.NewChaCha8([32]byte{byte(n)}).Read(text)
		change := saving(run.ID, fmt.Sprint(n))
		change[0].(store.SaveSteps).Steps[0].Output = []byte(`"` + hex.EncodeToString(text) + `"`)
		return change
	}
	saved, err := 0, error(nil)
	for ; saved < 40; saved++ {
		if _, err = s.Commit(context.Background(), []store.Change{large(saved)}); err != nil {
			break
		}
	}
	if err == nil || errors.Is(err, store.ErrBadChange) || errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "53100") {
		t.Fatalf("after %d MiB: %v", saved, err)
	}
	if _, history, err := s.Load(context.Background(), run.ID); err != nil || history.Entries != int64(saved) {
		t.Fatalf("after %d saves there are %d, %v", saved, history.Entries, err)
	}
	if err := server.Fill(0); err != nil {
		t.Fatal(err)
	}
	if res := storetest.Commit(t, s, large(saved)...); res.Err != nil || res.Steps[0].Entry != int64(saved+1) {
		t.Errorf("once there is room: %+v", res)
	}
}

// TestABadChangeIsTold (N3): its batch is refused whole and can be halved.
func TestABadChangeIsTold(t *testing.T) {
	s := open(t)
	run := inCall(t, s, 1)
	broken := storetest.NewRun(2)
	broken.Status = "no status"
	if _, err := s.Commit(context.Background(), []store.Change{saving(run.ID, "a"), {store.InsertRun{Run: broken}}}); !errors.Is(err, store.ErrBadChange) {
		t.Fatalf("a run that the schema refuses: %v", err)
	}
	twice := store.Change{store.InsertEvent{Event: store.Event{Env: "default", Name: "e", ID: "1", CreatedAt: storetest.T0}}}
	if _, err := s.Commit(context.Background(), []store.Change{append(twice, twice...)}); !errors.Is(err, store.ErrBadChange) {
		t.Fatalf("a change that stores one event twice: %v", err)
	}
	if res := storetest.Commit(t, s, saving(run.ID, "b")...); len(res.Steps) != 1 || res.Steps[0].Entry != 1 {
		t.Fatalf("W9: after a commit that failed: %+v", res)
	}
}

// TestAReaderWhoLeavesIsNotWaitedFor: a database that doesn't answer holds nobody who has given up.
func TestAReaderWhoLeavesIsNotWaitedFor(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Apps(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := s.Commit(ctx, []store.Change{{store.InsertRun{Run: storetest.NewRun(1)}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
