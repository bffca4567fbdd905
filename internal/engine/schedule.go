package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
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

// declareSchedules brings the stored schedules of an app up to its manifest.
func (e *Engine) declareSchedules(app appID) error {
	wanted := e.apps.schedules(app, e.now())
	after := ""
	for {
		page, err := e.store.Schedules(e.ctx, store.ScheduleQuery{Env: app.env, App: app.name, After: after, Limit: duePage})
		if err != nil {
			return err
		}
		for _, standing := range page {
			after = standing.ID
			want, stays := wanted[standing.ID]
			delete(wanted, standing.ID)
			switch {
			case !standing.Declared || (stays && want.CatchUp == standing.CatchUp):
				continue
			case stays:
				standing.CatchUp = want.CatchUp
				standing.Version++
				_, err = e.committer.commit(store.Change{store.PutSchedule{Schedule: standing}})
			default:
				_, err = e.committer.commit(store.Change{store.DropSchedule{Env: app.env, ID: standing.ID}})
			}
			if err != nil && !errors.Is(err, store.ErrStale) {
				return err
			}
		}
		if len(page) < duePage {
			break
		}
	}
	for _, s := range wanted {
		if _, err := e.committer.commit(store.Change{store.PutSchedule{Schedule: s}}); err != nil && !errors.Is(err, store.ErrStale) {
			return err
		}
	}
	e.dueHint.wake()
	return nil
}

// schedules are those that an app's manifest declares, as new ones, by their ids.
func (r *registry) schedules(app appID, now time.Time) map[string]store.Schedule {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := map[string]store.Schedule{}
	a := r.apps[app]
	if a == nil {
		return list
	}
	for _, w := range a.manifest.Workflows {
		for _, t := range w.Triggers {
			if t.Schedule == "" || r.broken(t) != "" {
				continue
			}
			s := store.Schedule{
				Env: app.env, ID: declaredID(app, w.Name, t.Schedule, t.Timezone), App: app.name, Workflow: w.Name,
				Expression: t.Schedule, Timezone: t.Timezone, CatchUp: t.CatchUp, Declared: true, Version: 1, Cursor: now, CreatedAt: now,
			}
			parsed, _ := schedule.Parse(t.Schedule, t.Timezone) // it is not broken
			s.NextAt, _ = parsed.Next(now)
			list[s.ID] = s
		}
	}
	return list
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
	if err != nil || len(page) == 0 {
		return store.Schedule{}, errors.Join(err, store.ErrNotFound)
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
