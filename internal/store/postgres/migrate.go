package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is the versions of the database's schema that a server knows, and brings it to.
type schema struct {
	// files has migrations/NNNN.sql for each version. They go forward only.
	files fs.FS
	// worksFrom is, for each version, the oldest version whose servers still work on it: during an upgrade both run on one database.
	worksFrom []int64
	// lockTime bounds a version's wait for a table's lock, since whoever comes after it waits too.
	lockTime time.Duration
}

// current is the schema that this server needs.
var current = schema{migrations, []int64{1: 1}, migrationLockTime}

func (m schema) newest() int64 { return int64(len(m.worksFrom) - 1) }

const (
	// migrationTime bounds one version: it may build an index over millions of rows.
	migrationTime = time.Hour
	// migrationLockTime is longer than deadlock_timeout, a second, after which an autovacuum gives way.
	migrationLockTime = 2 * time.Second
)

// migrate brings the schema up to date. Each version is a transaction of its own that holds the lock of the schema's one row: a server
// that comes meanwhile waits, one that is killed leaves nothing half done, and no session has to hold a lock.
func (s *Store) migrate(ctx context.Context, m schema) error {
	for {
		done := false
		_, err := s.retryWithin(ctx, migrationTime, func(ctx context.Context) (outcome, error) {
			conn, err := s.pool.Acquire(ctx)
			if err != nil {
				return classify(err, false), err
			}
			defer conn.Release()
			done, err = m.migrateOnce(ctx, conn.Conn().PgConn(), s.transactionTime)
			return classify(err, false), err
		})
		if err != nil || done {
			return err
		}
	}
}

// migrateOnce takes the schema one version further; done: there was none to take. quick bounds what is no migration.
func (m schema) migrateOnce(ctx context.Context, conn *pgconn.PgConn, quick time.Duration) (done bool, err error) {
	version, err := m.version(ctx, conn, quick)
	if err != nil || version >= m.newest() {
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
	if err := exec(ctx, conn, sqlLongBounds); err != nil {
		return false, err
	}
	if version, err = m.readVersion(ctx, conn, sqlLockSchema); err != nil {
		return false, err
	}
	if version < m.newest() {
		if err := m.take(ctx, conn, version+1); err != nil {
			return false, err
		}
	}
	err = exec(ctx, conn, sqlCommit)
	return false, err
}

// version is the schema's version; a database without one gets the version zero.
func (m schema) version(ctx context.Context, conn *pgconn.PgConn, quick time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	if err := exec(ctx, conn, sqlMakeVersions); err != nil {
		return 0, err
	}
	if err := exec(ctx, conn, sqlMakeVersion); err != nil {
		return 0, err
	}
	return m.readVersion(ctx, conn, sqlSelectSchema)
}

// take takes the schema to a version, inside a transaction.
func (m schema) take(ctx context.Context, conn *pgconn.PgConn, version int64) error {
	text, err := fs.ReadFile(m.files, fmt.Sprintf("migrations/%04d.sql", version))
	if err != nil {
		return err
	}
	if err := execWith(ctx, conn, sqlSetLockTime, (&params{}).int(m.lockTime.Milliseconds()), nil); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, string(text)).ReadAll()
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer) && answer.Code == lockNotAvailable:
		return fmt.Errorf("version %d: another session has held a table for more than %v: end it (pg_stat_activity shows it), or start this server again when it is done: %w", version, m.lockTime, err)
	case err != nil:
		return fmt.Errorf("version %d: %w", version, err)
	}
	return execWith(ctx, conn, sqlSetSchema, (&params{}).int(version).int(m.worksFrom[version]), nil)
}

// readVersion reads the schema's version, and refuses one that this server is too old for.
func (m schema) readVersion(ctx context.Context, conn *pgconn.PgConn, statement string) (int64, error) {
	version, from := int64(0), int64(0)
	err := execWith(ctx, conn, statement, nil, func(r *scanner) error { version, from = r.int(), r.int(); return nil })
	if err == nil && from > m.newest() {
		err = fmt.Errorf("the database's schema has version %d, which servers of version %d and newer can use, and this one knows version %d: start a newer server", version, from, m.newest())
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
