package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nelkap/nelkap/internal/apitype"
	"github.com/nelkap/nelkap/internal/engine"
	"github.com/nelkap/nelkap/internal/id"
	"github.com/nelkap/nelkap/internal/store"
	"github.com/nelkap/nelkap/internal/wire"
	"github.com/nelkap/nelkap/internal/workflow"
)

// Limits of the API's values (promise 16).
const (
	runBytesMax   = wire.ResultBytesMax + 64<<10
	eventBytesMax = 1 << 20
	keyBytesMax   = 512
	listStd       = 20
)

// sendBody is where a step sends from; the SDKs fill it in.
type sendBody struct {
	Call  string `json:"call"`
	Token string `json:"token"`
	Nonce string `json:"nonce"`
	Step  struct {
		Name   string `json:"name"`
		Number int    `json:"number"`
	} `json:"step"`
	Place int `json:"place"`
}

func (s *sendBody) wire() *wire.Send {
	if s == nil {
		return nil
	}
	return &wire.Send{Fence: wire.Fence{Call: s.Call, Token: s.Token, Nonce: s.Nonce}, Step: wire.StepRef{Name: s.Step.Name, Number: s.Step.Number}, Place: s.Place}
}

type startBody struct {
	Workflow string          `json:"workflow" minLength:"1" maxLength:"256" doc:"the workflow's name"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"any JSON, at most 4 MiB"`
	App      string          `json:"app,omitempty" doc:"the app that has the workflow; needed where several have one of this name"`
	Key      string          `json:"key,omitempty" minLength:"1" maxLength:"512" doc:"one run for each key of this app's workflow: a second start answers the first's run"`
	KeyForMs int64           `json:"keyForMs,omitempty" minimum:"1" maximum:"3155760000000" doc:"how long the key is kept, at most 100 years; without it for ever"`
	At       *time.Time      `json:"at,omitempty" doc:"when the run's first call is due, at most a year from now; past is at once"`
	DelayMs  int64           `json:"delayMs,omitempty" minimum:"0" maximum:"31622400000" doc:"how long from now the run's first call is due, in place of at"`
	ID       string          `json:"id,omitempty" minLength:"1" doc:"run_…, drawn by the client before its first try, so that a try again finds the run"`
	Send     *sendBody       `json:"send,omitempty" doc:"where a step starts the run; the SDKs fill it in"`
}

type replayBody struct {
	ID       string          `json:"id,omitempty" minLength:"1" doc:"run_…, drawn by the client before its first try"`
	From     string          `json:"from,omitempty" minLength:"1" maxLength:"256" doc:"the name of a step: what was saved before it is kept; without it every step runs again"`
	Payload  json.RawMessage `json:"payload,omitempty" doc:"in the place of the original's"`
	KeepKeys *bool           `json:"keepKeys,omitempty" doc:"whether steps have the original's idempotency keys; without it they do in a replay from a step, and not in a whole one"`
	Events   string          `json:"events,omitempty" enum:"original,new" doc:"whether waits for events look back to the original's creation, which is the default, or to their own run's"`
}

