package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
)

// scheduleIDBytesMax bounds a schedule's id, which is any text.
const scheduleIDBytesMax = 256

type scheduleBody struct {
	Workflow string          `json:"workflow" minLength:"1" maxLength:"256" doc:"the workflow that its ticks start"`
	App      string          `json:"app,omitempty" doc:"the app that has the workflow; needed where several have one of this name"`
	Schedule string          `json:"schedule" minLength:"1" doc:"five fields: minute, hour, day of the month, month, day of the week"`
	Timezone string          `json:"timezone,omitempty" doc:"an IANA name such as Europe/Berlin; UTC without one"`
	CatchUp  string          `json:"catchUp,omitempty" enum:"none,last,all" doc:"what becomes of ticks that passed while no server ran: none, which is the default, the last, or all, at most 1,000"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"stands beside the tick in its runs' payload"`
	Paused   bool            `json:"paused,omitempty"`
}

type (
	scheduleInput struct {
		ID string `path:"id" maxLength:"256"`
	}
	putScheduleInput struct {
		ID   string `path:"id" maxLength:"256" doc:"any text: put again, it is the same schedule"`
		Body scheduleBody
	}
	scheduleOutput  struct{ Body apitype.Schedule }
	schedulesInput  struct{ PageInput }
	schedulesOutput struct {
		Body apitype.List[apitype.Schedule]
	}
)

func (a *api) schedules(h huma.API) {
	huma.Register(h, huma.Operation{OperationID: "listSchedules", Method: http.MethodGet, Path: "/v1/schedules", Summary: "List schedules, by id"}, a.listSchedules)
	huma.Register(h, huma.Operation{OperationID: "getSchedule", Method: http.MethodGet, Path: "/v1/schedules/{id}", Summary: "Get a schedule"}, a.getSchedule)
	huma.Register(h, huma.Operation{
		OperationID: "putSchedule", Method: http.MethodPut, Path: "/v1/schedules/{id}", Summary: "Make a schedule, or change it",
		Description: "One that is declared in an app's code is changed there. A changed expression or timezone counts from now.", MaxBodyBytes: runBytesMax, BodyReadTimeout: bodyTimeout,
	}, a.putSchedule)
	huma.Register(h, huma.Operation{OperationID: "deleteSchedule", Method: http.MethodDelete, Path: "/v1/schedules/{id}", Summary: "Remove a schedule", DefaultStatus: http.StatusNoContent}, a.deleteSchedule)
	huma.Register(h, huma.Operation{OperationID: "pauseSchedule", Method: http.MethodPost, Path: "/v1/schedules/{id}/pause", Summary: "Pause a schedule"}, a.pauseSchedule)
	huma.Register(h, huma.Operation{OperationID: "resumeSchedule", Method: http.MethodPost, Path: "/v1/schedules/{id}/resume", Summary: "Let a paused schedule go on, from now"}, a.resumeSchedule)
}

func (a *api) listSchedules(ctx context.Context, in *schedulesInput) (*schedulesOutput, error) {
	after, err := in.position()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	q := store.ScheduleQuery{Env: engine.DefaultEnv, After: after}
	list, more, err := gather(in.Limit, func(last *store.Schedule, limit int) ([]store.Schedule, error) {
		if q.Limit = limit; last != nil {
			q.After = last.ID
		}
		return a.Reader.Schedules(ctx, q)
	}, func(s *store.Schedule) int { return len(s.Payload) })
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &schedulesOutput{apitype.List[apitype.Schedule]{Data: []apitype.Schedule{}}}
	for _, s := range list {
		out.Body.Data = append(out.Body.Data, scheduleOf(s))
	}
	if more {
		out.Body.NextCursor = cursor(list[len(list)-1].ID)
	}
	return out, nil
}

func scheduleOf(s store.Schedule) apitype.Schedule {
	out := apitype.Schedule{
		ID: s.ID, Workflow: s.Workflow, App: s.App, Schedule: s.Expression, Timezone: or(s.Timezone, "UTC"), CatchUp: or(s.CatchUp, "none"),
		Payload: s.Payload, Declared: s.Declared, Paused: s.Paused, CreatedAt: apitype.At(s.CreatedAt),
	}
	if !s.Paused {
		out.NextAt = apitype.At(s.NextAt)
	}
	return out
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (a *api) getSchedule(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
	return a.schedule(ctx, in.ID)(a.Engine.Schedule(ctx, engine.DefaultEnv, in.ID))
}

func (a *api) putSchedule(ctx context.Context, in *putScheduleInput) (*scheduleOutput, error) {
	b := in.Body
	if err := checkScheduleID(in.ID); err != nil {
		return nil, a.errorOf(ctx, err)
	}
	if err := checkPayload(b.Payload, wire.ResultBytesMax); err != nil {
		return nil, a.errorOf(ctx, err)
	}
	return a.schedule(ctx, in.ID)(a.Engine.PutSchedule(ctx, engine.ScheduleRequest{
		Env: engine.DefaultEnv, ID: in.ID, App: b.App, Workflow: b.Workflow, Expression: b.Schedule, Timezone: b.Timezone, CatchUp: b.CatchUp,
		Payload: b.Payload, Paused: b.Paused,
	}))
}

// checkScheduleID refuses an id that a path or a cursor does not carry: its schedule could not be asked for, nor those that are listed after it.
func checkScheduleID(id string) error {
	var reason string
	switch {
	case len(id) > scheduleIDBytesMax:
		reason = fmt.Sprintf("has at most %d bytes", scheduleIDBytesMax)
	case !utf8.ValidString(id) || strings.Contains(id, "\x00"):
		reason = "is a text in UTF-8 without NUL"
	case id == "." || id == "..":
		reason = "can't be . or .., which clients take out of an address"
	default:
		return nil
	}
	return problem(http.StatusUnprocessableEntity, "invalid", "a schedule's id "+reason)
}

func (a *api) pauseSchedule(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
	return a.schedule(ctx, in.ID)(a.Engine.PauseSchedule(ctx, engine.DefaultEnv, in.ID, true))
}

func (a *api) resumeSchedule(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
	return a.schedule(ctx, in.ID)(a.Engine.PauseSchedule(ctx, engine.DefaultEnv, in.ID, false))
}

func (a *api) deleteSchedule(ctx context.Context, in *scheduleInput) (*struct{}, error) {
	_, err := a.schedule(ctx, in.ID)(store.Schedule{}, a.Engine.DropSchedule(ctx, engine.DefaultEnv, in.ID))
	return nil, err
}

// schedule answers with what the engine made of a request for a schedule.
func (a *api) schedule(ctx context.Context, id string) func(store.Schedule, error) (*scheduleOutput, error) {
	return func(s store.Schedule, err error) (*scheduleOutput, error) {
		if errors.Is(err, store.ErrNotFound) {
			err = problem(http.StatusNotFound, "not_found", fmt.Sprintf("there is no schedule %q: GET /v1/schedules lists those that there are", id))
		}
		if err != nil {
			return nil, a.errorOf(ctx, err)
		}
		return &scheduleOutput{scheduleOf(s)}, nil
	}
}
