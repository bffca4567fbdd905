package sqlite

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"math"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Load implements store.Reader.
func (s *Store) Load(ctx context.Context, runID string) (workflow.Run, store.History, error) {
	var run workflow.Run
	var history store.History
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		found := false
		err := query(conn, sqlSelectRun, func(b *binder) { b.text(runID) }, func(r *scanner) error {
			run, found = scanRun(r), true
			history = store.History{Entries: r.int(), Bytes: r.int()}
			return nil
		})
		if err != nil || !found {
			return orNotFound(err, "run "+runID)
		}
		return nil
	})
	return run, history, err
}

// State implements store.Reader. Its reads share a transaction: that is what makes them one moment, and each that stood alone would cost
// more in locks than in reading.
func (s *Store) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	var state store.State
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		if err := exec(conn, "BEGIN", nil); err != nil { // giveBack ends it
			return err
		}
		return readState(conn, q, &state)
	})
	return state, err
}

func readState(conn *sqlite.Conn, q store.EntryQuery, state *store.State) error {
	seq := int64(0)
	err := query(conn, sqlSelectState, func(b *binder) { b.text(q.RunID) }, func(r *scanner) error { seq, state.RunRecord = r.int(), scanRecord(r); return nil })
	if err != nil || seq == 0 {
		return orNotFound(err, "run "+q.RunID)
	}
	if state.History, err = readHistory(conn, seq, state.Restart); err != nil {
		return err
	}
	if q.EntriesMax > 0 && state.History.Entries > q.After {
		if state.Entries, err = readEntries(conn, seq, int64(state.Restart), q); err != nil {
			return err
		}
	}
	if state.Attempts, err = readAttempts(conn, seq); err != nil {
		return err
	}
	state.Waits, err = readWaits(conn, sqlWaitsOfRun, func(b *binder) { b.text(q.RunID); b.int(0); b.int(math.MaxInt64) })
	return err
}

// readHistory sums up a run's history. Bytes are read from the rows' headers: results themselves are not touched.
func readHistory(conn *sqlite.Conn, seq int64, restart int) (store.History, error) {
	var h store.History
	err := query(conn, sqlSelectHistory,
		func(b *binder) { b.int(seq); b.int(int64(restart)) },
		func(r *scanner) error { h = store.History{Entries: r.int(), Bytes: r.int()}; return nil })
	return h, err
}

func scanRecord(r *scanner) store.RunRecord {
	return store.RunRecord{Run: scanRun(r), Payload: r.blob(), Output: r.blob(), Error: r.blob(), Trees: r.blob()}
}

// Record implements store.Reader.
func (s *Store) Record(ctx context.Context, env, runID string) (store.RunRecord, error) {
	var record store.RunRecord
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		found := false
		err := query(conn, sqlSelectRecord, func(b *binder) { b.text(runID); b.text(env) },
			func(r *scanner) error { record, found = scanRecord(r), true; return nil })
		if err != nil || !found {
			return orNotFound(err, "run "+runID)
		}
		return nil
	})
	return record, err
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) ([]store.RunRecord, error) {
	statement, values := selectRecords(q)
	var out []store.RunRecord
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, statement, func(b *binder) {
			for _, v := range values {
				b.text(v)
			}
			b.int(int64(q.Limit))
		}, func(r *scanner) error { out = append(out, scanRecord(r)); return nil })
	})
	return out, err
}

// selectRecords puts a list's statement together of fixed pieces; values are bound, and the limit behind them.
func selectRecords(q store.RunQuery) (statement string, values []string) {
	where := sqlSelectRecords
	if q.Workflow == "" && q.Key == "" && (q.Status == "" || q.Status == workflow.Completed) {
		where = sqlSelectNewest // no index has these alone
	}
	values = []string{q.Env}
	for _, f := range []struct{ column, value string }{
		{"app=+?", q.App}, {"workflow=+?", q.Workflow}, {"status=+?", string(q.Status)}, {"run_key=+?", q.Key}, {"id<+?", q.Before},
	} {
		if f.value != "" {
			where += ` AND ` + f.column
			values = append(values, f.value)
		}
	}
	if q.Live {
		where += ` AND ended_at=0`
	}
	// Said once more, so that the indexes that have only these are seen to do.
	if q.Status != "" && q.Status != workflow.Completed {
		where += ` AND status <> 'completed'`
	}
	if q.Key != "" {
		where += ` AND run_key <> ''`
	}
	return where + ` ORDER BY id DESC LIMIT +?`, values
}

