package postgres

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"math"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Load implements store.Reader.
func (s *Store) Load(ctx context.Context, runID string) (workflow.Run, store.History, error) {
	var run workflow.Run
	var history store.History
	err := s.query(ctx, sqlSelectRun, (&params{}).text(runID), func(r *scanner) error {
		history, run = store.History{Entries: r.int(), Bytes: r.int()}, scanRun(r)
		return nil
	})
	return run, history, found(err, run.ID != "", "run "+runID)
}

// found gives ErrNotFound where reading went well and nothing was there.
func found(err error, there bool, what string) error {
	if err == nil && !there {
		return fmt.Errorf("%s: %w", what, store.ErrNotFound)
	}
	return err
}

// State implements store.Reader. Its statements share one snapshot.
func (s *Store) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	var state store.State
	err := s.read(ctx, func(b *batch) {
		state = store.State{}
		q.Chapter = nil
		b.add(sqlBeginRead, nil, nil)
		b.add(sqlSelectState, (&params{}).text(q.RunID), func(r *scanner) error {
			state.History, state.RunRecord = store.History{Entries: r.int(), Bytes: r.int()}, scanRecord(r)
			return nil
		})
		if q.EntriesMax > 0 {
			b.add(sqlSelectEntries, entryParams(q), func(r *scanner) error { state.Entries = append(state.Entries, scanEntry(r)); return nil })
		}
		b.add(sqlSelectAttempts, (&params{}).text(q.RunID), func(r *scanner) error { state.Attempts = append(state.Attempts, scanAttempt(r)); return nil })
		b.add(sqlWaitsOfRun, (&params{}).text(q.RunID).int(0).int(math.MaxInt64), takeWait(&state.Waits))
		b.add(sqlCommit, nil, nil)
	})
	return state, found(err, state.ID != "", "run "+q.RunID)
}

func scanRecord(r *scanner) store.RunRecord {
	return store.RunRecord{Run: scanRun(r), Payload: r.blob(), Output: r.blob(), Error: r.blob(), Trees: r.blob()}
}

// Record implements store.Reader.
func (s *Store) Record(ctx context.Context, env, runID string) (store.RunRecord, error) {
	var record store.RunRecord
	err := s.query(ctx, sqlSelectRecord, (&params{}).text(runID).text(env), func(r *scanner) error { record = scanRecord(r); return nil })
	return record, found(err, record.ID != "", "run "+runID)
}

// Runs implements store.Reader.
func (s *Store) Runs(ctx context.Context, q store.RunQuery) ([]store.RunRecord, error) {
	p := (&params{}).text(q.Env).text(q.App).text(q.Workflow).list(string(q.Status)).text(q.Key).text(q.Before).bool(q.Live).int(int64(q.Limit))
	return list(ctx, s, sqlSelectRecords, p, scanRecord)
}

// list reads rows that each stand for themselves.
func list[T any](ctx context.Context, s *Store, statement string, p *params, scan func(*scanner) T) ([]T, error) {
	var out []T
	err := s.read(ctx, func(b *batch) {
		out = nil // of a try that failed
		b.add(statement, p, func(r *scanner) error { out = append(out, scan(r)); return nil })
	})
	return out, err
}

// listOfRun is list of what belongs to a run that has to be there, in that environment if one is named.
func listOfRun[T any](ctx context.Context, s *Store, env, runID string, of *batchOf[T]) ([]T, error) {
	var out []T
	there := false
	err := s.read(ctx, func(b *batch) {
		out, there = nil, false
		b.add(sqlBeginRead, nil, nil)
		b.add(sqlSelectRunExists, (&params{}).text(runID), func(r *scanner) error { there = env == "" || r.text() == env; return nil })
		b.add(of.statement, of.params, func(r *scanner) error { out = append(out, of.scan(r)); return nil })
		b.add(sqlCommit, nil, nil)
	})
	if err = found(err, there, "run "+runID); err != nil {
		return nil, err
	}
	return out, nil
}

// batchOf is a statement with what its rows are read as.
type batchOf[T any] struct {
	statement string
	params    *params
	scan      func(*scanner) T
}

// Entries implements store.Reader.
func (s *Store) Entries(ctx context.Context, q store.EntryQuery) ([]store.Entry, error) {
	return listOfRun(ctx, s, "", q.RunID, &batchOf[store.Entry]{sqlSelectEntries, entryParams(q), scanEntry})
}

func entryParams(q store.EntryQuery) *params {
	restart := -1
	if q.Chapter != nil {
		restart = *q.Chapter
	}
	return (&params{}).text(q.RunID).int(int64(restart)).int(q.After).int(int64(max(q.EntriesMax, 1))).int(int64(q.BytesMax))
}

func scanEntry(r *scanner) store.Entry {
	return store.Entry{Entry: r.int(), Step: workflow.Step{
		StepID: workflow.StepID{Name: r.text(), Number: int(r.int())}, Kind: r.text(), Status: r.text(),
		Output: r.blob(), Error: r.blob(), Attempts: int(r.int()), StartedAt: r.time(), EndedAt: r.time(),
	}}
}

