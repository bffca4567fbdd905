package store

import (
	"encoding/json/jsontext"
	"fmt"
	"time"
)

// Schedule starts a run of its workflow at each of its ticks (D2).
type Schedule struct {
	Env        string
	ID         string
	App        string
	Workflow   string
	Expression string
	Timezone   string
	CatchUp    string
	Payload    jsontext.Value // of its runs; nil: the tick
	Declared   bool           // by its app's manifest, and gone with it
	Paused     bool
	Version    int64
	Cursor     time.Time // the last tick that was looked at, or since when it is looked at
	NextAt     time.Time // its next tick; zero: none
	CreatedAt  time.Time // never changes: it tells the schedule from an earlier one of its id
}

// ScheduleQuery selects schedules. Empty fields select all.
type ScheduleQuery struct {
	Env   string
	ID    string
	App   string
	DueBy time.Time // only those that are due then and not paused
	After string    // only ids after this one
	Limit int
	// BytesMax bounds the payloads, but for one schedule; zero: no bound.
	BytesMax int
}

// PutSchedule writes a schedule. It expects the version before Schedule.Version, or none for version 1, else the change fails with
// ErrStale. What is written over must also have been made when Schedule.CreatedAt says: one that was removed and made anew has the same
// versions, and is another.
type PutSchedule struct{ Schedule Schedule }

// DropSchedule removes a schedule. That it is gone already is no error.
type DropSchedule struct{ Env, ID string }

func (PutSchedule) op()  {}
func (DropSchedule) op() {}

// Check compares what the op expects with the schedule that stands; the zero Schedule is none. ErrStale. Only stores call it.
func (op PutSchedule) Check(standing Schedule) error {
	s := op.Schedule
	switch {
	case standing.Version != s.Version-1:
		return fmt.Errorf("schedule %s is at version %d, not %d: %w", s.ID, standing.Version, s.Version-1, ErrStale)
	case standing.Version > 0 && !standing.CreatedAt.Equal(s.CreatedAt):
		return fmt.Errorf("schedule %s was removed and made anew: %w", s.ID, ErrStale)
	}
	return nil
}
