package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/nelkap/nelkap/internal/store"
)

// Facts are what Examine finds out of a database; whether they are good is for others to say.
type Facts struct {
	Place       string // server and database, without a password
	Version     int64  // as server_version_num has it: 150018
	VersionText string
	Pooled      bool // something stands between, which has many connections share few of the server's

	ReadOnly  bool // a standby, or set so
	CanChange bool // the tables' rows may be read and written
	CanCreate bool // tables may be made in the schema, as newer servers do

	Schema      int64       // the schema's version; 0: there is none yet
	SchemaFrom  int64       // the oldest version whose servers can use it
	SchemaKnown int64       // the version that this program knows
	Phase       store.Phase // what servers may do with it; empty where its rows can't be read

	SynchronousCommit, Fsync, FullPageWrites, Autovacuum string // as the database's settings have them
	SynchronousStandbys                                  string // synchronous_standby_names
	SynchronousNow                                       int64  // how many standbys commits wait for now
	SeesStandbys                                         bool   // the user may know that

	ConnectionsMax, ConnectionsReserved, ConnectionsUsed int64
	PoolMax                                              int64 // what one server on a machine like this one takes at most

	// OldestTransaction is for how long the oldest transaction of another session has kept rows from being removed, as far as the user may see it,
	// and OldestHolder whose it is.
	OldestTransaction time.Duration
	OldestHolder      string

	Ahead time.Duration // of the database's clock, over this machine's
}

// Examine looks at the database that url names, and changes nothing there. Where no server takes writes it looks at one that does not.
// Its errors show no password.
func Examine(ctx context.Context, url string) (Facts, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return Facts{}, fmt.Errorf("reading the database's URL: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, transactionTime)
	defer cancel()
	conn, err := connectAny(ctx, &config.ConnConfig.Config)
	if err != nil {
		return Facts{}, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it has only read
	f := Facts{Place: Place(url), PoolMax: int64(config.MaxConns), SchemaKnown: current.newest()}
	if err := f.read(ctx, conn); err != nil {
		return Facts{}, fmt.Errorf("reading: %w", err)
	}
	return f, nil
}

// connectAny connects to the server that a store would use, or else to any.
func connectAny(ctx context.Context, config *pgconn.Config) (*pgconn.PgConn, error) {
	if config.ConnectTimeout == 0 || config.ConnectTimeout > connectTime {
		config.ConnectTimeout = connectTime
	}
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		return conn, nil
	}
	config.ValidateConnect = nil
	return pgconn.ConnectConfig(ctx, config)
}

func (f *Facts) read(ctx context.Context, conn *pgconn.PgConn) error {
	var backend int64
	var clock time.Time
	hasSchema := false
	asked := time.Now()
	err := execWith(ctx, conn, sqlExamineServer, nil, func(r *scanner) error {
		f.Version, f.VersionText, backend = r.int(), r.text(), r.int()
		f.ReadOnly = r.bool()
		f.SynchronousCommit, f.Fsync, f.FullPageWrites, f.Autovacuum = r.text(), r.text(), r.text(), r.text()
		f.SynchronousStandbys, f.SynchronousNow, f.SeesStandbys = r.text(), r.int(), r.bool()
		f.ConnectionsMax, f.ConnectionsReserved, f.ConnectionsUsed = r.int(), r.int(), r.int()
		clock = r.time()
		f.CanCreate, hasSchema = r.bool(), r.bool()
		return nil
	})
	if err != nil {
		return err
	}
	// The database read its clock some time between the question and the answer.
	f.Ahead = clock.Sub(asked.Add(time.Since(asked) / 2))
	f.Pooled = backend != int64(conn.PID())
	err = execWith(ctx, conn, sqlExamineOldest, nil, func(r *scanner) error {
		f.OldestHolder, f.OldestTransaction = r.text(), time.Duration(r.int())*time.Millisecond
		return nil
	})
	if err != nil {
		return err
	}
	f.CanChange = f.CanCreate
	if !hasSchema {
		return nil
	}
	err = execWith(ctx, conn, sqlSelectSchema, nil, func(r *scanner) error { f.Schema, f.SchemaFrom = r.int(), r.int(); return nil })
	if err != nil || f.Schema == 0 {
		return err
	}
	err = execWith(ctx, conn, sqlExamineRights, nil, func(r *scanner) error { f.CanChange = r.bool(); return nil })
	if err != nil || !f.CanChange {
		return err
	}
	f.Phase = store.PhaseActive // until a move says otherwise
	return execWith(ctx, conn, sqlSelectPhase, nil, func(r *scanner) error { f.Phase = store.Phase(r.text()); return nil })
}
