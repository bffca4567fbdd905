package nelkap

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/sdk/go/internal/play"
	"github.com/nelkap/nelkap/sdk/go/internal/value"
)

const (
	// schedulesPage is how many schedules one request lists: the most that the server gives.
	schedulesPage = 100
	// schedulePagesMax bounds a list: more schedules than an environment is meant for.
	schedulePagesMax = 1000
)

// Schedule is a schedule as it is to be.
type Schedule struct {
	// Workflow is the name of the workflow whose runs its ticks start, and App the app that has it; empty: this one. The payload of such
	// a run is a Tick.
	Workflow string
	App      string
	// Expression is a cron expression of five fields, such as "0 9 * * 1-5", or a word such as "@daily".
	Expression string
	// Timezone is where its clock stands, such as Europe/Berlin; empty: UTC.
	Timezone string
	// CatchUp says what becomes of ticks that came while the server was down; empty: CatchUpNone.
	CatchUp CatchUpRule
	// Payload is the Tick's own; nil: none.
	Payload any
	// Paused has it start nothing until Resume.
	Paused bool
}

// ScheduleRecord is a schedule as the server keeps it.
type ScheduleRecord struct {
	ID         string          `json:"id"`
	Workflow   string          `json:"workflow"`
	App        string          `json:"app"`
	Expression string          `json:"schedule"`
	Timezone   string          `json:"timezone"`
	CatchUp    CatchUpRule     `json:"catchUp"`
	Payload    json.RawMessage `json:"payload"`  // nil: none
	Declared   bool            `json:"declared"` // it stands in an app's code, as OnSchedule, and changes with it alone
	Paused     bool            `json:"paused"`
	NextAt     time.Time       `json:"nextAt"` // zero while it is paused
	CreatedAt  time.Time       `json:"createdAt"`
}

// Schedules makes and changes schedules while the app runs. It fails as Run does: with an *APIError where the server refuses, as with the
// code not_found for a schedule that is not there. Each of its changes may be made twice, so that a step that repeats does no harm;
// outside steps they are made each time the code runs.
type Schedules struct{ app *App }

// Schedules are those of the app's server.
func (a *App) Schedules() Schedules { return Schedules{a} }

// scheduleMessage is the body of PUT /v1/schedules/{id}.
type scheduleMessage struct {
	Workflow string          `json:"workflow"`
	App      string          `json:"app,omitempty"`
	Schedule string          `json:"schedule"`
	Timezone string          `json:"timezone,omitempty"`
	CatchUp  CatchUpRule     `json:"catchUp,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	Paused   bool            `json:"paused,omitempty"`
}

// Put makes the schedule of that id, any text of up to 256 bytes, or changes it to be as s says. A changed expression or time zone
// counts from now.
func (s Schedules) Put(ctx context.Context, id string, as Schedule) (*ScheduleRecord, error) {
	m := scheduleMessage{
		Workflow: as.Workflow, App: as.App, Schedule: as.Expression, Timezone: as.Timezone, CatchUp: as.CatchUp, Paused: as.Paused,
	}
	if m.App == "" {
		m.App = s.app.settings().app
	}
	if as.Payload != nil {
		var err error
		if m.Payload, err = value.EncodeAny("payload", as.Payload); err != nil {
			return nil, NonRetriable(fmt.Errorf("nelkap: the payload of schedule %q can't be sent: %w", id, err))
		}
	}
	body, err := value.Encode("schedule", &m)
	if err != nil {
		return nil, NonRetriable(fmt.Errorf("nelkap: schedule %q can't be sent: %w", id, err))
	}
	return s.change(ctx, request{method: http.MethodPut, path: schedulePath(id), body: body}, &ScheduleRecord{
		ID: id, Workflow: m.Workflow, App: m.App, Expression: m.Schedule, Timezone: m.Timezone, CatchUp: m.CatchUp, Payload: m.Payload, Paused: m.Paused,
	})
}

// Get is the schedule of that id.
func (s Schedules) Get(ctx context.Context, id string) (*ScheduleRecord, error) {
	if err := play.CheckName("schedule", id); err != nil {
		return nil, NonRetriable(err)
	}
	record := &ScheduleRecord{}
	if err := s.app.send(ctx, request{method: http.MethodGet, path: schedulePath(id)}, record); err != nil {
		return nil, err
	}
	return record, nil
}

// List is every schedule, by id: those of this app's code, and those of others too.
func (s Schedules) List(ctx context.Context) ([]ScheduleRecord, error) {
	var all []ScheduleRecord
	query := url.Values{"limit": {strconv.Itoa(schedulesPage)}}
	for range schedulePagesMax {
		var page struct {
			Data       []ScheduleRecord `json:"data"`
			NextCursor *string          `json:"nextCursor"`
		}
		if err := s.app.send(ctx, request{method: http.MethodGet, path: "/v1/schedules?" + query.Encode()}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
	return nil, fmt.Errorf("nelkap: there are more than %d schedules: ask for them by their ids", len(all))
}

// Pause has the schedule start nothing until Resume.
func (s Schedules) Pause(ctx context.Context, id string) (*ScheduleRecord, error) {
	return s.change(ctx, request{method: http.MethodPost, path: schedulePath(id) + "/pause"}, &ScheduleRecord{ID: id, Paused: true})
}

// Resume lets a paused schedule go on, from now: what passed meanwhile is not caught up.
func (s Schedules) Resume(ctx context.Context, id string) (*ScheduleRecord, error) {
	return s.change(ctx, request{method: http.MethodPost, path: schedulePath(id) + "/resume"}, &ScheduleRecord{ID: id})
}

// Delete removes the schedule. One that is declared in an app's code is refused: take it out of the code. In a run one that is not there
// is no error: the code may have removed it when it was played before.
func (s Schedules) Delete(ctx context.Context, id string) error {
	if err := play.CheckName("schedule", id); err != nil {
		return NonRetriable(err)
	}
	if frozen(ctx) {
		return nil
	}
	return s.app.send(ctx, request{method: http.MethodDelete, path: schedulePath(id)}, nil)
}

// change gives the server's answer to r, or what it would be where the code is played without acting.
func (s Schedules) change(ctx context.Context, r request, would *ScheduleRecord) (*ScheduleRecord, error) {
	if err := play.CheckName("schedule", would.ID); err != nil {
		return nil, NonRetriable(err)
	}
	if frozen(ctx) {
		return would, nil
	}
	record := &ScheduleRecord{}
	if err := s.app.send(ctx, r, record); err != nil {
		return nil, err
	}
	return record, nil
}

func schedulePath(id string) string { return "/v1/schedules/" + url.PathEscape(id) }
