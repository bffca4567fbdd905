package sqlite

import (
	"time"

	"zombiezen.com/go/sqlite"
)

// binder fills a statement's parameters in order. The statement must be reset and run by its user.
type binder struct {
	stmt *sqlite.Stmt
	n    int
}

func (b *binder) text(v string)    { b.n++; b.stmt.BindText(b.n, v) }
func (b *binder) int(v int64)      { b.n++; b.stmt.BindInt64(b.n, v) }
func (b *binder) bool(v bool)      { b.n++; b.stmt.BindBool(b.n, v) }
func (b *binder) time(v time.Time) { b.int(millis(v)) }
func (b *binder) null()            { b.n++; b.stmt.BindNull(b.n) }

// blob binds bytes, and NULL for nil: undefined is not an empty value.
func (b *binder) blob(v []byte) {
	if v == nil {
		b.null()
		return
	}
	b.n++
	b.stmt.BindBytes(b.n, v)
}

// scanner reads a row's columns in order.
type scanner struct {
	stmt *sqlite.Stmt
	n    int
}

func (s *scanner) next() int       { s.n++; return s.n - 1 }
func (s *scanner) text() string    { return s.stmt.ColumnText(s.next()) }
func (s *scanner) int() int64      { return s.stmt.ColumnInt64(s.next()) }
func (s *scanner) bool() bool      { return s.stmt.ColumnBool(s.next()) }
func (s *scanner) time() time.Time { return instant(s.int()) }

func (s *scanner) blob() []byte {
	col := s.next()
	if s.stmt.ColumnIsNull(col) {
		return nil
	}
	b := make([]byte, s.stmt.ColumnLen(col))
	s.stmt.ColumnBytes(col, b)
	return b
}

// millis and instant map Go's zero time to 0, the store's "none".
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// exec prepares (once per connection), binds and runs a statement that gives no rows.
func exec(conn *sqlite.Conn, sql string, bind func(*binder)) error {
	return query(conn, sql, bind, nil)
}

// query prepares (once per connection), binds and runs a statement, and hands each row to row.
func query(conn *sqlite.Conn, sql string, bind func(*binder), row func(*scanner) error) error {
	stmt, err := conn.Prepare(sql)
	if err != nil {
		return err
	}
	defer stmt.Reset() //nolint:errcheck // Reset repeats the error of Step.
	if bind != nil {
		bind(&binder{stmt: stmt})
	}
	for {
		has, err := stmt.Step()
		if err != nil {
			return err
		}
		if !has {
			return nil
		}
		if row != nil {
			if err := row(&scanner{stmt: stmt}); err != nil {
				return err
			}
		}
	}
}