// Entries implements store.Reader.
func (s *Store) Entries(ctx context.Context, q store.EntryQuery) ([]store.Entry, error) {
	var out []store.Entry
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		seq, restart, err := seqOf(conn, q.RunID)
		if err != nil {
			return err
		}
		if q.Chapter != nil {
			restart = int64(*q.Chapter)
		}
		out, err = readEntries(conn, seq, restart, q)
		return err
	})
	return out, err
}

func readEntries(conn *sqlite.Conn, seq, restart int64, q store.EntryQuery) ([]store.Entry, error) {
	var out []store.Entry
	size := 0
	err := query(conn, sqlSelectEntries, func(b *binder) {
		b.int(seq)
		b.int(restart)
		b.int(int64(max(q.EntriesMax, 1)))
		b.int(q.After)
	}, func(r *scanner) error {
		e := scanEntry(r)
		size += len(e.Output) + len(e.Error)
		if len(out) > 0 && size > q.BytesMax {
			return errFull
		}
		out = append(out, e)
		return nil
	})
	return out, unlessFull(err)
}

// errFull stops reading rows: the page is full.
var errFull = errors.New("the page is full")

func unlessFull(err error) error {
	if errors.Is(err, errFull) {
		return nil
	}
	return err
}

func scanEntry(r *scanner) store.Entry {
	return store.Entry{Entry: r.int(), Step: workflow.Step{
		StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Kind: r.text(), Status: r.text(),
		Output: r.blob(), Error: r.blob(), Attempts: int(r.int()), StartedAt: r.time(), EndedAt: r.time(),
	}}
}

// Attempts implements store.Reader.
func (s *Store) Attempts(ctx context.Context, runID string) ([]store.Attempt, error) {
	var out []store.Attempt
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		seq, _, err := seqOf(conn, runID)
		if err != nil {
			return err
		}
		out, err = readAttempts(conn, seq)
		return err
	})
	return out, err
}

func readAttempts(conn *sqlite.Conn, seq int64) ([]store.Attempt, error) {
	var out []store.Attempt
	err := query(conn, sqlSelectAttempts,
		func(b *binder) { b.int(seq) }, func(r *scanner) error {
			out = append(out, store.Attempt{
				StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Attempt: int(r.int()),
				CallID: r.text(), Error: r.blob(), StartedAt: r.time(), EndedAt: r.time(), RetryAt: r.time(), Again: r.bool(),
			})
			return nil
		})
	return out, err
}

func seqOf(conn *sqlite.Conn, runID string) (seq, restart int64, err error) {
	err = query(conn, sqlSelectSeq, func(b *binder) { b.text(runID) },
		func(r *scanner) error { seq, restart = r.int(), r.int(); return nil })
	if err != nil || seq == 0 {
		return 0, 0, orNotFound(err, "run "+runID)
	}
	return seq, restart, nil
}

func orNotFound(err error, what string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", what, store.ErrNotFound)
}

// Timers implements store.Reader.
func (s *Store) Timers(ctx context.Context, q store.TimerQuery) ([]workflow.Run, error) {
	return s.records(ctx, sqlSelectTimers,
		func(b *binder) { b.time(q.Now); b.time(q.AfterAt); b.text(q.AfterID); b.int(int64(q.Limit)) })
}

// NextTimer implements store.Reader.
func (s *Store) NextTimer(ctx context.Context) (time.Time, error) {
	var next time.Time
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectNextTimer, nil,
			func(r *scanner) error { next = r.time(); return nil })
	})
	return next, err
}

// Ready implements store.Reader.
func (s *Store) Ready(ctx context.Context, env, app string, now time.Time, limit int) ([]store.Ready, error) {
	var out []store.Ready
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectReady,
			func(b *binder) { b.text(env); b.text(app); b.time(now); b.int(int64(limit)) },
			func(r *scanner) error { out = append(out, store.Ready{RunID: r.text(), ReadyAt: r.time()}); return nil })
	})
	return out, err
}

