package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"
)

// migrations go forward only; each is one version of the schema, named for it.
//
//go:embed migrations/*.sql
var migrations embed.FS

// worksFrom is, for each version, the oldest version whose servers still work on it: during an upgrade both run on one database.
var worksFrom = []int64{1: 1}

// schemaVersion is what this server needs.
var schemaVersion = int64(len(worksFrom) - 1)

// migrate brings the schema up to date. Each version is a transaction of its own that holds the lock of the schema's one row: a server
// that comes meanwhile waits, one that is killed leaves nothing half done, and no session has to hold a lock.
func (s *Store) migrate(ctx context.Context) error {
	for {
		done := false
		_, err := s.retry(ctx, func(ctx context.Context) (outcome, error) {
			conn, err := s.pool.Acquire(ctx)
			if err != nil {
				return classify(err, false), err
			}
			defer conn.Release()
			done, err = migrateOnce(ctx, conn.Conn().PgConn())
			return classify(err, false), err
		})
		if err != nil || done {
			return err
		}
	}
}

// migrateOnce takes the schema one version further; done: there was none to take.
func migrateOnce(ctx context.Context, conn *pgconn.PgConn) (done bool, err error) {
	if err := exec(ctx, conn, sqlMakeVersions); err != nil {
		return false, err
	}
	if err := exec(ctx, conn, sqlMakeVersion); err != nil {
		return false, err
	}
	version, err := readVersion(ctx, conn, sqlSelectSchema)
	if err != nil || version >= schemaVersion {
		return true, err
	}
	defer func() {
		if err != nil && !conn.IsClosed() {
			_ = exec(ctx, conn, sqlRollback) // what went wrong is told by err
		}
	}()
	if err := exec(ctx, conn, sqlBegin); err != nil {
		return false, err
	}
	if version, err = readVersion(ctx, conn, sqlLockSchema); err != nil {
		return false, err
	}
	if version < schemaVersion {
		version++
		text, err := fs.ReadFile(migrations, fmt.Sprintf("migrations/%04d.sql", version))
		if err != nil {
			return false, err
		}
		if _, err := conn.Exec(ctx, string(text)).ReadAll(); err != nil {
			return false, fmt.Errorf("version %d: %w", version, err)
		}
		if err := execWith(ctx, conn, sqlSetSchema, (&params{}).int(version).int(worksFrom[version]), nil); err != nil {
			return false, err
		}
	}
	err = exec(ctx, conn, sqlCommit)
	return false, err
}

// readVersion reads the schema's version, and refuses one that this server is too old for.
func readVersion(ctx context.Context, conn *pgconn.PgConn, statement string) (int64, error) {
	version, from := int64(0), int64(0)
	err := execWith(ctx, conn, statement, nil, func(r *scanner) error { version, from = r.int(), r.int(); return nil })
	if err == nil && from > schemaVersion {
		err = fmt.Errorf("the database's schema has version %d, which servers of version %d and newer can use, and this one knows version %d: start a newer server", version, from, schemaVersion)
	}
	return version, err
}

func exec(ctx context.Context, conn *pgconn.PgConn, statement string) error {
	return execWith(ctx, conn, statement, nil, nil)
}

func execWith(ctx context.Context, conn *pgconn.PgConn, statement string, p *params, row func(*scanner) error) error {
	b := &batch{}
	b.add(statement, p, row)
	return b.run(ctx, conn)
}
