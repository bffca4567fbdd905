// Package move takes an embedded store to a database of many nodes, with runs in flight (N5). It decides in which order the two stores
// change, and how a move that was interrupted goes on; it reads and writes them through two small interfaces, knows no SQL, and knows
// nothing of what the rows mean. cmd/nelkap calls it, with no server on either store.
//
// The order is that of N5. The old store is marked as moving: no server uses it any more. The new one is marked as incoming, and no server
// uses it yet. The rows are copied, and then both sides are read back and compared. The old store is marked as moved; only then is the new
// one active. So at every moment at most one of the two can be used by a server, and from the first mark to the last none.
//
// Each mark is durable before the next thing is done, and where to go on is decided from the marks alone:
//
//	old      new                     what comes next
//	active   empty                   the first mark
//	active   incoming, of this move  the first mark: somebody went back, and the rows there are old
//	moving   empty                   the second mark, as a new move
//	moving   incoming, of this move  compare; where they differ, empty the new one and copy again
//	moved    incoming, of this move  the same, and the last mark
//	moved    active, of this move    nothing: it is done
//
// Anything else is refused. A move is one old store and one new one: when another database is given, the move is another, so that what was
// copied to the first can never become active.
package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
)

// The closed list of a move's errors.
var (
	// ErrRefused: these two stores can't be moved, or moved back, as they stand; nothing was changed. The text says what to do.
	ErrRefused = errors.New("move: refused")
	// ErrDiffers: what was copied is not what was read. The old store stays as it was; nobody uses the new one.
	ErrDiffers = errors.New("move: the copy differs")
)

// Reader is what is read of both stores.
type Reader interface {
	// Standing reads the phase.
	Standing(ctx context.Context) (store.Standing, error)
	// Rows hands each row of a table to row, in no order, one at a time. The row is the reader's again when row returns.
	Rows(ctx context.Context, table store.Table, row func(store.Row) error) error
	// Numbers reads the last number of each series.
	Numbers(ctx context.Context) (store.Numbers, error)
}

// Source is the old store. Nobody else writes to it.
type Source interface {
	Reader
	// SetStanding returns when the phase is durable.
	SetStanding(ctx context.Context, to store.Standing) error
	// Tables lists what the new store has to take.
	Tables(ctx context.Context) ([]store.Table, error)
}

// Target is the new store. What a method that fails has written is unknown.
type Target interface {
	Reader
	// Empty finds a table that has rows; "" if none has.
	Empty(ctx context.Context, tables []store.Table) (full string, err error)
	// Receive marks the store as incoming by this move, and empties the tables.
	Receive(ctx context.Context, move string, tables []store.Table) error
	// Copy adds all rows that rows hands out.
	Copy(ctx context.Context, table store.Table, rows func(row func(store.Row) error) error) error
	// SetNumbers has each series go on after its last number.
	SetNumbers(ctx context.Context, n store.Numbers) error
	// Activate lets servers use the store that this move has filled.
	Activate(ctx context.Context, move string) error
}

// Work is what a move is doing.
type Work string

// The kinds of work, in their order.
const (
	Copying   Work = "copying"
	Comparing Work = "comparing"
)

// Progress is how far a move has come.
type Progress struct {
	Work  Work
	Table string
	Rows  int64
	// Ended: that was the table's last row.
	Ended bool
}

// reportRows is how many rows are done between two reports: some hundredths of a second.
const reportRows = 10_000

// Options are what a move needs to know besides the stores.
type Options struct {
	// Place says where the new store is, for people, without a password.
	Place string
	// Report is told how far the move has come; nil: nobody is.
	Report func(Progress)
}

// Run moves from to to, or goes on with a move that was interrupted. When it returns nil, servers may use the new store and never again the
// old one. After any error it may be called again, with the same stores; what it then has to do it finds out from them.
func Run(ctx context.Context, from Source, to Target, o Options) error {
	if o.Report == nil {
		o.Report = func(Progress) {}
	}
	m := &mover{from: from, to: to, Options: o}
	var err error
	if m.tables, err = from.Tables(ctx); err != nil {
		return err
	}
	if m.old, err = from.Standing(ctx); err != nil {
		return err
	}
	if m.fresh, err = to.Standing(ctx); err != nil {
		return err
	}
	if err := m.check(ctx); err != nil {
		return err
	}
	if m.old.Phase == store.PhaseMoved && m.fresh.Phase == store.PhaseActive {
		return nil
	}
	return m.run(ctx)
}

type mover struct {
	Options
	from   Source
	to     Target
	tables []store.Table
	// As they were at the beginning.
	old, fresh store.Standing
}

// same tells whether the new store is the one that the old store's move fills, or has filled.
func (m *mover) same() bool { return m.old.Move != "" && m.fresh.Move == m.old.Move }

