// Package postgres is the store of many nodes: one Postgres database, or anything that speaks its protocol and its SQL. It decides
// nothing; the seam in internal/store says what it keeps.
//
// A batch of changes is one transaction of two round trips, however many changes it has: the first locks the runs in the order of their
// ids and gathers what the changes have to know (gather.go), then they are played in memory, in order, each checked before it writes
// (check.go, play.go), and the second writes the rows that have changed, each kind in one statement over arrays, and commits (flush.go).
// What can't be played in memory, such as copying a history, begins a further round trip.
//
// Nothing needs a session: no advisory lock, no LISTEN, no setting that outlives a transaction. So a transaction pooler may stand between;
// where none does, connections keep what is carried out often prepared (prepared.go).
// docs/decisions/0005-postgres-batches-are-played-in-memory.md has the reasons.
//
// Invariants kept here: W1 and W9 (a run's row is locked while its history grows; the unique key of a step), W7 and W8 (unique keys), N1
// (versions), N2 (locks before checks), N3 (what becomes of a batch that fails).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/nelkap/nelkap/internal/store"
)

const (
	// triesMax is how often a batch or a read is tried before its caller hears of it. The engine tries again by itself, and for longer.
	triesMax = 4
	// pauseStd is the pause before the second try; it doubles, and is jittered so that nodes that met once don't meet again.
	pauseStd = 10 * time.Millisecond
	// transactionTime bounds one try: a database that doesn't answer must not hold a node for ever. Twice lockTime, so that a batch outlives
	// a node that stands still with its locks.
	transactionTime = 10 * time.Second
	// lockTime bounds the wait for a row that another node, or a person, has locked. A node that stands still inside its transaction is ended a
	// little before.
	lockTime = 5 * time.Second
	// connectTime bounds the making of a connection, where the URL says nothing.
	connectTime = 5 * time.Second
	// pingTime bounds the look whether a connection that has not been used for a second still leads to the server, where the URL says nothing:
	// a few that don't must not cost a node the ten seconds after which others find it lost.
	pingTime = 2 * time.Second
)

// Store is a store.Store in a Postgres database.
type Store struct {
	pool *pgxpool.Pool
	// Set by Open, and shorter in tests.
	transactionTime, lockTime time.Duration
	// reading has room for all connections but one: readers who take their time must not keep commits and heartbeats from theirs.
	reading chan struct{}
	// locked are the rows that somebody was found to hold a lock on.
	locked lockedRows
	// held: the store was restored when it was opened, and nobody had said that it goes on (N5).
	held bool
	// ahead is how far the database's clock is ahead of this process's, in nanoseconds, by the last look.
	ahead atomic.Int64

	closing sync.Once
}

// Open connects to the database that url names, and brings its schema up to date. A url is what libpq takes, with pgxpool's settings:
// pool_max_conns and so on. It never appears in an error with its password. ErrMoved while another store is being moved there.
func Open(ctx context.Context, url string) (*Store, error) {
	s, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := s.moveIn(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect is Open, whatever the store's phase.
func connect(ctx context.Context, url string) (*Store, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("reading the database's URL: %w", err)
	}
	conn := config.ConnConfig
	// What pgx itself does on these connections (pings) must leave nothing behind either: see batch.
	conn.DefaultQueryExecMode, conn.StatementCacheCapacity, conn.DescriptionCacheCapacity = pgx.QueryExecModeExec, 0, 0
	if conn.ConnectTimeout == 0 || conn.ConnectTimeout > connectTime {
		conn.ConnectTimeout = connectTime
	}
	if conn.ValidateConnect == nil {
		// A standby would refuse to write, and reading from it would show a state that has passed.
		conn.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = "nelkap"
	}
	conn.OnNotice = noticed
	config.AfterConnect = prepare
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTime
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("opening the database: %w", err)
	}
	s := &Store{pool: pool, transactionTime: transactionTime, lockTime: lockTime, reading: make(chan struct{}, max(config.MaxConns-1, 1))}
	if err := s.migrate(ctx, current); err != nil {
		return nil, errors.Join(advise(fmt.Errorf("bringing the database's schema up to date: %w", err)), s.Close())
	}
	s.pool.Reset() // connections from before the schema keep no statements
	if _, err := s.Nodes(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("reading the database's clock: %w", err), s.Close())
	}
	return s, nil
}

// Place is the server and the database that a URL names, for people to read: no password, no other setting.
func Place(url string) string {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return "postgres"
	}
	c := config.ConnConfig
	return fmt.Sprintf("postgres %s/%s", net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), c.Database)
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closing.Do(s.pool.Close)
	return nil
}

// retry does one thing until it succeeds, or fails in a way that another try does not mend, at most triesMax times. Whatever fails here has
// written nothing, or what it is is unknown.
func (s *Store) retry(ctx context.Context, do func(context.Context) (outcome, error)) (outcome, error) {
	return s.retryWithin(ctx, s.transactionTime, do)
}

// retryWithin is retry for what one try may take so long.
func (s *Store) retryWithin(ctx context.Context, bound time.Duration, do func(context.Context) (outcome, error)) (outcome, error) {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(ctx, bound)
		o, err := do(bounded)
		silent := over(bounded) && !over(ctx)
		cancel()
		if err == nil {
			return o, nil
		}
		if o == outcomeMoved || o == outcomeAgain && silent {
			s.pool.Reset() // the other connections lead to the same server, or nowhere: one that has lost its power ends none
		}
		if o == outcomeBad || o == outcomeUnknown || o == outcomeLater || o == outcomeSlow || try == triesMax || over(ctx) {
			return o, err
		}
		most := pauseStd << (try - 1)
		pause(ctx, most/2+rand.N(most/2))
	}
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// read carries out statements that read, in one round trip, on a connection of their own.
func (s *Store) read(ctx context.Context, fill func(*batch)) error {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
		return s.readNow(ctx, fill)
	case <-ctx.Done():
		return fmt.Errorf("waiting for other reads: %w", ctx.Err())
	}
}

// readNow is read that waits for no other: of what a heartbeat reads, and of what tells whether the store answers. The node would be lost to the
// others, or to its balancer, while lists take their time.
func (s *Store) readNow(ctx context.Context, fill func(*batch)) error {
	o, err := s.retry(ctx, func(ctx context.Context) (outcome, error) {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return classify(err, false), fmt.Errorf("waiting for a connection: %w", err)
		}
		defer conn.Release()
		b := &batch{}
		fill(b)
		err = b.run(ctx, conn.Conn().PgConn())
		if err != nil && over(ctx) {
			return outcomeSlow, err
		}
		return classify(err, false), err
	})
	if err != nil && (o == outcomeAgain || o == outcomeMoved || o == outcomeSlow) && !over(ctx) {
		err = errors.Join(store.ErrUnavailable, err)
	}
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	return nil
}

// query is read of one statement.
func (s *Store) query(ctx context.Context, sql string, p *params, row func(*scanner) error) error {
	return s.read(ctx, func(b *batch) { b.add(sql, p, row) })
}
