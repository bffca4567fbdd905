package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// Source is a directory's store for who moves it: its rows, and its phase. It holds the directory's lock, so that no server writes
// meanwhile. One goroutine uses it.
type Source struct {
	lock *flock.Flock
	conn *sqlite.Conn
}

// OpenSource opens the store in dir, whatever its phase. ErrNotFound if there is none, ErrLocked if another process has the directory.
func OpenSource(ctx context.Context, dir string) (*Source, error) {
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: no store in %s: give the directory that the server was started with (%w)", store.ErrNotFound, dir, err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	conn, err := openWriter(ctx, path)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	return &Source{lock: lock, conn: conn}, nil
}

// Close frees the directory.
func (s *Source) Close() error { return errors.Join(s.conn.Close(), s.lock.Unlock()) }

// Standing reads the store's phase.
func (s *Source) Standing(context.Context) (store.Standing, error) { return readStanding(s.conn) }

// SetStanding writes the store's phase, which is on disk when it returns.
func (s *Source) SetStanding(_ context.Context, to store.Standing) error {
	return writeStanding(s.conn, to)
}

// Live counts the runs that have not ended.
func (s *Source) Live(context.Context) (runs int64, err error) { return countLive(s.conn) }

// moved are the tables that another store takes, each with the statement that reads it.
var moved = []struct{ table, statement string }{
	{"runs", sqlMoveRuns},
	{"run_values", sqlMoveRunValues},
	{"steps", sqlMoveSteps},
	{"chapters", sqlMoveChapters},
	{"logs", sqlMoveLogs},
	{"attempts", sqlMoveAttempts},
	{"events", sqlMoveEvents},
	{"waits", sqlMoveWaits},
	{"wait_events", sqlMoveWaitEvents},
	{"event_uses", sqlMoveEventUses},
	{"callbacks", sqlMoveCallbacks},
	{"schedules", sqlMoveSchedules},
	{"later_events", sqlMoveLaterEvents},
	{"cursors", sqlMoveCursors},
	{"keys", sqlMoveKeys},
	{"apps", sqlMoveApps},
	{"deliveries", sqlMoveDeliveries},
}

// Tables lists what another store has to take.
func (s *Source) Tables(context.Context) ([]store.Table, error) {
	var tables []store.Table
	for _, m := range moved {
		stmt, err := s.conn.Prepare(m.statement)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", m.table, err)
		}
		t := store.Table{Name: m.table}
		for i := range stmt.ColumnCount() {
			t.Columns = append(t.Columns, stmt.ColumnName(i))
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// Rows hands each row of a table of Tables to row, in no order, one at a time.
func (s *Source) Rows(ctx context.Context, table store.Table, row func(store.Row) error) error {
	for _, m := range moved {
		if m.table != table.Name {
			continue
		}
		values := make(store.Row, len(table.Columns))
		err := query(s.conn, m.statement, nil, func(r *scanner) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i := range values {
				if err := r.value(&values[i]); err != nil {
					return fmt.Errorf("%s: %w", table.Columns[i], err)
				}
			}
			return row(values)
		})
		if err != nil {
			return fmt.Errorf("reading %s: %w", table.Name, err)
		}
		return nil
	}
	return fmt.Errorf("reading %s: %w", table.Name, store.ErrNotFound)
}

// value reads any column, exactly, into what v has room for.
func (s *scanner) value(v *store.Value) error {
	col := s.next()
	switch kind := s.stmt.ColumnType(col); kind {
	case sqlite.TypeNull:
		v.Kind = store.ValueNull
	case sqlite.TypeInteger:
		v.Kind, v.Int = store.ValueInt, s.stmt.ColumnInt64(col)
	case sqlite.TypeText, sqlite.TypeBlob:
		size := s.stmt.ColumnLen(col)
		if cap(v.Bytes) < size {
			v.Bytes = make([]byte, size)
		}
		v.Kind, v.Bytes = store.ValueBytes, v.Bytes[:size]
		s.stmt.ColumnBytes(col, v.Bytes)
	default:
		return fmt.Errorf("a value is a %v, which no server has written", kind)
	}
	return nil
}

// Numbers reads the last number of each series.
func (s *Source) Numbers(context.Context) (store.Numbers, error) {
	n := store.Numbers{}
	err := query(s.conn, sqlMoveNumbers, nil, func(r *scanner) error { n[r.text()] = r.int(); return nil })
	if err != nil {
		return nil, fmt.Errorf("reading the last numbers: %w", err)
	}
	return n, nil
}
