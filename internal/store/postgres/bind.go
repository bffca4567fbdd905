package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The types of parameters, by the numbers that Postgres has for them.
const (
	oidBool, oidBytes, oidInt, oidInt4, oidText            = 16, 17, 20, 23, 25
	oidBoolArray, oidBytesArray, oidTextArray, oidIntArray = 1000, 1001, 1009, 1016
)

// params are a statement's parameters in order, each with its type: no statement has to be described before it is used.
type params struct {
	values [][]byte
	oids   []uint32
}

func (p *params) add(oid uint32, v []byte) *params {
	p.values, p.oids = append(p.values, v), append(p.oids, oid)
	return p
}

func (p *params) text(v string) *params { return p.add(oidBytes, []byte(v)) }
func (p *params) list(v string) *params { return p.add(oidText, []byte(v)) } // a word of a closed list
func (p *params) int(v int64) *params {
	return p.add(oidInt, binary.BigEndian.AppendUint64(nil, uint64(v)))
}
func (p *params) bool(v bool) *params { return p.add(oidBool, []byte{bit(v)}) }

func (p *params) time(v time.Time) *params { return p.int(millis(v)) }

func bit(v bool) byte {
	if v {
		return 1
	}
	return 0
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

// rowset is rows that one statement takes, each column an array.
type rowset struct {
	rows    int
	next    int
	columns []column
}

type column struct {
	element uint32
	null    bool
	values  []byte
}

// arrayHeader is the space that an array's head takes before its elements.
const arrayHeader = 20

// row begins another row. Its columns are bound in order, all of them.
func (t *rowset) row() *rowset {
	t.rows++
	t.next = 0
	return t
}

func (t *rowset) column(element uint32) *column {
	if t.next == len(t.columns) {
		t.columns = append(t.columns, column{element: element, values: make([]byte, arrayHeader, 256)})
	}
	t.next++
	return &t.columns[t.next-1]
}

func (t *rowset) text(v string) { appendSized(t.column(oidBytes), v) }
func (t *rowset) list(v string) { appendSized(t.column(oidText), v) } // a word of a closed list

func (t *rowset) int(v int64) {
	c := t.column(oidInt)
	c.values = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(c.values, 8), uint64(v))
}

func (t *rowset) bool(v bool) {
	c := t.column(oidBool)
	c.values = append(binary.BigEndian.AppendUint32(c.values, 1), bit(v))
}

func (t *rowset) time(v time.Time) { t.int(millis(v)) }

// blob binds bytes, and NULL for nil: undefined is not an empty value.
func (t *rowset) blob(v []byte) {
	c := t.column(oidBytes)
	if v == nil {
		c.nothing()
		return
	}
	appendSized(c, v)
}

func (t *rowset) null(element uint32) { t.column(element).nothing() }

func (c *column) nothing() {
	c.null = true
	c.values = append(c.values, 0xff, 0xff, 0xff, 0xff)
}

func appendSized[T string | []byte](c *column, v T) {
	c.values = append(binary.BigEndian.AppendUint32(c.values, uint32(len(v))), v...)
}

var arrayOf = map[uint32]uint32{oidBool: oidBoolArray, oidBytes: oidBytesArray, oidInt: oidIntArray, oidText: oidTextArray}

// params gives the columns as arrays in Postgres's binary form: one dimension, whether there are NULLs, the elements' type, how many
// there are, and the first one's index.
func (t *rowset) params() *params {
	p := &params{}
	for i := range t.columns {
		c := &t.columns[i]
		for n, v := range [...]uint32{1, uint32(bit(c.null)), c.element, uint32(t.rows), 1} {
			binary.BigEndian.PutUint32(c.values[4*n:], v)
		}
		p.add(arrayOf[c.element], c.values)
	}
	return p
}

// scanner reads a row's columns in order. What it gives does not share memory with the row.
type scanner struct {
	values [][]byte
	n      int
}

func (s *scanner) next() []byte    { s.n++; return s.values[s.n-1] }
func (s *scanner) text() string    { return string(s.next()) }
func (s *scanner) time() time.Time { return instant(s.int()) }

func (s *scanner) bool() bool {
	v := s.next()
	return len(v) == 1 && v[0] == 1
}

func (s *scanner) int() int64 {
	switch v := s.next(); len(v) {
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	default:
		return 0
	}
}

func (s *scanner) blob() []byte {
	v := s.next()
	if v == nil {
		return nil
	}
	return append([]byte{}, v...)
}

// batch is statements that go to the server together: one round trip.
//
// Each is parsed, bound and executed as the unnamed statement, with its parameters' types beside it, unless the connection keeps it
// prepared. Nothing of it outlives its transaction, so that a pooler may give each transaction another of its connections: named
// statements, and descriptions that are kept, are what such poolers break.
type batch struct{ takes []take }

// take is a statement, and what is done with its answer.
type take struct {
	sql  string
	p    *params
	row  func(*scanner) error
	done func(answer)
}

// answer is how a statement was carried out.
type answer struct {
	pgconn.CommandTag
	warning *pgconn.Notice // nil: there was none
}

// warningKey is where a connection has the last warning that came with the statement whose answer is being read.
const warningKey = "nelkap warning"

// noticed keeps a warning for who reads the answer that it comes with.
func noticed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warningKey] = n
	}
}

// warned takes what the connection was warned of.
func warned(conn *pgconn.PgConn) *pgconn.Notice {
	n, _ := conn.CustomData()[warningKey].(*pgconn.Notice)
	delete(conn.CustomData(), warningKey)
	return n
}

var binaryFormat = []int16{1}

// add adds a statement; row, if not nil, is called for each of its rows.
func (b *batch) add(sql string, p *params, row func(*scanner) error) {
	b.append(take{sql: sql, p: p, row: row})
}

func (b *batch) append(t take) {
	if t.p == nil {
		t.p = &params{}
	}
	b.takes = append(b.takes, t)
}

// statements are b's for a connection.
func (b *batch) statements(conn *pgconn.PgConn) *pgconn.Batch {
	out, names := &pgconn.Batch{}, preparedOn(conn)
	for _, t := range b.takes {
		if name, kept := names[t.sql]; kept {
			out.ExecPrepared(name, t.p.values, binaryFormat, binaryFormat)
		} else {
			out.ExecParams(t.sql, t.p.values, t.p.oids, binaryFormat, binaryFormat)
		}
	}
	return out
}

// run sends the statements and takes their answers.
func (b *batch) run(ctx context.Context, conn *pgconn.PgConn) (err error) {
	if len(b.takes) == 0 {
		return nil
	}
	results := conn.ExecBatch(ctx, b.statements(conn))
	for n := 0; results.NextResult(); n++ {
		reader, t := results.ResultReader(), b.takes[n]
		for reader.NextRow() {
			if t.row == nil || err != nil {
				continue
			}
			if failure := t.row(&scanner{values: reader.Values()}); failure != nil {
				err = errors.Join(errRow, failure)
			}
		}
		tag, failure := reader.Close()
		if failure != nil {
			break // results.Close gives the same one
		}
		if warning := warned(conn); t.done != nil {
			t.done(answer{tag, warning})
		}
	}
	if failure := results.Close(); failure != nil {
		return failure
	}
	return err
}
