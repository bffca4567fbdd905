package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/id"
)

// StartRun asks for a run. An ID is drawn where none is given.
type StartRun struct {
	Workflow string          `json:"workflow"`
	Payload  json.RawMessage `json:"payload,omitempty"` // nil: undefined
	App      string          `json:"app,omitempty"`
	Key      string          `json:"key,omitempty"`
	KeyForMs int64           `json:"keyForMs,omitempty"`
	At       *time.Time      `json:"at,omitempty"` // nil: at once
	DelayMs  int64           `json:"delayMs,omitempty"`
	ID       string          `json:"id,omitempty"`
}

// Event is an event to be emitted. An ID is drawn where none is given.
type Event struct {
	Event   string          `json:"event"`
	Payload json.RawMessage `json:"payload,omitempty"`
	ID      string          `json:"id,omitempty"`
	At      *time.Time      `json:"at,omitempty"` // nil: at once
}

// Page says which page of a list is asked for. The zero value is the first, as long as the server gives it.
type Page struct {
	Limit  int
	Cursor string
}

func (p Page) query() url.Values {
	query := url.Values{}
	if p.Limit > 0 {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	set(query, "cursor", p.Cursor)
	return query
}

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// RunQuery selects runs. Empty fields select all.
type RunQuery struct {
	Page
	Status, Workflow, App, Key string
}

// StartRun starts a run, or answers the one that its key or id started before. It is durable on return.
func (c *Client) StartRun(ctx context.Context, r StartRun) (apitype.StartedRun, error) {
	if r.ID == "" {
		r.ID = id.New(id.Run)
	}
	var out apitype.StartedRun
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/runs", body: r}, &out)
	return out, err
}

// Run reads a run; with wait it first waits so long, at most 30 s, for the run to end.
func (c *Client) Run(ctx context.Context, runID string, wait time.Duration) (apitype.Run, error) {
	wait = min(wait, waitMax)
	query := url.Values{}
	if wait > 0 {
		query.Set("waitMs", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	var out apitype.Run
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(runID), query: query, wait: wait}, &out)
	return out, err
}

// Runs lists runs, newest first.
func (c *Client) Runs(ctx context.Context, q RunQuery) (apitype.List[apitype.Run], error) {
	query := q.query()
	set(query, "status", q.Status)
	set(query, "workflow", q.Workflow)
	set(query, "app", q.App)
	set(query, "key", q.Key)
	var out apitype.List[apitype.Run]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/runs", query: query}, &out)
	return out, err
}

// Steps lists a run's steps in the order in which they were saved.
func (c *Client) Steps(ctx context.Context, runID string, p Page) (apitype.List[apitype.Step], error) {
	return c.ChapterSteps(ctx, runID, -1, p)
}

// ChapterSteps lists the steps that a run saved after so many restarts; -1 is the current ones.
func (c *Client) ChapterSteps(ctx context.Context, runID string, restart int, p Page) (apitype.List[apitype.Step], error) {
	query := p.query()
	if restart >= 0 {
		query.Set("restart", strconv.Itoa(restart))
	}
	var out apitype.List[apitype.Step]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(runID) + "/steps", query: query}, &out)
	return out, err
}

// Logs lists what a run's code has logged, oldest first.
func (c *Client) Logs(ctx context.Context, runID string, p Page) (apitype.List[apitype.LogLine], error) {
	var out apitype.List[apitype.LogLine]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(runID) + "/logs", query: p.query()}, &out)
	return out, err
}

// ReplayOptions say what a replay takes over. The zero value is the original's payload, and every step again.
type ReplayOptions struct {
	From     string          `json:"from,omitempty"`    // a step: what was saved before it is kept
	Payload  json.RawMessage `json:"payload,omitempty"` // nil: the original's
	KeepKeys *bool           `json:"keepKeys,omitempty"`
	Events   string          `json:"events,omitempty"` // "original" or "new"; empty: original
	// Once names what this replay belongs to: a run is replayed once for each such name, for a day. Empty: as often as it is asked.
	Once string `json:"-"`
}

