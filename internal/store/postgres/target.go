package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/nelkap/nelkap/internal/store"
)

// Target is a database for who moves a store there: it takes rows, and shows them again. Each method is a transaction, tried once: who
// calls it begins anew from what is durable. One goroutine uses it.
type Target struct {
	store *Store
	kinds map[string]map[string]uint32 // of columns, by table and name
}

// OpenTarget connects to the database that url names, whatever its phase, and brings its schema up to date.
func OpenTarget(ctx context.Context, url string) (*Target, error) {
	s, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return &Target{store: s, kinds: map[string]map[string]uint32{}}, nil
}

// Close ends the connections. It may be called twice.
func (t *Target) Close() error { return t.store.Close() }

// Standing reads the store's phase.
func (t *Target) Standing(ctx context.Context) (store.Standing, error) { return t.store.standing(ctx) }

// Receive marks the store as the one that a move fills, and empties the tables. ErrMoved if it is the target of another move, or the move
// has ended.
func (t *Target) Receive(ctx context.Context, move string, tables []store.Table) error {
	var names []string
	for _, table := range tables {
		names = append(names, quoted(table.Name))
	}
	return t.within(ctx, "emptying the database", func(conn *pgconn.PgConn) error {
		// Who writes has looked at the phase first: those that did are waited for, and those to come see the new one.
		if err := exec(ctx, conn, sqlHoldPhase); err != nil {
			return err
		}
		begun := false
		if err := execWith(ctx, conn, sqlSelectPhase, nil, func(*scanner) error { begun = true; return nil }); err != nil {
			return err
		}
		if !begun { // then it was found empty, and a server may have written since
			if full, err := t.full(ctx, conn, tables); err != nil {
				return err
			} else if full != "" {
				return fmt.Errorf("a server has written to the database meanwhile (to its table %s): stop it, and give an empty database", full)
			}
		}
		if err := one(ctx, conn, sqlReceive, (&params{}).text(move)); err != nil {
			return err
		}
		return exec(ctx, conn, emptyTables(strings.Join(names, ", ")))
	})
}

// Activate lets servers use the store that a move has filled. ErrMoved if it is not the one that this move fills.
func (t *Target) Activate(ctx context.Context, move string) error {
	return t.within(ctx, "opening the database for servers", func(conn *pgconn.PgConn) error {
		return one(ctx, conn, sqlActivate, (&params{}).text(move))
	})
}

// one carries out a statement that must find its one row.
func one(ctx context.Context, conn *pgconn.PgConn, statement string, p *params) error {
	found := false
	err := execWith(ctx, conn, statement, p, func(*scanner) error { found = true; return nil })
	if err == nil && !found {
		err = fmt.Errorf("%w: the database is not, or no longer, the one that this move fills", store.ErrMoved)
	}
	return err
}

// Empty finds a table that has rows; "" if none has.
func (t *Target) Empty(ctx context.Context, tables []store.Table) (full string, err error) {
	err = t.within(ctx, "looking into the database", func(conn *pgconn.PgConn) (err error) {
		full, err = t.full(ctx, conn, tables)
		return err
	})
	return full, err
}

func (t *Target) full(ctx context.Context, conn *pgconn.PgConn, tables []store.Table) (full string, err error) {
	for _, table := range tables {
		err := execWith(ctx, conn, anyOfTable(quoted(table.Name)), nil, func(*scanner) error { full = table.Name; return nil })
		if err != nil || full != "" {
			return full, err
		}
	}
	return "", nil
}

