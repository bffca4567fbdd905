package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nelkap/nelkap/internal/store/postgres"
	"github.com/nelkap/nelkap/internal/store/postgres/pgtest"
)

func examined(t *testing.T, url string) postgres.Facts {
	t.Helper()
	f, err := postgres.Examine(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestADatabaseIsSeenAsItIs(t *testing.T) {
	server := pgtest.Shared(t)
	name := server.Database(t, migrated)
	f := examined(t, server.URL(name))
	if f.Version < 150000 || f.Pooled || f.ReadOnly || !f.CanChange || !f.CanCreate || f.Schema == 0 || f.Schema != f.SchemaKnown || f.SchemaFrom == 0 ||
		f.SynchronousCommit != "on" || f.Fsync != "on" || f.FullPageWrites != "on" || f.Autovacuum == "" || f.SynchronousStandbys != "" || f.SynchronousNow != 0 || !f.SeesStandbys ||
		f.ConnectionsMax == 0 || f.ConnectionsReserved == 0 || f.ConnectionsUsed == 0 || f.PoolMax < 4 || f.Ahead.Abs() > 10*time.Second || !strings.Contains(f.Place, name) {
		t.Errorf("%+v", f)
	}
	if f := examined(t, server.Pooler(t).URL(name)); !f.Pooled || f.Schema == 0 {
		t.Errorf("through a pooler: %+v", f)
	}
	if f := examined(t, server.URL(name)+"&pool_max_conns=7"); f.PoolMax != 7 {
		t.Errorf("a pool of %d", f.PoolMax)
	}
}

// A transaction that only reads keeps rows from being removed from its first statement on; one that has done nothing does not.
func TestTheOldestTransactionIsSeen(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.URL(server.Database(t, migrated))
	if f := examined(t, url); f.OldestTransaction != 0 || f.OldestHolder != "" {
		t.Errorf("%+v", f)
	}
	holding(t, url+"&application_name=report", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM runs")
	if f := examined(t, url); f.OldestTransaction < 0 || f.OldestTransaction > time.Minute || !strings.HasPrefix(f.OldestHolder, "session ") || !strings.HasSuffix(f.OldestHolder, " (report)") {
		t.Errorf("%+v", f)
	}
}

// A database before its first server, and a user who may do little there.
func TestADatabaseWithoutASchemaOrRightsIsSeen(t *testing.T) {
	server := pgtest.Shared(t)
	server.Exec(t, "postgres", "CREATE DATABASE unmade")
	if f := examined(t, server.URL("unmade")); f.Schema != 0 || !f.CanChange || !f.CanCreate {
		t.Errorf("%+v", f)
	}
	name := server.Database(t, migrated)
	server.Exec(t, name, "CREATE ROLE reader LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
	t.Cleanup(func() { server.Exec(t, name, "DROP OWNED BY reader", "DROP ROLE reader") })
	f := examined(t, strings.Replace(server.URL(name), "nelkap@", "reader:canary@", 1))
	if f.Schema == 0 || f.CanChange || f.CanCreate || f.SeesStandbys || f.ConnectionsUsed == 0 {
		t.Errorf("%+v", f)
	}
}

// What N6 is told from.
func TestAnUnsafeServerAndAStandbyAreSeen(t *testing.T) {
	primary, err := pgtest.Start("fsync=off", "full_page_writes=off", "autovacuum=off", "synchronous_commit=local")
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, primary)
	openURL(t, primary.URL("postgres")) // its schema comes along
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, standby)
	if f := examined(t, standby.URL("postgres")); !f.ReadOnly || f.Schema == 0 {
		t.Errorf("the standby: %+v", f)
	}
	if f := examined(t, primary.URL("postgres")); f.SynchronousStandbys != "" || f.SynchronousNow != 0 {
		t.Errorf("a standby that nobody waits for: %+v", f)
	}
	primary.Exec(t, "postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	conn, err := pgx.Connect(t.Context(), primary.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for waited := false; !waited; { // until the server has read its settings anew
		if err := conn.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'").Scan(&waited); err != nil {
			t.Fatal(err)
		}
	}
	if f := examined(t, primary.URL("postgres")); f.Fsync != "off" || f.FullPageWrites != "off" || f.Autovacuum != "off" || f.SynchronousCommit != "local" || f.SynchronousStandbys != "*" || f.SynchronousNow != 1 {
		t.Errorf("%+v", f)
	}
}

func TestADatabaseThatIsNotThereIsSaidWithoutAPassword(t *testing.T) {
	for _, url := range []string{"postgres://nelkap:canary@127.0.0.1:1/nelkap", "postgres://nelkap:canary@127.0.0.1:1/nelkap?sslmode=canary", "postgres://nelkap:canary@[/"} {
		if f, err := postgres.Examine(t.Context(), url); err == nil || strings.Contains(strings.ReplaceAll(err.Error(), "sslmode=canary", ""), ":canary") {
			t.Errorf("%+v, %v", f, err)
		}
	}
}