// Attempts implements store.Reader.
func (s *Store) Attempts(ctx context.Context, runID string) ([]store.Attempt, error) {
	return listOfRun(ctx, s, "", runID, &batchOf[store.Attempt]{sqlSelectAttempts, (&params{}).text(runID), scanAttempt})
}

// Chapters implements store.Reader.
func (s *Store) Chapters(ctx context.Context, runID string) ([]store.Chapter, error) {
	return listOfRun(ctx, s, "", runID, &batchOf[store.Chapter]{sqlSelectChapters, (&params{}).text(runID), func(r *scanner) store.Chapter {
		return store.Chapter{Restart: int(r.int()), Payload: r.blob(), Entries: r.int(), ClosedAt: r.time()}
	}})
}

// Logs implements store.Reader.
func (s *Store) Logs(ctx context.Context, q store.LogQuery) ([]store.LogLine, error) {
	p := (&params{}).text(q.RunID).int(q.After).int(int64(q.Limit))
	return listOfRun(ctx, s, q.Env, q.RunID, &batchOf[store.LogLine]{sqlSelectLogs, p, func(r *scanner) store.LogLine {
		l := store.LogLine{Position: r.int(), Restart: int(r.int())}
		l.Name, l.Number, l.Entry, l.Attempt, l.Line = r.text(), int(r.int()), r.int(), int(r.int()), int(r.int())
		l.At, l.Level, l.Message, l.Fields = r.time(), r.text(), r.text(), r.blob()
		return l
	}})
}

// Timers implements store.Reader.
func (s *Store) Timers(ctx context.Context, q store.TimerQuery) ([]workflow.Run, error) {
	return list(ctx, s, sqlSelectTimers, (&params{}).time(q.Now).time(q.AfterAt).text(q.AfterID).int(int64(q.Limit)), scanRun)
}

// NextTimer implements store.Reader.
func (s *Store) NextTimer(ctx context.Context) (next time.Time, err error) {
	err = s.readNow(ctx, func(b *batch) {
		b.add(sqlSelectNextTimer, nil, func(r *scanner) error { next = r.time(); return nil })
	})
	return next, err
}

// Ready implements store.Reader.
func (s *Store) Ready(ctx context.Context, env, app string, now time.Time, limit int) ([]store.Ready, error) {
	return list(ctx, s, sqlSelectReady, (&params{}).text(env).text(app).time(now).int(int64(limit)), func(r *scanner) store.Ready {
		return store.Ready{RunID: r.text(), ReadyAt: r.time()}
	})
}

// Stranded implements store.Reader.
func (s *Store) Stranded(ctx context.Context, limit int) ([]string, error) {
	return list(ctx, s, sqlStranded, (&params{}).int(int64(limit)), (*scanner).text)
}

func scanEvent(r *scanner) store.Event {
	return store.Event{Position: r.int(), Env: r.text(), Name: r.text(), ID: r.text(), Payload: r.blob(), CreatedAt: r.time(), Runs: int(r.int())}
}

// Event implements store.Reader.
func (s *Store) Event(ctx context.Context, env, name, id string) (store.Event, error) {
	var event store.Event
	err := s.query(ctx, sqlSelectEvent, (&params{}).text(env).text(name).text(id), func(r *scanner) error { event = scanEvent(r); return nil })
	return event, found(err, event.Position > 0, "event "+name+" "+id)
}

// Events implements store.Reader.
func (s *Store) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	p := (&params{}).text(q.Env).text(q.Name)
	if !q.Forward {
		return list(ctx, s, sqlSelectEvents, p.int(q.Before).int(int64(q.Limit)), scanEvent)
	}
	return list(ctx, s, sqlEventsForward, p.int(q.After).int(q.UpTo).text(q.UnusedBy).int(int64(q.Limit)).int(int64(q.BytesMax)), scanEvent)
}

// Keys implements store.Reader.
func (s *Store) Keys(ctx context.Context, q store.KeyQuery) ([]store.Key, error) {
	from, to := q.Range()
	p := (&params{}).text(q.Env).list(string(q.Kind)).text(q.Scope).text(from).text(to).time(q.Now)
	if q.Key != "" {
		return list(ctx, s, sqlSelectKeyBeside, p.text(q.Key), scanKey)
	}
	return list(ctx, s, sqlSelectKeys, p, scanKey)
}

// Apps implements store.Reader.
func (s *Store) Apps(ctx context.Context) ([]store.App, error) {
	var out []store.App
	err := s.readNow(ctx, func(b *batch) {
		out = nil
		b.add(sqlSelectApps, nil, func(r *scanner) error {
			a := store.App{Env: r.text(), Name: r.text(), URL: r.text(), Private: r.bool(), Concurrency: int(r.int()), Manifest: r.blob(), Hash: r.text(), SeenAt: r.time()}
			if err := json.Unmarshal(r.blob(), &a.Gone); err != nil {
				return fmt.Errorf("reading app %s: %w", a.Name, err)
			}
			a.Version = r.int()
			out = append(out, a)
			return nil
		})
	})
	return out, err
}