// check refuses what no move can go on from.
func (m *mover) check(ctx context.Context) error {
	switch {
	case m.old.Phase == store.PhaseHeld:
		return fmt.Errorf("%w: the store was restored from a backup, and its runs are held: have them go on first, with nelkap restore --go-on", ErrRefused)
	case m.fresh.Phase == store.PhaseHeld:
		return fmt.Errorf("%w: %s was restored, and its runs are held: give an empty database", ErrRefused, m.Place)
	case m.fresh.Phase == store.PhaseIncoming && !m.same():
		return fmt.Errorf("%w: %s is being filled from another store, or by an older move of this one that was given up. If that is so, give an empty database, or drop this one and make it again", ErrRefused, m.Place)
	case m.fresh.Phase == store.PhaseIncoming:
		return nil
	case m.old.Phase == store.PhaseMoved && m.same():
		return nil
	case m.old.Phase == store.PhaseMoved:
		return fmt.Errorf("%w: this store was moved to %s, and %s is not that", ErrRefused, m.old.Place, m.Place)
	case m.same():
		return fmt.Errorf("%w: this store was moved to %s already, which is in use: this directory is an older copy, and must not be used", ErrRefused, m.Place)
	}
	if m.fresh.Move != "" {
		return fmt.Errorf("%w: another store was moved to %s: give an empty database", ErrRefused, m.Place)
	}
	full, err := m.to.Empty(ctx, m.tables)
	if err == nil && full != "" {
		err = fmt.Errorf("%w: %s has data of its own (in its table %s): give an empty database", ErrRefused, m.Place, full)
	}
	return err
}

func (m *mover) run(ctx context.Context) error {
	moving := store.Standing{Phase: m.old.Phase, Move: m.old.Move, Place: m.Place}
	if !m.same() {
		moving.Move = id.New(id.Move)
	}
	if m.old.Phase != store.PhaseMoved {
		moving.Phase = store.PhaseMoving
		if err := m.from.SetStanding(ctx, moving); err != nil {
			return err
		}
	}
	difference := "nothing is copied yet"
	var err error
	if m.same() {
		if difference, err = m.compare(ctx); err != nil {
			return err
		}
	}
	if difference != "" {
		if err := m.copy(ctx, moving.Move); err != nil {
			return err
		}
		if difference, err = m.compare(ctx); err != nil {
			return err
		}
	}
	if difference != "" {
		return fmt.Errorf("%w: %s. Nothing uses the new store. Try once more; if it differs again, go back with nelkap migrate --abort, and report it", ErrDiffers, difference)
	}
	if err := m.from.SetStanding(ctx, store.Standing{Phase: store.PhaseMoved, Move: moving.Move, Place: m.Place}); err != nil {
		return err
	}
	return m.to.Activate(ctx, moving.Move)
}

// copy fills the new store from its beginning.
func (m *mover) copy(ctx context.Context, move string) error {
	if err := m.to.Receive(ctx, move, m.tables); err != nil {
		return err
	}
	for _, table := range m.tables {
		c := m.count(Copying, table)
		err := m.to.Copy(ctx, table, func(row func(store.Row) error) error {
			return m.from.Rows(ctx, table, func(r store.Row) error { c.one(); return row(r) })
		})
		if err != nil {
			return err
		}
		c.end()
	}
	n, err := m.from.Numbers(ctx)
	if err != nil {
		return err
	}
	return m.to.SetNumbers(ctx, n)
}

// compare reads everything back from both sides, and says what differs; "" if nothing does.
func (m *mover) compare(ctx context.Context) (difference string, err error) {
	for _, table := range m.tables {
		c := m.count(Comparing, table)
		var here, there sum
		if err := m.to.Rows(ctx, table, func(r store.Row) error { c.one(); there.add(r); return nil }); err != nil {
			return "", err
		}
		if err := m.from.Rows(ctx, table, func(r store.Row) error { here.add(r); return nil }); err != nil {
			return "", err
		}
		if here != there {
			return fmt.Sprintf("table %s has %d rows there and %d here, or some of them differ", table.Name, there.rows, here.rows), nil
		}
		c.end()
	}
	here, err := m.from.Numbers(ctx)
	if err != nil {
		return "", err
	}
	there, err := m.to.Numbers(ctx)
	if err != nil {
		return "", err
	}
	for name, last := range here {
		if there[name] != last {
			return fmt.Sprintf("the last number of %s is %d there and %d here", name, there[name], last), nil
		}
	}
	return "", nil
}

// counter reports the rows of one table.
type counter struct {
	Progress
	report func(Progress)
}

func (m *mover) count(work Work, table store.Table) *counter {
	return &counter{Progress{Work: work, Table: table.Name}, m.Report}
}

func (c *counter) one() {
	if c.Rows++; c.Rows%reportRows == 0 {
		c.report(c.Progress)
	}
}

func (c *counter) end() {
	c.Ended = true
	c.report(c.Progress)
}

// Abort makes a store that is moving active again, as long as it has not moved: until then nothing can have used the new one. The new
// database stays incoming, for this move or none.
func Abort(ctx context.Context, from Source) error {
	is, err := from.Standing(ctx)
	if err != nil {
		return err
	}
	switch is.Phase {
	case store.PhaseMoving:
		return from.SetStanding(ctx, store.Standing{Phase: store.PhaseActive, Move: is.Move, Place: is.Place})
	case store.PhaseMoved:
		return fmt.Errorf("%w: this store was moved to %s, and servers may have gone on there: there is no way back. Had the move been interrupted at its very end, nelkap migrate with the same --from and --to ends it", ErrRefused, is.Place)
	default:
		return fmt.Errorf("%w: this store is not being moved; a server may use it as it is", ErrRefused)
	}
}