func (s *Store) records(ctx context.Context, sql string, bind func(*binder)) ([]workflow.Run, error) {
	var out []workflow.Run
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sql, bind,
			func(r *scanner) error { out = append(out, scanRun(r)); return nil })
	})
	return out, err
}

func scanEvent(r *scanner) store.Event {
	return store.Event{Position: r.int(), Env: r.text(), Name: r.text(), ID: r.text(), Payload: r.blob(), CreatedAt: r.time(), Runs: int(r.int())}
}

// Event implements store.Reader.
func (s *Store) Event(ctx context.Context, env, name, id string) (store.Event, error) {
	var event store.Event
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		err := query(conn, sqlSelectEvent,
			func(b *binder) { b.text(env); b.text(name); b.text(id) },
			func(r *scanner) error { event = scanEvent(r); return nil })
		if err != nil || event.Position == 0 {
			return orNotFound(err, "event "+name+" "+id)
		}
		return nil
	})
	return event, err
}

// Events implements store.Reader.
func (s *Store) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	var out []store.Event
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		size := 0
		take := func(r *scanner) error {
			e := scanEvent(r)
			if size += len(e.Payload); len(out) > 0 && q.BytesMax > 0 && size > q.BytesMax {
				return errFull
			}
			out = append(out, e)
			return nil
		}
		if !q.Forward {
			statement := sqlSelectEvents
			if q.Name != "" {
				statement = sqlSelectEventsNamed
			}
			return query(conn, statement, func(b *binder) {
				b.text(q.Env)
				b.int(cmp.Or(q.Before, math.MaxInt64))
				b.int(int64(q.Limit))
				if q.Name != "" {
					b.text(q.Name)
				}
			}, take)
		}
		statement := sqlEventsForward
		if q.Env != "" && q.Name != "" {
			statement = sqlEventsOfName
		}
		return query(conn, statement, func(b *binder) {
			b.text(q.Env)
			b.text(q.Name)
			b.int(q.After)
			b.int(q.UpTo)
			b.text(q.UnusedBy)
			b.int(int64(q.Limit))
		}, take)
	})
	return out, unlessFull(err)
}

func scanKey(r *scanner) store.Key {
	return store.Key{
		Env: r.text(), Kind: store.KeyKind(r.text()), Scope: r.text(), Key: r.text(), Owner: r.text(), Hash: r.text(),
		Differs: r.bool(), Answer: r.blob(), ExpiresAt: r.time(),
		OwnerStatus: workflow.Status(r.text()), OwnerEndedAt: r.time(),
		LastsFor: time.Duration(r.int()) * time.Millisecond, UntilFailed: r.bool(),
	}
}

// Keys implements store.Reader.
func (s *Store) Keys(ctx context.Context, q store.KeyQuery) ([]store.Key, error) {
	from, to := q.Range()
	var out []store.Key
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		statement := sqlSelectKeys
		if q.Key != "" {
			statement = sqlSelectKeyBeside
		}
		return query(conn, statement,
			func(b *binder) {
				b.text(q.Env)
				b.text(string(q.Kind))
				b.text(q.Scope)
				b.text(from)
				b.text(to)
				b.time(q.Now)
				if q.Key != "" {
					b.text(q.Key)
				}
			},
			func(r *scanner) error { out = append(out, scanKey(r)); return nil })
	})
	return out, err
}

// Apps implements store.Reader.
func (s *Store) Apps(ctx context.Context) ([]store.App, error) {
	var out []store.App
	err := s.read(ctx, func(conn *sqlite.Conn) error {
		return query(conn, sqlSelectApps, nil,
			func(r *scanner) error {
				a := store.App{Env: r.text(), Name: r.text(), URL: r.text(), Private: r.bool(), Concurrency: int(r.int()), Manifest: r.blob(), Hash: r.text(), SeenAt: r.time()}
				if err := json.Unmarshal([]byte(r.text()), &a.Gone); err != nil {
					return fmt.Errorf("reading app %s: %w", a.Name, err)
				}
				a.Version = r.int()
				out = append(out, a)
				return nil
			})
	})
	return out, err
}
