package postgres

import (
	"context"
	"io/fs"
	"time"
)

// SetBounds changes how long one try of a batch may take, and how long it may hold a lock or wait for one.
func (s *Store) SetBounds(transaction, lock time.Duration) {
	s.transactionTime, s.lockTime = transaction, lock
}

// Migrate brings the schema up to date as a server does that knows these versions, and waits that long for a lock.
func (s *Store) Migrate(ctx context.Context, files fs.FS, worksFrom []int64, lock time.Duration) error {
	return s.migrate(ctx, schema{files, worksFrom, lock})
}

// Migrations are the files of the current versions.
var Migrations fs.FS = migrations

// SetClock says how far the database's clock was ahead at the last look.
func (s *Store) SetClock(ahead time.Duration) { s.ahead.Store(int64(ahead)) }

// ClockTripMax is how long a look at the database's clock takes whose middle is taken for when it was read.
const ClockTripMax = clockTripMax

// Kept is how many statements a connection of s keeps prepared, by what the server says.
func Kept(ctx context.Context, s *Store) (n int64, err error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	b := &batch{}
	b.add("SELECT count(*) FROM pg_prepared_statements", nil, func(r *scanner) error { n = r.int(); return nil })
	return n, b.run(ctx, conn.Conn().PgConn())
}
