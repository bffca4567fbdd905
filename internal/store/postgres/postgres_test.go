package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
	"github.com/nelkap/nelkap/internal/store/storetest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// migrated databases have the newest schema and no rows but those that it begins with.
var migrated = pgtest.Kind{
	Name: "migrated",
	Prepare: func(url string) error {
		s, err := postgres.Open(context.Background(), url)
		if err != nil {
			return err
		}
		return errors.Join(s.Close(), forgetHome(url))
	},
	Empty: pgtest.Emptied("nelkap_schema", "counters") + "; UPDATE counters SET value = 0",
}

// forgetHome has the databases that are copied from one not be known as copies.
func forgetHome(url string) error {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(context.Background(), "DELETE FROM home")
	return errors.Join(err, conn.Close(context.Background()))
}

// database lends a test a database, and gives its URL.
func database(t testing.TB) string {
	t.Helper()
	server := pgtest.Shared(t)
	return server.URL(server.Database(t, migrated))
}

// own starts a server that no other test has.
func own(t testing.TB) *pgtest.Server {
	t.Helper()
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func openURL(t testing.TB, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t testing.TB) store.Store { return openURL(t, database(t)) }

func TestTheStoreKeepsTheContract(t *testing.T) { storetest.Run(t, open) }

func TestTheStoreIsLikeTheModel(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	compare(t, name, server.URL(name))
}

// compare opens the same database again and again, empty.
func compare(t *testing.T, name, url string) {
	storetest.Compare(t, func(t testing.TB) store.Store {
		pgtest.Shared(t).Exec(t, name, migrated.Empty) // the one before has been closed
		s, err := postgres.Open(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestATransactionPoolerMayStandBetween: with PgBouncer in transaction mode, a connection's transactions are on many of the server's.
func TestATransactionPoolerMayStandBetween(t *testing.T) {
	server := pgtest.Shared(t)
	pooler := server.Pooler(t)
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) store.Store { return openURL(t, pooler.URL(server.Database(t, migrated))) })
	})
	if testing.Short() {
		return // what the pooler could break, the contract has shown
	}
	t.Run("model", func(t *testing.T) {
		name := server.Database(t, migrated)
		compare(t, name, pooler.URL(name))
	})
}

// TestASaveTouchesNoIndexOfRuns: its new row stands on the same page, and every index still finds it.
func TestASaveTouchesNoIndexOfRuns(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	s := openURL(t, server.URL(name))
	server.Exec(t, name, "SELECT pg_stat_reset()") // others had this database before
	const runs, saves = 10, 5
	for n := range runs {
		inCall(t, s, n)
	}
	for save := range saves {
		var batch []store.Change
		for n := range runs {
			batch = append(batch, saving(storetest.NewRun(n).ID, fmt.Sprint(save)))
		}
		if _, err := s.Commit(context.Background(), batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil { // a connection tells what it has done when it ends
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.URL(name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	updates, inPlace := 0, 0
	for updates < runs*saves {
		row := conn.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'`)
		if err := row.Scan(&updates, &inPlace); err != nil {
			t.Fatal(err)
		}
	}
	if inPlace < updates*9/10 {
		t.Errorf("%d of %d updates of runs touched every index", updates-inPlace, updates)
	}
}

// What is carried out often is prepared where a connection leads to one process of the server, and nowhere else: named statements are what
// transaction poolers break.
func TestStatementsAreKeptOnlyWithoutAPooler(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	for url, kept := range map[string]bool{server.URL(name): true, server.Proxy(t).URL(name): true, server.Pooler(t).URL(name): false} {
		n, err := postgres.Kept(t.Context(), openURL(t, url))
		if err != nil || (n > 50) != kept || (n > 0) != kept {
			t.Errorf("%s: %d statements are kept, %v", url, n, err)
		}
	}
}

// A database whose schema comes with this very start keeps them too.
func TestStatementsAreKeptAfterAMigration(t *testing.T) {
	server := pgtest.Shared(t)
	if n, err := postgres.Kept(t.Context(), openURL(t, server.URL(server.Database(t, fresh)))); err != nil || n == 0 {
		t.Errorf("%d statements are kept, %v", n, err)
	}
}