// RequestKey is the header that makes a request safe to send again. It is exported, as PageInput is, because huma reads no embedded
// field that is not. Like a key or an id in a body it may be absent, and not empty: who made it of a value that was not there means a
// request that is safe to send again, and it would not be.
type RequestKey struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"512" doc:"the same request again answers what it did the first time, for 24 h"`
}

// Resolve is called by huma, which takes an empty header for an absent one.
func (k *RequestKey) Resolve(ctx huma.Context) (errs []error) {
	ctx.EachHeader(func(name, value string) {
		if name == "Idempotency-Key" && value == "" && k.IdempotencyKey == "" {
			errs = []error{&huma.ErrorDetail{Location: "header.Idempotency-Key", Message: "expected length >= 1"}}
		}
	})
	return errs
}

type (
	startInput struct {
		RequestKey
		WaitMs int64 `query:"waitMs" minimum:"0" maximum:"30000" doc:"wait so long for the run to end, once it is stored"`
		Body   startBody
	}
	startOutput struct {
		Status   int
		Replayed string `header:"Idempotent-Replayed"`
		Body     apitype.StartedRun
	}
	runInput struct {
		ID     string `path:"id"`
		WaitMs int64  `query:"waitMs" minimum:"0" maximum:"30000" doc:"wait so long for the run to end"`
	}
	runOutput   struct{ Body apitype.Run }
	replayInput struct {
		RequestKey
		ID   string      `path:"id"`
		Body *replayBody `required:"false"`
	}
	planInput struct {
		ID   string `path:"id"`
		From string `query:"from" doc:"the name of a step: what was saved before it would be kept"`
	}
	planOutput  struct{ Body apitype.ReplayPlan }
	cancelInput struct {
		ID    string `path:"id"`
		Force bool   `query:"force" doc:"give it its final status at once: nothing is undone, no handler runs, and what is in flight can save nothing more"`
	}
	runsInput struct {
		PageInput
		Status   string `query:"status" enum:"queued,running,waiting,completed,failed,cancelled,skipped"`
		Workflow string `query:"workflow"`
		App      string `query:"app"`
		Key      string `query:"key"`
	}
	runsOutput struct{ Body apitype.List[apitype.Run] }
	stepsInput struct {
		PageInput
		ID      string `path:"id"`
		Restart int    `query:"restart" minimum:"-1" default:"-1" doc:"the steps of a chapter that a restart has closed; without it, or -1, the current ones. The last 100 chapters are kept"`
	}
	stepsOutput struct{ Body apitype.List[apitype.Step] }
	logsInput   struct {
		PageInput
		ID string `path:"id"`
	}
	logsOutput struct{ Body apitype.List[apitype.LogLine] }
)

func (a *api) runs(h huma.API) {
	huma.Register(h, huma.Operation{
		OperationID: "startRun", Method: http.MethodPost, Path: "/v1/runs", Summary: "Start a run", DefaultStatus: http.StatusCreated,
		Description: "Answers 201 with the new run, or 200 with the one that the key started before. The same request again, by its id or its Idempotency-Key, is answered as the first was. With waitMs it answers when that run has ended, or the time is up.", MaxBodyBytes: runBytesMax, BodyReadTimeout: bodyTimeout,
	}, a.startRun)
	huma.Register(h, huma.Operation{OperationID: "listRuns", Method: http.MethodGet, Path: "/v1/runs", Summary: "List runs, newest first"}, a.listRuns)
	huma.Register(h, huma.Operation{OperationID: "getRun", Method: http.MethodGet, Path: "/v1/runs/{id}", Summary: "Get a run"}, a.getRun)
	huma.Register(h, huma.Operation{OperationID: "listSteps", Method: http.MethodGet, Path: "/v1/runs/{id}/steps", Summary: "List a run's steps, in the order in which they were saved"}, a.listSteps)
	huma.Register(h, huma.Operation{
		OperationID: "replayRun", Method: http.MethodPost, Path: "/v1/runs/{id}/replay", Summary: "Replay a run as a new one", DefaultStatus: http.StatusCreated,
		MaxBodyBytes: runBytesMax, BodyReadTimeout: bodyTimeout,
	}, a.replayRun)
	huma.Register(h, huma.Operation{
		OperationID: "planReplay", Method: http.MethodGet, Path: "/v1/runs/{id}/replay", Summary: "Say what a replay would do",
		Description: "Which saved steps it would keep, and which would act, or wait, again.",
	}, a.planReplay)
	huma.Register(h, huma.Operation{OperationID: "cancelRun", Method: http.MethodPost, Path: "/v1/runs/{id}/cancel", Summary: "Cancel a run"}, a.cancelRun)
	huma.Register(h, huma.Operation{OperationID: "listLogs", Method: http.MethodGet, Path: "/v1/runs/{id}/logs", Summary: "List what a run's code has logged, oldest first"}, a.listLogs)
}

func (a *api) startRun(ctx context.Context, in *startInput) (*startOutput, error) {
	b := in.Body
	if b.ID != "" {
		if err := id.Check(id.Run, b.ID); err != nil {
			return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", err.Error()))
		}
	}
	if err := checkPayload(b.Payload, wire.ResultBytesMax); err != nil {
		return nil, a.errorOf(ctx, err)
	}
	if b.At != nil && b.DelayMs > 0 {
		return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", "at and delayMs say the same thing: give one of them"))
	}
	if b.KeyForMs > 0 && b.Key == "" {
		return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", "keyForMs says how long a key is kept: give the key too"))
	}
	at, err := dueAt(b.At)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	started, err := a.Engine.StartRun(ctx, engine.StartRequest{
		Env: engine.DefaultEnv, Workflow: b.Workflow, App: b.App, Payload: b.Payload, ID: b.ID, Key: b.Key,
		KeyFor: time.Duration(b.KeyForMs) * time.Millisecond, At: at, Delay: time.Duration(b.DelayMs) * time.Millisecond,
		Send: b.Send.wire(), Request: in.key("POST /v1/runs", b),
	})
	if err == nil && in.WaitMs > 0 && !started.Gone && !started.Run.Status.Final() {
		// It is stored: told that its end can't be waited for, who has no key would start it again.
		if run, waitErr := a.Engine.RunRecord(ctx, engine.DefaultEnv, started.Run.ID, time.Duration(in.WaitMs)*time.Millisecond); waitErr == nil {
			started.Run = run
		}
	}
	return a.started(ctx, started, err)
}

// laterMax is how far ahead something may be due (promise 16).
const laterMax = 366 * 24 * time.Hour

// dueAt is when a request's run or event is due; zero: at once.
func dueAt(at *time.Time) (time.Time, error) {
	switch {
	case at == nil:
		return time.Time{}, nil
	case time.Until(*at) > laterMax:
		return time.Time{}, problem(http.StatusUnprocessableEntity, "invalid", "at is more than a year away: start it later, from a schedule")
	}
	return at.UTC().Add(time.Millisecond - 1).Truncate(time.Millisecond), nil // never early
}

// key is the engine's form of an Idempotency-Key; nil without one.
func (k RequestKey) key(scope string, body any) *engine.RequestKey {
	if k.IdempotencyKey == "" {
		return nil
	}
	text, _ := json.Marshal(body) // it came as JSON
	sum := sha256.Sum256(text)
	return &engine.RequestKey{Scope: scope, Key: k.IdempotencyKey, Hash: hex.EncodeToString(sum[:16])}
}

func (a *api) started(ctx context.Context, s engine.Started, err error) (*startOutput, error) {
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &startOutput{Status: http.StatusCreated, Body: apitype.StartedRun{Run: a.runOf(s.Run), Created: s.Created, PayloadDiffers: s.PayloadDiffers}}
	if !s.Created {
		out.Status = http.StatusOK
	}
	if s.Gone {
		out.Body.Status = apitype.StatusGone
	}
	if s.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func (a *api) getRun(ctx context.Context, in *runInput) (*runOutput, error) {
	record, err := a.Engine.RunRecord(ctx, engine.DefaultEnv, in.ID, time.Duration(in.WaitMs)*time.Millisecond)
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	return &runOutput{a.runOf(record)}, nil
}

func (a *api) replayRun(ctx context.Context, in *replayInput) (*startOutput, error) {
	b := replayBody{}
	if in.Body != nil {
		b = *in.Body
	}
	if b.ID != "" {
		if err := id.Check(id.Run, b.ID); err != nil {
			return nil, a.errorOf(ctx, problem(http.StatusUnprocessableEntity, "invalid", err.Error()))
		}
	}
	if err := checkPayload(b.Payload, wire.ResultBytesMax); err != nil {
		return nil, a.errorOf(ctx, err)
	}
	started, err := a.Engine.Replay(ctx, engine.ReplayRequest{
		Env: engine.DefaultEnv, RunID: in.ID, NewID: b.ID, From: b.From, Payload: b.Payload, KeepKeys: b.KeepKeys,
		NewEvents: b.Events == "new", Request: in.key("POST /v1/runs/"+in.ID+"/replay", in.Body),
	})
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	return a.started(ctx, started, nil)
}

func (a *api) planReplay(ctx context.Context, in *planInput) (*planOutput, error) {
	plan, err := a.Engine.PlanReplay(ctx, engine.DefaultEnv, in.ID, in.From)
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	return &planOutput{apitype.ReplayPlan{Keeps: plannedSteps(plan.Kept), Acts: plannedSteps(plan.Acts)}}, nil
}

func plannedSteps(entries []store.Entry) []apitype.PlannedStep {
	list := []apitype.PlannedStep{}
	for _, e := range entries {
		list = append(list, apitype.PlannedStep{Name: e.Name, Number: e.Number, Kind: e.Kind})
	}
	return list
}

func (a *api) cancelRun(ctx context.Context, in *cancelInput) (*runOutput, error) {
	record, err := a.Engine.Cancel(ctx, engine.DefaultEnv, in.ID, in.Force)
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	return &runOutput{a.runOf(record)}, nil
}

func (a *api) listLogs(ctx context.Context, in *logsInput) (*logsOutput, error) {
	after, err := in.number()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	lines, err := a.Reader.Logs(ctx, store.LogQuery{Env: engine.DefaultEnv, RunID: in.ID, After: after, Limit: in.Limit + 1})
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	out := &logsOutput{apitype.List[apitype.LogLine]{Data: []apitype.LogLine{}}}
	for _, l := range lines[:min(in.Limit, len(lines))] {
		line := apitype.LogLine{At: apitype.At(l.At), Level: l.Level, Message: l.Message, Fields: l.Fields, Restart: l.Restart, Attempt: l.Attempt}
		if l.Name != "" {
			line.Step, line.Number = &l.Name, &l.Number
		}
		out.Body.Data = append(out.Body.Data, line)
	}
	if len(lines) > in.Limit {
		out.Body.NextCursor = cursor(strconv.FormatInt(lines[in.Limit-1].Position, 10))
	}
	return out, nil
}

func (a *api) listRuns(ctx context.Context, in *runsInput) (*runsOutput, error) {
	before, err := in.run()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	q := store.RunQuery{Env: engine.DefaultEnv, App: in.App, Workflow: in.Workflow, Status: workflow.Status(in.Status), Key: in.Key, Before: before}
	records, more, err := gather(in.Limit, func(last *store.RunRecord, limit int) ([]store.RunRecord, error) {
		if q.Limit = limit; last != nil {
			q.Before = last.ID
		}
		return a.Reader.Runs(ctx, q)
	}, func(r *store.RunRecord) int { return len(r.Payload) + len(r.Output) + len(r.Error) })
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	out := &runsOutput{apitype.List[apitype.Run]{Data: []apitype.Run{}}}
	for _, r := range records {
		out.Body.Data = append(out.Body.Data, a.runOf(r))
	}
	if more {
		out.Body.NextCursor = cursor(records[len(records)-1].ID)
	}
	return out, nil
}

// checkPayload bounds a payload in bytes and in depth.
func checkPayload(payload []byte, bytesMax int) error {
	if len(payload) > bytesMax {
		return problem(http.StatusRequestEntityTooLarge, "payload_too_large", fmt.Sprintf("payload has %d bytes, and may have %d at most: "+storeElsewhere, len(payload), bytesMax))
	}
	if wire.Depth(payload) > wire.DepthMax {
		return problem(http.StatusUnprocessableEntity, "payload_too_deep", fmt.Sprintf("payload is nested more than %d deep", wire.DepthMax))
	}
	return nil
}

func (a *api) runOf(r store.RunRecord) apitype.Run {
	out := apitype.Run{
		ID: r.ID, Workflow: r.Workflow, App: r.App, Status: string(r.Status), Payload: a.shown(r, r.Payload), Output: a.shown(r, r.Output),
		Error: errorOf(r.Error), Event: optional(r.Event), EventID: optional(r.EventID), Key: optional(r.Key), ReplayOf: optional(r.ReplayOf),
		Attempt: r.Attempts + 1, Restart: r.Restart, Closing: r.Closing() && !r.Status.Final(), Warning: optional(r.Warning), CreatedAt: apitype.At(r.CreatedAt), StartedAt: apitype.At(r.StartedAt), EndedAt: apitype.At(r.EndedAt),
	}
	if r.Status != workflow.Completed {
		out.Output = json.RawMessage("null")
	}
	if r.Ending != nil && r.Ending.Reason == workflow.EndingCancelled {
		out.CancelRequestedAt = apitype.At(r.Ending.At)
	}
	if w := a.Engine.Waiting(r.Run); w != nil {
		out.WaitingFor = &apitype.WaitingFor{Reason: w.Reason, NextAt: apitype.At(w.NextAt)}
	}
	return out
}

// shown is a run's value as an answer can hold it. One that is no JSON is a fault of ours: null stands in its place, so that the run, and the
// page that it is on, can be seen at all.
func (a *api) shown(r store.RunRecord, value json.RawMessage) json.RawMessage {
	if len(value) == 0 || json.Valid(value) {
		return value
	}
	a.Logger.Error("a stored value of a run is no JSON; it is shown as null", "run", r.ID, "bytes", len(value))
	return json.RawMessage("null")
}

// errorOf reads a saved error. One that can't be read is shown as it stands.
func errorOf(value []byte) *apitype.Error {
	if value == nil {
		return nil
	}
	var e apitype.Error
	if err := json.Unmarshal(value, &e); err != nil {
		return &apitype.Error{Name: "Error", Message: string(value)}
	}
	return &e
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (a *api) listSteps(ctx context.Context, in *stepsInput) (*stepsOutput, error) {
	record, err := a.Reader.Record(ctx, engine.DefaultEnv, in.ID)
	if err != nil {
		return nil, a.runError(ctx, in.ID, err)
	}
	if in.Restart == record.Restart {
		in.Restart = -1
	}
	after, err := in.number()
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	list, err := a.chapterSteps(ctx, in, after)
	if err != nil {
		return nil, a.errorOf(ctx, err)
	}
	return &stepsOutput{list}, nil
}

// chapterSteps lists the steps of the chapter that is asked for. Of a closed one, the entries are all that is kept.
func (a *api) chapterSteps(ctx context.Context, in *stepsInput, after int64) (apitype.List[apitype.Step], error) {
	if in.Restart < 0 {
		return a.steps(ctx, in.ID, after, in.Limit)
	}
	list := apitype.List[apitype.Step]{Data: []apitype.Step{}}
	q := store.EntryQuery{RunID: in.ID, Chapter: &in.Restart, After: after, EntriesMax: in.Limit, BytesMax: wire.CallBytesMax}
	entries, err := a.Reader.Entries(ctx, q)
	if err != nil || len(entries) == 0 {
		return list, err
	}
	for _, e := range entries {
		list.Data = append(list.Data, savedStep(e, nil))
	}
	// The page may have been cut by its bytes as well as by its entries: whether others follow is known only by looking.
	q.After, q.EntriesMax = entries[len(entries)-1].Entry, 1
	following, err := a.Reader.Entries(ctx, q)
	if len(following) > 0 {
		list.NextCursor = cursor(strconv.FormatInt(q.After, 10))
	}
	return list, err
}

// steps lists saved steps in the order of the history; on the last page follow those that are not saved yet.
func (a *api) steps(ctx context.Context, runID string, after int64, limit int) (apitype.List[apitype.Step], error) {
	list := apitype.List[apitype.Step]{Data: []apitype.Step{}}
	entries, err := a.Reader.Entries(ctx, store.EntryQuery{RunID: runID, After: after, EntriesMax: limit + 1, BytesMax: wire.CallBytesMax})
	if err != nil {
		return list, err
	}
	_, history, err := a.Reader.Load(ctx, runID)
	if err != nil {
		return list, err
	}
	attempts, err := a.Reader.Attempts(ctx, runID)
	if err != nil {
		return list, err
	}
	by := map[workflow.StepID][]store.Attempt{}
	for _, at := range attempts {
		by[at.StepID] = append(by[at.StepID], at)
	}
	for _, e := range entries[:min(limit, len(entries))] {
		list.Data = append(list.Data, savedStep(e, by[e.StepID]))
		after = e.Entry
	}
	if after < history.Entries && len(entries) > 0 {
		list.NextCursor = cursor(strconv.FormatInt(after, 10))
		return list, nil
	}
	openSteps(attempts, by, &list)
	return list, nil
}

func savedStep(e store.Entry, attempts []store.Attempt) apitype.Step {
	entry := e.Entry
	s := apitype.Step{Entry: &entry, Name: e.Name, Number: e.Number, Kind: e.Kind, Status: e.Status, Output: e.Output, Error: errorOf(e.Error), Attempts: []apitype.Attempt{}}
	for _, at := range attempts {
		s.Attempts = append(s.Attempts, attemptOf(at))
	}
	s.Attempts = append(s.Attempts, apitype.Attempt{StartedAt: apitype.At(e.StartedAt), EndedAt: apitype.At(e.EndedAt), Error: errorOf(e.Error)})
	return s
}

func attemptOf(at store.Attempt) apitype.Attempt {
	return apitype.Attempt{StartedAt: apitype.At(at.StartedAt), EndedAt: apitype.At(at.EndedAt), Error: errorOf(at.Error)}
}

// openSteps adds the steps that are running or due again: what is recorded of them are attempts alone.
func openSteps(attempts []store.Attempt, by map[workflow.StepID][]store.Attempt, list *apitype.List[apitype.Step]) {
	open := map[workflow.StepID]bool{}
	for _, at := range attempts {
		if at.EndedAt.IsZero() || !at.RetryAt.IsZero() {
			open[at.StepID] = true
		}
	}
	for _, at := range attempts {
		if !open[at.StepID] {
			continue
		}
		delete(open, at.StepID)
		s := apitype.Step{Name: at.Name, Number: at.Number, Kind: workflow.KindRun, Status: "retrying", Attempts: []apitype.Attempt{}}
		for _, one := range by[at.StepID] {
			if one.EndedAt.IsZero() && one.RetryAt.IsZero() {
				s.Status = "running"
			}
			s.Error = errorOf(one.Error)
			s.Attempts = append(s.Attempts, attemptOf(one))
		}
		list.Data = append(list.Data, s)
	}
}