// Replay starts a new run with the same workflow.
func (c *Client) Replay(ctx context.Context, runID string, o ReplayOptions) (apitype.StartedRun, error) {
	body := struct {
		ID string `json:"id,omitempty"`
		ReplayOptions
	}{ReplayOptions: o}
	if o.Once == "" {
		body.ID = id.New(id.Run)
	}
	var out apitype.StartedRun
	err := c.ask(ctx, request{method: http.MethodPost, path: replayPath(runID), body: body, key: o.Once}, &out)
	return out, err
}

func replayPath(runID string) string { return "/v1/runs/" + url.PathEscape(runID) + "/replay" }

// PlanReplay says which steps a replay from a step would keep, and which would act again; from may be empty.
func (c *Client) PlanReplay(ctx context.Context, runID, from string) (apitype.ReplayPlan, error) {
	query := url.Values{}
	set(query, "from", from)
	var out apitype.ReplayPlan
	err := c.ask(ctx, request{method: http.MethodGet, path: replayPath(runID), query: query}, &out)
	return out, err
}

// Cancel asks a run to end. Asked again, it changes nothing. With force it is over at once, and nothing is undone.
func (c *Client) Cancel(ctx context.Context, runID string, force bool) (apitype.Run, error) {
	query := url.Values{}
	if force {
		query.Set("force", "true")
	}
	var out apitype.Run
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/runs/" + url.PathEscape(runID) + "/cancel", query: query}, &out)
	return out, err
}

// Verify has the app at an address play its live runs, without acting, newest first.
// newSteps are names of steps that it is meant to have now.
func (c *Client) Verify(ctx context.Context, address string, newSteps []string, p Page) (apitype.Verification, error) {
	body := struct {
		URL      string   `json:"url"`
		Limit    int      `json:"limit,omitempty"`
		Cursor   string   `json:"cursor,omitempty"`
		NewSteps []string `json:"newSteps,omitempty"`
	}{address, p.Limit, p.Cursor, newSteps}
	var out apitype.Verification
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/verify", body: body}, &out)
	return out, err
}

// Emit emits an event.
func (c *Client) Emit(ctx context.Context, e Event) (apitype.EmittedEvent, error) {
	if e.ID == "" {
		e.ID = id.New(id.Event)
	}
	var out apitype.EmittedEvent
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/events", body: e}, &out)
	return out, err
}

// EmitAll emits several events, all or none.
func (c *Client) EmitAll(ctx context.Context, events []Event) ([]apitype.EmittedEvent, error) {
	drawn := make([]Event, len(events))
	for i, e := range events {
		if e.ID == "" {
			e.ID = id.New(id.Event)
		}
		drawn[i] = e
	}
	var out []apitype.EmittedEvent
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/events", body: drawn}, &out)
	return out, err
}

// Events lists events, newest first; name selects those of one name, and may be empty.
func (c *Client) Events(ctx context.Context, name string, p Page) (apitype.List[apitype.Event], error) {
	query := p.query()
	set(query, "event", name)
	var out apitype.List[apitype.Event]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/events", query: query}, &out)
	return out, err
}

// PutSchedule is a schedule as it is to be.
type PutSchedule struct {
	Workflow string          `json:"workflow"`
	App      string          `json:"app,omitempty"`
	Schedule string          `json:"schedule"`
	Timezone string          `json:"timezone,omitempty"`
	CatchUp  string          `json:"catchUp,omitempty"`
	Payload  json.RawMessage `json:"payload,omitempty"`
	Paused   bool            `json:"paused,omitempty"`
}

func schedulePath(scheduleID string) string { return "/v1/schedules/" + url.PathEscape(scheduleID) }

// Schedules lists schedules, by id.
func (c *Client) Schedules(ctx context.Context, p Page) (apitype.List[apitype.Schedule], error) {
	var out apitype.List[apitype.Schedule]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/schedules", query: p.query()}, &out)
	return out, err
}

// PutSchedule makes a schedule, or changes the one of that id.
func (c *Client) PutSchedule(ctx context.Context, scheduleID string, s PutSchedule) (apitype.Schedule, error) {
	var out apitype.Schedule
	err := c.ask(ctx, request{method: http.MethodPut, path: schedulePath(scheduleID), body: s}, &out)
	return out, err
}

