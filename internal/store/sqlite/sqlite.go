// Package sqlite is the embedded store: one SQLite file in a data directory, in WAL mode with synchronous=FULL, so that a
// commit is on disk when it returns. One connection writes, others read beside it.
//
// The writer keeps a head of each run that it touched: what a step save must know of its run (current call, next entry), so that
// a save is one insert and reads nothing (N2). Heads are the writer's alone, change only with a commit, and are dropped all
// together when one fails.
package sqlite

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitemigration"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/nelkap/nelkap/internal/store"
)

//go:embed schema.sql
var schema string

// migrations go forward only; each is one version of the file.
var migrations = sqlitemigration.Schema{
	AppID:      0x4e4c4b50, // "NLKP"
	Migrations: []string{schema},
}

const (
	fileName = "nelkap.db"
	lockName = "lock"

	// readers is how many reads go on at once. Reads are short; more would only compete for two or four cores.
	readers = 4
	// headsMax bounds the writer's memory of runs: about 200 bytes each.
	headsMax = 100_000
)

// busyTime is how long a commit waits for another program that writes to the file: none should, but a person with a SQLite shell can, and may leave
// a transaction open.
var busyTime = 5 * time.Second

// Store is a store.Store in one file.
type Store struct {
	lock *flock.Flock

	mu     sync.Mutex // guards the writer and its heads
	writer *sqlite.Conn
	heads  map[string]*head
	// lastWait is the last wait's id. None comes again in this process: who has read a wait may find another in its place (Z2).
	lastWait int64
	// commits is how many there were, and walNext how long the write-ahead log is when it is to be cut; zero: walMax.
	commits, walNext int64

	files    [3]placed // the file, its log and the lock
	placedAt time.Time // when they were last seen where they belong

	reading sync.RWMutex // held by who reads, against the log's being cut
	path    string

	pool *sqlitex.Pool
	held bool

	closing  sync.Once
	closeErr error
}

// Open opens the store in dir, makes it if it is not there, and brings its schema up to date. It holds the directory's lock
// until Close; ErrLocked if another process has it (N5: the kernel's lock, which dies with its process). ErrMoved if the store is moving or
// has moved. ErrNotFound where a restore has not ended: a new store there would be taken for what was backed up.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Store{lock: lock, heads: map[string]*head{}}
	if err := s.open(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, dir string) error {
	path := filepath.Join(dir, fileName)
	s.path = path
	err := checkRestored(dir)
	if err != nil {
		return err
	}
	if s.writer, err = openWriter(ctx, path); err != nil {
		return err
	}
	standing, err := readStanding(s.writer)
	if err != nil {
		return err
	}
	if err := refusal(dir, standing); err != nil {
		return err
	}
	s.held = standing.Phase == store.PhaseHeld
	s.files = [3]placed{{path: path}, {path: path + "-wal"}, {path: filepath.Join(dir, lockName)}}
	if err := s.inPlace(); err != nil {
		return err
	}
	if err := query(s.writer, sqlSelectLastWait, nil, func(r *scanner) error { s.lastWait = r.int(); return nil }); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	s.pool, err = sqlitex.NewPool(path, sqlitex.PoolOptions{Flags: sqlite.OpenReadOnly | sqlite.OpenWAL, PoolSize: readers, PrepareConn: prepare})
	if err != nil {
		return fmt.Errorf("opening %s for reading: %w", path, err)
	}
	return nil
}

// Held tells whether the store was restored and nobody has said yet that it goes on (N5).
func (s *Store) Held() bool { return s.held }

// openWriter opens the file for writing, makes it if it is not there, and brings its schema up to date.
func openWriter(ctx context.Context, path string) (*sqlite.Conn, error) {
	if err := errors.Join(checkLink(path), checkLog(path)); err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenWAL)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	conn.SetBusyTimeout(busyTime)
	if err := prepare(conn); err != nil {
		return nil, errors.Join(fmt.Errorf("opening %s: %w", path, err), conn.Close())
	}
	err = checkSchema(conn)
	if err == nil {
		err = sqlitemigration.Migrate(ctx, conn, migrations)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bringing %s up to date: %w", path, classify(err)), conn.Close())
	}
	return conn, nil
}

// checkSchema refuses a store that a newer nelkap has changed: what its rows mean is not known here, and Migrate takes it as it is.
func checkSchema(conn *sqlite.Conn) error {
	version, err := schemaVersion(conn)
	if known := int64(len(migrations.Migrations)); err == nil && version > known {
		err = fmt.Errorf("its schema has version %d, and this nelkap knows version %d: start the nelkap that used it last, or a newer one", version, known)
	}
	return err
}

func schemaVersion(conn *sqlite.Conn) (version int64, err error) {
	err = query(conn, `PRAGMA user_version`, nil, func(r *scanner) error { version = r.int(); return nil })
	return version, err
}

// pragmas are what every connection needs, outside any transaction. FULL: a commit is synced before it is acknowledged, also in
// WAL mode.
var pragmas = []string{
	"PRAGMA synchronous = FULL",
	"PRAGMA foreign_keys = ON",
	"PRAGMA cache_size = -16384",
	"PRAGMA temp_store = MEMORY",
}

func prepare(conn *sqlite.Conn) error {
	for _, pragma := range pragmas {
		if err := sqlitex.ExecuteTransient(conn, pragma, nil); err != nil {
			return fmt.Errorf("%s: %w", pragma, err)
		}
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closing.Do(func() {
		var errs []error
		if s.pool != nil {
			errs = append(errs, s.pool.Close())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.writer != nil {
			errs = append(errs, s.writer.Close())
			s.writer = nil
		}
		errs = append(errs, s.lock.Unlock())
		s.closeErr = errors.Join(errs...)
	})
	return s.closeErr
}

// read lends a reading connection.
func (s *Store) read(ctx context.Context, use func(*sqlite.Conn) error) error {
	conn, err := s.pool.Take(ctx)
	if err != nil {
		return fmt.Errorf("waiting for a reader: %w", err)
	}
	s.reading.RLock()
	defer s.reading.RUnlock()
	defer s.giveBack(conn)
	return use(conn)
}

// giveBack ends what a reader has begun. A connection that went back inside a transaction would show that moment to whoever has it next, for
// ever; and to a reader who has left every statement is refused, also the one that ends it.
func (s *Store) giveBack(conn *sqlite.Conn) {
	if !conn.AutocommitEnabled() {
		conn.SetInterrupt(nil)
		if err := exec(conn, "ROLLBACK", nil); err != nil {
			panic(fmt.Sprintf("sqlite: a reader can't be ended: %v", err)) // SQLite ends a transaction that only reads whatever comes
		}
	}
	s.pool.Put(conn)
}
