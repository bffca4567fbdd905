package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Load implements store.Reader.
func (s *Store) Load(_ context.Context, runID string) (workflow.Run, store.History, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil {
		return workflow.Run{}, store.History{}, fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	return r.Run, r.history(), nil
}

// State implements store.Reader.
func (s *Store) State(ctx context.Context, q store.EntryQuery) (store.State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[q.RunID]
	if r == nil {
		return store.State{}, fmt.Errorf("run %s: %w", q.RunID, store.ErrNotFound)
	}
	state := store.State{RunRecord: r.RunRecord, History: r.history(), Attempts: r.sortedAttempts(), Waits: s.waits(store.WaitQuery{Set: store.WaitsOfRun, RunID: q.RunID})}
	if q.EntriesMax > 0 {
		state.Entries = r.page(q)
	}
	return state, nil
}

// Record implements store.Reader.
func (s *Store) Record(_ context.Context, env, runID string) (store.RunRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil || r.Env != env {
		return store.RunRecord{}, fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	return r.RunRecord, nil
}

// Runs implements store.Reader.
func (s *Store) Runs(_ context.Context, q store.RunQuery) ([]store.RunRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.sorted(func(r *run) bool {
		return r.Env == q.Env && (q.App == "" || r.App == q.App) && (q.Workflow == "" || r.Workflow == q.Workflow) &&
			(q.Status == "" || r.Status == q.Status) && (q.Key == "" || r.Key == q.Key) && (q.Before == "" || r.ID < q.Before) && (!q.Live || !r.Status.Final())
	}, func(a, b *run) int { return byID(b, a) })
	var out []store.RunRecord
	for _, r := range list[:min(q.Limit, len(list))] {
		out = append(out, r.RunRecord)
	}
	return out, nil
}

// Entries implements store.Reader.
func (s *Store) Entries(_ context.Context, q store.EntryQuery) ([]store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[q.RunID]
	if r == nil {
		return nil, fmt.Errorf("run %s: %w", q.RunID, store.ErrNotFound)
	}
	return r.page(q), nil
}

func (r *run) page(q store.EntryQuery) []store.Entry {
	var out []store.Entry
	size := 0
	for _, e := range r.chapterEntries(q.Chapter) {
		if e.Entry <= q.After {
			continue
		}
		size += len(e.Output) + len(e.Error)
		if len(out) > 0 && (len(out) >= q.EntriesMax || size > q.BytesMax) {
			break
		}
		out = append(out, e)
	}
	return out
}

// Attempts implements store.Reader.
func (s *Store) Attempts(_ context.Context, runID string) ([]store.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[runID]
	if r == nil {
		return nil, fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	return r.sortedAttempts(), nil
}

func (r *run) sortedAttempts() []store.Attempt {
	out := slices.Clone(r.attempts)
	slices.SortFunc(out, func(a, b store.Attempt) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Attempt, b.Attempt))
	})
	return out
}

// Timers implements store.Reader.
func (s *Store) Timers(_ context.Context, q store.TimerQuery) ([]workflow.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.sorted(func(r *run) bool {
		return !r.TimerAt().IsZero() && !r.TimerAt().After(q.Now) && cmp.Or(r.TimerAt().Compare(q.AfterAt), cmp.Compare(r.ID, q.AfterID)) > 0
	}, func(a, b *run) int { return cmp.Or(a.TimerAt().Compare(b.TimerAt()), byID(a, b)) })
	return records(list, q.Limit), nil
}

// NextTimer implements store.Reader.
func (s *Store) NextTimer(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, r := range s.runs {
		if at := r.TimerAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, nil
}

// Ready implements store.Reader.
func (s *Store) Ready(_ context.Context, env, app string, now time.Time, limit int) ([]store.Ready, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.sorted(func(r *run) bool {
		return r.Env == env && r.App == app && !r.ReadyAt().IsZero() && !r.ReadyAt().After(now)
	}, func(a, b *run) int { return cmp.Or(a.ReadyAt().Compare(b.ReadyAt()), byID(a, b)) })
	var out []store.Ready
	for _, r := range list[:min(limit, len(list))] {
		out = append(out, store.Ready{RunID: r.ID, ReadyAt: r.ReadyAt()})
	}
	return out, nil
}

// Event implements store.Reader.
func (s *Store) Event(_ context.Context, env, name, id string) (store.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.event(env, name, id); e != nil {
		return *e, nil
	}
	return store.Event{}, fmt.Errorf("event %s %s: %w", name, id, store.ErrNotFound)
}

func (s *Store) event(env, name, id string) *store.Event {
	position, ok := s.byName[eventID{env, name, id}]
	if !ok {
		return nil
	}
	i, _ := slices.BinarySearchFunc(s.events, position, func(e store.Event, position int64) int { return cmp.Compare(e.Position, position) })
	return &s.events[i]
}

// Events implements store.Reader.
func (s *Store) Events(_ context.Context, q store.EventQuery) ([]store.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Event
	for _, e := range s.events {
		if (e.Env == q.Env || (q.Forward && q.Env == "")) && (q.Name == "" || e.Name == q.Name) && s.within(q, e) {
			out = append(out, e)
		}
	}
	if !q.Forward {
		slices.Reverse(out)
	}
	return bounded(out[:min(q.Limit, len(out))], q.BytesMax, func(e store.Event) int { return len(e.Payload) }), nil
}

// bounded is the beginning of a list that weighs bytesMax at most, but for one; zero: no bound.
func bounded[T any](list []T, bytesMax int, weigh func(T) int) []T {
	size := 0
	for i := range list {
		if size += weigh(list[i]); i > 0 && bytesMax > 0 && size > bytesMax {
			return list[:i]
		}
	}
	return list
}

func (s *Store) within(q store.EventQuery, e store.Event) bool {
	if !q.Forward {
		return q.Before == 0 || e.Position < q.Before
	}
	user := s.runs[q.UnusedBy]
	return e.Position > q.After && (q.UpTo == 0 || e.Position <= q.UpTo) && (user == nil || !user.used[e.Position])
}

// Keys implements store.Reader.
func (s *Store) Keys(_ context.Context, q store.KeyQuery) ([]store.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Key
	for id, key := range s.keys {
		if id.env == q.Env && id.kind == q.Kind && id.scope == q.Scope && strings.HasPrefix(id.key, q.Prefix) && (q.Key == "" || q.Key == id.key || key.Differs) && !expired(key, q.Now) {
			out = append(out, *key)
		}
	}
	slices.SortFunc(out, func(a, b store.Key) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}

// Apps implements store.Reader.
func (s *Store) Apps(context.Context) ([]store.App, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.App
	for _, app := range s.apps {
		out = append(out, app)
	}
	slices.SortFunc(out, func(a, b store.App) int {
		return cmp.Or(cmp.Compare(a.Env, b.Env), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

func records(list []*run, limit int) []workflow.Run {
	var out []workflow.Run
	for _, r := range list[:min(limit, len(list))] {
		out = append(out, r.Run)
	}
	return out
}