// PauseSchedule pauses a schedule, or lets it go on from now.
func (c *Client) PauseSchedule(ctx context.Context, scheduleID string, paused bool) (apitype.Schedule, error) {
	verb := "/resume"
	if paused {
		verb = "/pause"
	}
	var out apitype.Schedule
	err := c.ask(ctx, request{method: http.MethodPost, path: schedulePath(scheduleID) + verb}, &out)
	return out, err
}

// DeleteSchedule removes a schedule.
func (c *Client) DeleteSchedule(ctx context.Context, scheduleID string) error {
	return c.ask(ctx, request{method: http.MethodDelete, path: schedulePath(scheduleID)}, nil)
}

// DeliveryQuery selects deliveries. Empty fields select all.
type DeliveryQuery struct {
	Page
	Hook, Status string
}

// Deliveries lists deliveries to configured hooks, newest first, without what was sent.
func (c *Client) Deliveries(ctx context.Context, q DeliveryQuery) (apitype.List[apitype.Delivery], error) {
	query := q.query()
	set(query, "hook", q.Hook)
	set(query, "status", q.Status)
	var out apitype.List[apitype.Delivery]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/deliveries", query: query}, &out)
	return out, err
}

// Delivery reads a delivery with what was sent.
func (c *Client) Delivery(ctx context.Context, deliveryID string) (apitype.Delivery, error) {
	var out apitype.Delivery
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/deliveries/" + url.PathEscape(deliveryID)}, &out)
	return out, err
}

// Redeliver emits a delivery's events again, as new ones; unverified: also those of a rejected one. It is durable on return.
func (c *Client) Redeliver(ctx context.Context, deliveryID string, unverified bool) (apitype.Delivery, error) {
	body := struct {
		ID         string `json:"id"`
		Unverified bool   `json:"unverified,omitempty"`
	}{id.New(id.Delivery), unverified}
	var out apitype.Delivery
	err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/deliveries/" + url.PathEscape(deliveryID) + "/redeliver", body: body}, &out)
	return out, err
}

// Apps lists apps, and the addresses at which one is expected.
func (c *Client) Apps(ctx context.Context) (apitype.List[apitype.App], error) {
	var out apitype.List[apitype.App]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/apps"}, &out)
	return out, err
}

// PutApp registers the app at an address, or reads its manifest again now. concurrency is how many calls it gets at once; zero
// leaves it as it is.
func (c *Client) PutApp(ctx context.Context, address string, concurrency int) (apitype.App, error) {
	body := struct {
		URL         string `json:"url"`
		Concurrency int    `json:"concurrency,omitempty"`
	}{address, concurrency}
	var out apitype.App
	err := c.ask(ctx, request{method: http.MethodPut, path: "/v1/apps", body: body}, &out)
	return out, err
}

// RemoveApp removes an app that is no longer there.
func (c *Client) RemoveApp(ctx context.Context, name string) error {
	return c.ask(ctx, request{method: http.MethodDelete, path: "/v1/apps/" + url.PathEscape(name)}, nil)
}

// Workflows lists workflows; app selects those of one app, and may be empty.
func (c *Client) Workflows(ctx context.Context, app string) (apitype.List[apitype.Workflow], error) {
	query := url.Values{}
	set(query, "app", app)
	var out apitype.List[apitype.Workflow]
	err := c.ask(ctx, request{method: http.MethodGet, path: "/v1/workflows", query: query}, &out)
	return out, err
}

// Readiness is what a server that takes requests says of itself.
type Readiness struct {
	Status  string    `json:"status"`
	Version string    `json:"version"`
	Held    bool      `json:"held"` // its store was restored, and it answers reads and cancels alone (N5)
	At      time.Time `json:"-"`    // its clock, to the second; zero if what stands between has left it out
}

// Ready tells whether the server takes requests, and which version it is.
func (c *Client) Ready(ctx context.Context) (Readiness, error) {
	var out Readiness
	var header http.Header
	err := c.ask(ctx, request{method: http.MethodGet, path: "/readyz", header: &header}, &out)
	if at, noDate := http.ParseTime(header.Get("Date")); noDate == nil {
		out.At = at
	}
	return out, err
}
