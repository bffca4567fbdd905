package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/store"
)

// checkDue checks the ops of apps, of schedules and of events that are due later.
func (s *Store) checkDue(op store.Op) error {
	switch op := op.(type) {
	case store.PutApp:
		if standing := s.apps[[2]string{op.App.Env, op.App.Name}]; standing.Version != op.App.Version-1 {
			return fmt.Errorf("app %s is at version %d, not %d: %w", op.App.Name, standing.Version, op.App.Version-1, store.ErrStale)
		}
	case store.PutSchedule:
		return op.Check(s.schedules[[2]string{op.Schedule.Env, op.Schedule.ID}])
	case store.DropLater:
		if _, known := s.later[eventID{op.Env, op.Name, op.ID}]; !known {
			return fmt.Errorf("event %s is gone: %w", op.ID, store.ErrStale)
		}
	}
	return nil
}

func (s *Store) writeDue(op store.Op) {
	switch op := op.(type) {
	case store.PutSchedule:
		s.schedules[[2]string{op.Schedule.Env, op.Schedule.ID}] = op.Schedule
	case store.DropSchedule:
		delete(s.schedules, [2]string{op.Env, op.ID})
	case store.PutLater:
		id := eventID{op.Event.Env, op.Event.Name, op.Event.ID}
		if _, known := s.later[id]; !known {
			s.later[id] = op.Event
		}
	case store.DropLater:
		delete(s.later, eventID{op.Env, op.Name, op.ID})
	}
}

func due(sc store.Schedule) bool { return !sc.Paused && !sc.NextAt.IsZero() }

// Schedules implements store.Reader.
func (s *Store) Schedules(_ context.Context, q store.ScheduleQuery) ([]store.Schedule, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.Schedule
	for _, sc := range s.schedules {
		if (q.Env == "" || sc.Env == q.Env) && (q.ID == "" || sc.ID == q.ID) && (q.App == "" || sc.App == q.App) && sc.ID > q.After &&
			(q.DueBy.IsZero() || (due(sc) && !sc.NextAt.After(q.DueBy))) {
			out = append(out, sc)
		}
	}
	slices.SortFunc(out, func(a, b store.Schedule) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Env, b.Env)) })
	return bounded(out[:min(q.Limit, len(out))], q.BytesMax, func(sc store.Schedule) int { return len(sc.Payload) }), nil
}

// LaterEvents implements store.Reader.
func (s *Store) LaterEvents(_ context.Context, q store.LaterQuery) ([]store.LaterEvent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.LaterEvent
	for _, e := range s.later {
		if !e.DueAt.After(q.DueBy) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b store.LaterEvent) int { return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID)) })
	return bounded(out[:min(q.Limit, len(out))], q.BytesMax, func(e store.LaterEvent) int { return len(e.Payload) }), nil
}

// NextDue implements store.Reader.
func (s *Store) NextDue(context.Context) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	earlier := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for _, sc := range s.schedules {
		if due(sc) {
			earlier(sc.NextAt)
		}
	}
	for _, e := range s.later {
		earlier(e.DueAt)
	}
	return next, nil
}

// dropEvents removes the old ones of the first events, but for the newest of all.
func (s *Store) dropEvents(op store.DropEvents) (dropped int) {
	looked, bytes := 0, 0
	s.events = slices.DeleteFunc(s.events, func(e store.Event) bool {
		looked++
		drop := looked <= op.Limit && (op.BytesMax == 0 || bytes < op.BytesMax) && e.Position < s.stored && !e.CreatedAt.After(op.Before)
		bytes += len(e.Payload)
		if drop {
			dropped++
			delete(s.byName, eventID{e.Env, e.Name, e.ID})
		}
		return drop
	})
	return dropped
}
