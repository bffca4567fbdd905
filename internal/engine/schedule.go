package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/schedule"
	"github.com/nelkap/nelkap/internal/store"
)

// Errors of schedules.
var (
	// ErrBadSchedule: the schedule can't be; the error says why.
	ErrBadSchedule = errors.New("the schedule can't be used")
	// ErrDeclared: the schedule stands in its app's code, and changes with it.
	ErrDeclared = errors.New("the schedule is declared in its app's code: change it there; it can be paused here")
)

// declaredID names a schedule of a manifest: another expression or zone is another schedule, which does not catch up (D2).
func declaredID(app appID, workflow, expression, timezone string) string {
	sum := sha256.Sum256([]byte(app.name + "\x00" + workflow + "\x00" + expression + "\x00" + timezone))
	return "declared_" + hex.EncodeToString(sum[:12])
}

// declaring is what brings the stored schedules of an app up to its record. It holds where it is committed together with the record: whoever
// changes what an app declares raises the record's version (D1).
func (e *Engine) declaring(record *store.App) (store.Change, error) {
	wanted, err := e.apps.schedules(record, e.now())
	if err != nil {
		return nil, err
	}
	var change store.Change
	err = e.eachSchedule(e.ctx, store.ScheduleQuery{Env: record.Env, App: record.Name}, func(standing *store.Schedule) error {
		want, stays := wanted[standing.ID]
		delete(wanted, standing.ID)
		switch {
		case !standing.Declared || (stays && want.CatchUp == standing.CatchUp):
		case stays:
			standing.CatchUp = want.CatchUp
			standing.Version++
			change = append(change, store.PutSchedule{Schedule: *standing})
		default:
			change = append(change, store.DropSchedule{Env: record.Env, ID: standing.ID})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		_, err := e.Schedule(e.ctx, record.Env, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			change = append(change, store.PutSchedule{Schedule: wanted[id]})
		case err != nil:
			return nil, err
		default: // a user has made one of that id, for another app: it stands
		}
	}
	return change, nil
}

// schedules are those that an app's record declares, as new ones, by their ids.
func (r *registry) schedules(record *store.App, now time.Time) (map[string]store.Schedule, error) {
	manifest, err := manifestOf(record)
	if err != nil {
		return nil, err
	}
	list := map[string]store.Schedule{}
	for _, w := range manifest.Workflows {
		for _, t := range w.Triggers {
			if t.Schedule == "" || r.broken(t) != "" {
				continue
			}
			s := store.Schedule{
				Env: record.Env, ID: declaredID(appID{record.Env, record.Name}, w.Name, t.Schedule, t.Timezone), App: record.Name, Workflow: w.Name,
				Expression: t.Schedule, Timezone: t.Timezone, CatchUp: t.CatchUp, Declared: true, Version: 1, Cursor: now, CreatedAt: now,
			}
			parsed, _ := schedule.Parse(t.Schedule, t.Timezone) // it is not broken
			s.NextAt, _ = parsed.Next(now)
			list[s.ID] = s
		}
	}
	return list, nil
}

// ScheduleRequest makes or changes a schedule.
type ScheduleRequest struct {
	Env        string
	ID         string // empty: drawn
	App        string // empty: the one app that has the workflow
	Workflow   string
	Expression string
	Timezone   string
	CatchUp    string
	Payload    jsontext.Value
	Paused     bool
}

// PutSchedule makes a schedule, or changes the one of that id. A changed expression counts from now (D2). It is durable on return.
// ErrBadSchedule, ErrDeclared, ErrUnknownWorkflow.
func (e *Engine) PutSchedule(ctx context.Context, r ScheduleRequest) (store.Schedule, error) {
	t, err := e.oneWorkflow(r.Env, r.App, r.Workflow)
	if err != nil {
		return store.Schedule{}, err
	}
	parsed, err := schedule.Parse(r.Expression, r.Timezone)
	if err == nil {
		_, err = schedule.ParseCatchUp(r.CatchUp)
	}
	if err != nil {
		return store.Schedule{}, fmt.Errorf("%w: %w", ErrBadSchedule, err)
	}
	now := e.now()
	return e.changeSchedule(ctx, r.Env, or(r.ID, id.New(id.Schedule)), func(s *store.Schedule) error {
		if s.Declared {
			return ErrDeclared
		}
		if s.Version == 0 {
			s.CreatedAt = now
		}
		if s.Version == 0 || s.Expression != r.Expression || s.Timezone != r.Timezone || (s.Paused && !r.Paused) {
			s.Cursor = now
			s.NextAt, _ = parsed.Next(now)
		}
		s.App, s.Workflow, s.Expression, s.Timezone, s.CatchUp = t.app.name, t.workflow.Name, r.Expression, r.Timezone, r.CatchUp
		s.Payload, s.Paused = r.Payload, r.Paused
		return nil
	})
}

// PauseSchedule pauses a schedule, or lets it go on: from now, what it missed does not catch up. ErrNotFound.
func (e *Engine) PauseSchedule(ctx context.Context, env, scheduleID string, paused bool) (store.Schedule, error) {
	return e.changeSchedule(ctx, env, scheduleID, func(s *store.Schedule) error {
		if s.Version == 0 {
			return store.ErrNotFound
		}
		if s.Paused && !paused {
			parsed, err := schedule.Parse(s.Expression, s.Timezone)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrBadSchedule, err)
			}
			s.Cursor = e.now()
			s.NextAt, _ = parsed.Next(s.Cursor)
		}
		s.Paused = paused
		return nil
	})
}

// DropSchedule removes a schedule. ErrNotFound, ErrDeclared.
func (e *Engine) DropSchedule(ctx context.Context, env, scheduleID string) error {
	s, err := e.Schedule(ctx, env, scheduleID)
	if err != nil {
		return err
	}
	if s.Declared {
		return ErrDeclared
	}
	_, err = e.committer.commit(store.Change{store.DropSchedule{Env: env, ID: scheduleID}})
	return err
}

// Schedule reads one schedule. ErrNotFound.
func (e *Engine) Schedule(ctx context.Context, env, scheduleID string) (store.Schedule, error) {
	page, err := e.store.Schedules(ctx, store.ScheduleQuery{Env: env, ID: scheduleID, Limit: 1})
	switch {
	case err != nil:
		return store.Schedule{}, err
	case len(page) == 0:
		return store.Schedule{}, store.ErrNotFound
	}
	return page[0], nil
}

// changeSchedule writes what change makes of a schedule; a new one has version 0.
func (e *Engine) changeSchedule(ctx context.Context, env, scheduleID string, change func(*store.Schedule) error) (store.Schedule, error) {
	for range applyTries {
		s, err := e.Schedule(ctx, env, scheduleID)
		if errors.Is(err, store.ErrNotFound) {
			s, err = store.Schedule{Env: env, ID: scheduleID}, nil
		}
		if err == nil {
			err = change(&s)
		}
		if err != nil {
			return store.Schedule{}, err
		}
		s.Version++
		_, err = e.committer.commit(store.Change{store.PutSchedule{Schedule: s}})
		if !errors.Is(err, store.ErrStale) {
			e.dueHint.wake()
			return s, err
		}
	}
	return store.Schedule{}, ErrBusy
}