// SetNumbers has each series go on after its last number.
func (t *Target) SetNumbers(ctx context.Context, n store.Numbers) error {
	return t.within(ctx, "setting the last numbers", func(conn *pgconn.PgConn) error {
		for name, last := range n {
			p, statement := &params{}, sqlUpdateLastEvent
			if name != seriesOfEvents {
				p, statement = p.list(sequences[name]), sqlSetNumber
			}
			if err := execWith(ctx, conn, statement, p.int(last), nil); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
}

// seriesOfEvents is numbered by a counter, not a sequence: see sqlLockLastEvent.
const seriesOfEvents = "events"

// sequences are those of the other series.
var sequences = map[string]string{"runs": "run_seqs", "waits": "wait_ids", "logs": "logs_position_seq", "deliveries": "deliveries_position_seq"}

// Numbers reads the last number of each series.
func (t *Target) Numbers(ctx context.Context) (store.Numbers, error) {
	n := store.Numbers{}
	err := t.within(ctx, "reading the last numbers", func(conn *pgconn.PgConn) error {
		return execWith(ctx, conn, sqlSelectNumbers, nil, func(r *scanner) error { n[r.text()] = r.int(); return nil })
	})
	return n, err
}

// Rows hands each row of a table to row, in no order, one at a time.
func (t *Target) Rows(ctx context.Context, table store.Table, row func(store.Row) error) error {
	kinds, err := t.columns(ctx, table)
	if err != nil {
		return err
	}
	values := make(store.Row, len(kinds))
	return t.within(ctx, "reading "+table.Name, func(conn *pgconn.PgConn) error {
		return execWith(ctx, conn, rowsOfTable(quotedAll(table.Columns), quoted(table.Name)), nil, func(r *scanner) error {
			for i, kind := range kinds {
				values[i] = r.value(kind)
			}
			return row(values)
		})
	})
}

// value reads any column. Its bytes are the row's.
func (s *scanner) value(kind uint32) store.Value {
	switch {
	case s.values[s.n] == nil:
		s.n++
		return store.Value{}
	case kind == oidBytes || kind == oidText:
		return store.Value{Kind: store.ValueBytes, Bytes: s.next()}
	case kind == oidBool:
		return store.Value{Kind: store.ValueInt, Int: int64(bit(s.bool()))}
	default:
		return store.Value{Kind: store.ValueInt, Int: s.int()}
	}
}

// Copy adds the rows that rows hands out, all or none. They stream: however many there are, few are in memory.
func (t *Target) Copy(ctx context.Context, table store.Table, rows func(row func(store.Row) error) error) error {
	kinds, err := t.columns(ctx, table)
	if err != nil {
		return err
	}
	return t.within(ctx, "filling "+table.Name, func(conn *pgconn.PgConn) error {
		reader, writer := io.Pipe()
		read := make(chan error, 1)
		go func() {
			err := writeRows(writer, kinds, rows)
			writer.CloseWithError(err) // nil is the end of the rows
			read <- err
		}()
		_, err := conn.CopyFrom(ctx, reader, copyTable(quoted(table.Name), quotedAll(table.Columns)))
		reader.CloseWithError(errCopyEnded)
		// What could not be read is why the copy failed.
		if failure := <-read; failure != nil && !errors.Is(failure, errCopyEnded) {
			return failure
		}
		if err != nil {
			return err
		}
		return exec(ctx, conn, analyzeTable(quoted(table.Name))) // servers plan well from the start
	})
}

var errCopyEnded = errors.New("the database takes no more rows")

// copyBufferBytes is how much of a table goes to the database at once.
const copyBufferBytes = 64 << 10

// writeRows writes rows in the binary form of COPY: a signature, flags, the size of an extension, and for each row how many columns it has,
// and each one's size (-1: NULL) and bytes.
func writeRows(w io.Writer, kinds []uint32, rows func(row func(store.Row) error) error) error {
	buffer := append(make([]byte, 0, 2*copyBufferBytes), "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	err := rows(func(r store.Row) error {
		buffer = binary.BigEndian.AppendUint16(buffer, uint16(len(r)))
		for i := range r {
			var err error
			if buffer, err = appendValue(buffer, kinds[i], &r[i]); err != nil {
				return err
			}
		}
		if len(buffer) < copyBufferBytes {
			return nil
		}
		_, err := w.Write(buffer)
		buffer = buffer[:0]
		return err
	})
	if err != nil {
		return err
	}
	_, err = w.Write(append(buffer, 0xff, 0xff))
	return err
}

func appendValue(buffer []byte, kind uint32, v *store.Value) ([]byte, error) {
	isBytes := kind == oidBytes || kind == oidText
	switch {
	case v.Kind == store.ValueNull:
		return append(buffer, 0xff, 0xff, 0xff, 0xff), nil
	case isBytes != (v.Kind == store.ValueBytes):
		return nil, errors.New("a number stands where the database has a text, or a text where it has a number")
	case isBytes:
		return append(binary.BigEndian.AppendUint32(buffer, uint32(len(v.Bytes))), v.Bytes...), nil
	case kind == oidBool:
		return append(binary.BigEndian.AppendUint32(buffer, 1), bit(v.Int != 0)), nil
	case kind == oidInt4:
		if v.Int != int64(int32(v.Int)) {
			return nil, fmt.Errorf("the number %d is too large for its column", v.Int)
		}
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(buffer, 4), uint32(v.Int)), nil
	default:
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(buffer, 8), uint64(v.Int)), nil
	}
}

// columns are the types of a table's columns, which must be all that it has: one that nobody fills would be lost.
func (t *Target) columns(ctx context.Context, table store.Table) ([]uint32, error) {
	known := t.kinds[table.Name]
	if known == nil {
		known = map[string]uint32{}
		err := t.within(ctx, "looking up "+table.Name, func(conn *pgconn.PgConn) error {
			return execWith(ctx, conn, sqlSelectColumns, (&params{}).list(table.Name), func(r *scanner) error { known[r.text()] = uint32(r.int()); return nil })
		})
		if err != nil {
			return nil, err
		}
		t.kinds[table.Name] = known
	}
	kinds := make([]uint32, 0, len(table.Columns))
	for _, name := range table.Columns {
		kind := known[name]
		if !slices.Contains([]uint32{oidBool, oidBytes, oidInt, oidInt4, oidText}, kind) {
			return nil, fmt.Errorf("the database has no column %s.%s of a type that is known here: both stores must be of this version", table.Name, name)
		}
		kinds = append(kinds, kind)
	}
	if len(known) != len(table.Columns) {
		return nil, fmt.Errorf("the database's table %s has %d columns, and %d are given: both stores must be of this version", table.Name, len(known), len(table.Columns))
	}
	return kinds, nil
}

// within does work in a transaction of its own.
func (t *Target) within(ctx context.Context, what string, work func(*pgconn.PgConn) error) error {
	err := t.transact(ctx, work)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (t *Target) transact(ctx context.Context, work func(*pgconn.PgConn) error) error {
	pooled, err := t.store.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("waiting for a connection: %w", err)
	}
	defer pooled.Release()
	conn := pooled.Conn().PgConn()
	if err := begin(ctx, conn); err != nil {
		return err
	}
	if err := work(conn); err != nil {
		if !conn.IsClosed() {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = exec(limited, conn, sqlRollback) // what went wrong is told by err
		}
		return err
	}
	return exec(ctx, conn, sqlCommit)
}

func begin(ctx context.Context, conn *pgconn.PgConn) error {
	b := &batch{}
	b.add(sqlBegin, nil, nil)
	b.add(sqlLongBounds, nil, nil)
	return b.run(ctx, conn)
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

func quotedAll(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = quoted(name)
	}
	return strings.Join(list, ", ")
}
