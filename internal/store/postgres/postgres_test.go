package postgres_test

import (
	"context"
	"testing"

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
		return s.Close()
	},
	Empty: `DO $$
		DECLARE
			this record;
		BEGIN
			FOR this IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('nelkap_schema', 'counters') LOOP
				EXECUTE format('DELETE FROM %I', this.tablename);
			END LOOP;
			FOR this IN SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' LOOP
				EXECUTE format('ALTER SEQUENCE %I RESTART', this.sequencename);
			END LOOP;
			UPDATE counters SET value = 0;
		END $$`,
}

// database lends a test a database, and gives its URL.
func database(t testing.TB) string {
	t.Helper()
	server := pgtest.Shared(t)
	return server.URL(server.Database(t, migrated))
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
	t.Run("model", func(t *testing.T) {
		name := server.Database(t, migrated)
		compare(t, name, pooler.URL(name))
	})
}
