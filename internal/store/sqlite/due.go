package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
)

// checkDue checks the ops of apps, of schedules and of events that are due later.
func (s *Store) checkDue(op store.Op) (refusal, err error) {
	switch op := op.(type) {
	case store.PutApp:
		var version int64
		err = query(s.writer, sqlAppVersion, func(b *binder) { b.text(op.App.Env); b.text(op.App.Name) }, func(r *scanner) error { version = r.int(); return nil })
		if version != op.App.Version-1 {
			refusal = fmt.Errorf("app %s is at version %d, not %d: %w", op.App.Name, version, op.App.Version-1, store.ErrStale)
		}
	case store.PutSchedule:
		var standing store.Schedule
		err = query(s.writer, sqlCheckedSchedule, func(b *binder) { b.text(op.Schedule.Env); b.text(op.Schedule.ID) }, func(r *scanner) error {
			standing.Version, standing.CreatedAt = r.int(), r.time()
			return nil
		})
		refusal = op.Check(standing)
	case store.DropLater:
		known := false
		err = query(s.writer, sqlSelectLater, func(b *binder) { b.text(op.Env); b.text(op.Name); b.text(op.ID) }, func(*scanner) error { known = true; return nil })
		if !known {
			refusal = fmt.Errorf("event %s is gone: %w", op.ID, store.ErrStale)
		}
	}
	return refusal, err
}

func (s *Store) writeDue(op store.Op) error {
	switch op := op.(type) {
	case store.PutSchedule:
		return s.putSchedule(op.Schedule)
	case store.DropSchedule:
		return exec(s.writer, sqlDropSchedule, func(b *binder) { b.text(op.Env); b.text(op.ID) })
	case store.PutLater:
		e := op.Event
		return exec(s.writer, sqlPutLater, func(b *binder) { b.text(e.Env); b.text(e.Name); b.text(e.ID); b.blob(e.Payload); b.time(e.DueAt) })
	case store.DropLater:
		return exec(s.writer, sqlDropLater, func(b *binder) { b.text(op.Env); b.text(op.Name); b.text(op.ID) })
	}
	return nil
}

func (s *Store) putSchedule(sc store.Schedule) error {
	return exec(s.writer, sqlPutSchedule, func(b *binder) {
		for _, v := range []string{sc.Env, sc.ID, sc.App, sc.Workflow, sc.Expression, sc.Timezone, sc.CatchUp} {
			b.text(v)
		}
		b.blob(sc.Payload)
		b.bool(sc.Declared)
		b.bool(sc.Paused)
		b.int(sc.Version)
		b.time(sc.Cursor)
		b.time(sc.NextAt)
		b.time(sc.CreatedAt)
	})
}

// Schedules implements store.Reader.
func (s *Store) Schedules(ctx context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	statement, bind := sqlSchedules, func(b *binder) {
		b.text(q.Env)
		b.text(q.ID)
		b.text(q.App)
		b.text(q.After)
		b.int(int64(q.Limit))
	}
	if !q.DueBy.IsZero() {
		statement, bind = sqlSchedulesDue, func(b *binder) { b.time(q.DueBy); b.int(int64(q.Limit)) }
	}
	var out []store.Schedule
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		size := 0
		return query(conn, statement, bind, func(r *scanner) error {
			sc := store.Schedule{
				Env: r.text(), ID: r.text(), App: r.text(), Workflow: r.text(), Expression: r.text(), Timezone: r.text(), CatchUp: r.text(), Payload: r.blob(),
				Declared: r.bool(), Paused: r.bool(), Version: r.int(), Cursor: r.time(), NextAt: r.time(), CreatedAt: r.time(),
			}
			if size += len(sc.Payload); len(out) > 0 && q.BytesMax > 0 && size > q.BytesMax {
				return errFull
			}
			out = append(out, sc)
			return nil
		})
	})
	return out, unlessFull(err)
}

// LaterEvents implements store.Reader.
func (s *Store) LaterEvents(ctx context.Context, q store.LaterQuery) ([]store.LaterEvent, error) {
	var out []store.LaterEvent
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		size := 0
		return query(conn, sqlLaterDue, func(b *binder) { b.time(q.DueBy); b.int(int64(q.Limit)) }, func(r *scanner) error {
			e := store.LaterEvent{Env: r.text(), ID: r.text(), Name: r.text(), Payload: r.blob(), DueAt: r.time()}
			if size += len(e.Payload); len(out) > 0 && q.BytesMax > 0 && size > q.BytesMax {
				return errFull
			}
			out = append(out, e)
			return nil
		})
	})
	return out, unlessFull(err)
}

// NextDue implements store.Reader.
func (s *Store) NextDue(ctx context.Context) (time.Time, error) {
	var next time.Time
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlNextDue, nil, func(r *scanner) error { next = r.time(); return nil })
	})
	return next, err
}
